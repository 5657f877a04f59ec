#include "gpu/builder.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace forge::gpu {

std::string literal(float value) {
    std::string s = fmt::format("{:.9g}", value);
    if (s.find_first_of(".e") == std::string::npos) s += ".0";
    return s + "f";
}

const char* type_name(DType type) {
    switch (type) {
        case DType::bf16: return "fk::Bf16";
        case DType::f16: return "fk::F16";
        case DType::f32: return "fk::F32";
        default: fail(ErrorKind::internal, "GPU kernels have no activations of type {}", forge::name_of(type));
    }
}
const char* storage(DType type) { return type == DType::f32 ? "float" : "ushort"; }

std::string format_type(const Weight& w, bool fast) {
    const WeightFormat& f = w.format;
    if (f.is_dense()) {
        const bool aligned = w.codes.stride % 16 == 0 && w.cols % 8 == 0;
        return fmt::format("fk::Dense<{}, {}, {}, {}>", type_name(f.dense_type), w.cols, w.codes.stride, aligned ? 1 : 0);
    }
    if (w.cols % 32 != 0 || (f.group < 32 && 32 % f.group != 0))
        fail(ErrorKind::unsupported, "{}: rows of {} elements in groups of {} are not implemented on the GPU; they must be a multiple of 32", w.name, w.cols, f.group);
    return fmt::format("fk::Quant<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>", static_cast<int>(f.map), static_cast<int>(f.packing), f.bits, f.group,
                       f.zero, static_cast<int>(f.scale), static_cast<int>(f.offset), w.cols, w.codes.stride, w.codes_high.stride, w.scales.stride,
                       w.offsets.stride, w.super_scales.stride, fast ? 1 : 0);
}

std::string c_name(std::string name) {
    std::replace(name.begin(), name.end(), '.', '_');
    return name;
}

std::string EntryBuilder::read(const std::string& name, const std::string& type) {
    bool known = false;
    for (const Param& p : kernel_.params) known = known || p.name == name;
    if (!known) kernel_.params.push_back({name, type, false});
    return c_name(name);
}

std::string EntryBuilder::write(const std::string& name, const std::string& type) {
    kernel_.params.push_back({name, type, true});
    return name;
}

void EntryBuilder::planes(const std::string& variable, const std::string& operand, const Weight& w) {
    const std::string codes = read(operand + ".codes", "uchar");
    std::string s = "fk::Planes " + variable + " = {" + codes;
    const std::pair<const char*, const Plane*> others[] = {{"high", &w.codes_high}, {"scales", &w.scales}, {"offsets", &w.offsets},
                                                           {"super_scales", &w.super_scales}, {"super_mins", &w.super_mins}};
    for (const auto& [name, plane] : others) s += ", " + (plane->data ? read(operand + "." + name, "uchar") : codes);
    statement(s + "};");
}

std::string EntryBuilder::array(const std::string& name, const std::string& type, int count) {
    kernel_.arrays.push_back({name, type, count});
    return name;
}

Kernel EntryBuilder::finish(int threads, const Grid& grid) {
    kernel_.threads = threads;
    kernel_.grid = grid;
    name_kernel(kernel_);
    return kernel_;
}

bool can_run_side_by_side(const Kernel& a, const Kernel& b) {
    Grid x = a.grid, y = b.grid;
    x.x = y.x = 0;
    return a.threads == b.threads && a.residents == b.residents && x == y;
}

Kernel side_by_side(std::span<const Kernel> parts, std::span<const std::vector<std::string>> names) {
    Kernel k;
    k.family = parts[0].family;
    k.threads = parts[0].threads;
    k.residents = parts[0].residents;
    k.grid = parts[0].grid;
    k.grid.x = 0;
    k.body = "    const uint at = id.tg_x;\n";
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const Kernel& part = parts[i];
        // Within its share of the grid a part sees the buffers under its own names.
        k.body += fmt::format("    if (at >= {}u && at < {}u) {{\n    id.tg_x = at - {}u;\n    id.n_x = {}u;\n", k.grid.x, k.grid.x + part.grid.x, k.grid.x, part.grid.x);
        for (std::size_t p = 0; p < part.params.size(); ++p) {
            const Param& param = part.params[p];
            if (c_name(param.name) != names[i][p])
                k.body += fmt::format("    DEVICE {}{}* {} = {};\n", param.written ? "" : "const ", param.type, c_name(param.name), names[i][p]);
            if (std::none_of(k.params.begin(), k.params.end(), [&](const Param& q) { return q.name == names[i][p]; }))
                k.params.push_back({names[i][p], param.type, param.written});
        }
        k.body += part.body + "    }\n";
        k.grid.x += part.grid.x;
        for (const Array& a : part.arrays) {   // one part runs in a threadgroup, so they share
            const auto known = std::find_if(k.arrays.begin(), k.arrays.end(), [&](const Array& b) { return b.name == a.name; });
            if (known == k.arrays.end()) k.arrays.push_back(a);
            else known->count = std::max(known->count, a.count);
        }
    }
    name_kernel(k);
    return k;
}

void name_kernel(Kernel& kernel_) {
    const int threads = kernel_.threads;
    std::string all = kernel_.body + std::to_string(threads) + " " + std::to_string(kernel_.residents);
    for (const Param& p : kernel_.params) all += p.name + p.type + (p.written ? "w" : "");
    for (const Array& a : kernel_.arrays) all += a.name + a.type + std::to_string(a.count);
    kernel_.name = fmt::format("{}_{:016x}", kernel_.family, fnv1a(all));
}

ProductNames product_parameters(EntryBuilder& b, const Common& c, const MatvecShape& s) {
    ProductNames p;
    const char* t = storage(c.type);
    p.step = b.read("step", "int");
    p.x = b.read("packed", t);
    b.planes("w1", "weight", *s.w);
    if (s.w2) b.planes("w2", "weight2", *s.w2);
    p.bias = b.vector(s.bias, "bias");
    p.bias2 = b.vector(s.bias && s.w2, "bias2");
    p.residual = s.epilogue == Epilogue::add ? b.read("residual", t) : p.x;
    p.y = s.f32_out ? b.absent_output(t) : b.write("y", t);
    p.y32 = s.f32_out ? b.write("y", "float") : b.absent_output("float");
    return p;
}

}  // namespace forge::gpu
