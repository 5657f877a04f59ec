#include "mlx_quantisation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "tensor_data.h"

namespace forge {
namespace {

// NVFP4's second level: G stands for the largest magnitude, which is e4m3's 448 times e2m1's 6.
constexpr float nvfp4_range = 448 * 6;

std::string describe(const MlxFormat& p) { return fmt::format("{} {} bits in groups of {}", name_of(p.mode), p.bits, p.group); }

}  // namespace

float QuantisedTensor::scale_of(std::int64_t expert) const {
    if (!global_scale) return 1;
    const std::vector<float> values = floats_of(*global_scale);
    return values[values.size() == 1 ? 0 : static_cast<std::size_t>(expert)] / nvfp4_range;
}

MlxQuantisation::MlxQuantisation(const ModelFile& file) {
    if (file.format != ModelFormat::mlx) return;
    file_ = &file;
    for (const char* key : {"quantization", "quantization_config"}) {
        const auto found = file.config.find(key);
        if (found == file.config.end() || !found->is_object()) continue;
        block_ = &*found;
        top_ = read(*block_, fmt::format("{}: config.json: '{}'", file.path, key));
        return;
    }
}

MlxFormat MlxQuantisation::read(const Json& block, const std::string& where) const {
    // Without a mode it is affine, whatever the folder's own mode: so are the routers of mxfp4 folders.
    MlxFormat p;
    if (const auto mode = block.find("mode"); mode != block.end() && !mode->is_null()) {
        const auto found = mode->is_string() ? mlx_mode(mode->get_ref<const std::string&>()) : std::nullopt;
        if (!found)
            fail(ErrorKind::unsupported, "{} has the mode {}, which is not implemented ({} are)", where,
                 mode->dump(-1, ' ', true, Json::error_handler_t::replace), fmt::join(mlx_mode_names, ", "));
        p.mode = *found;
    }
    p = mlx_default(p.mode);
    for (const auto& [key, value] : {std::pair{"bits", &p.bits}, std::pair{"group_size", &p.group}}) {
        const auto found = block.find(key);
        if (found == block.end() || found->is_null()) continue;
        if (!found->is_number_integer() || found->get<double>() < 1 || found->get<double>() > 1024)
            fail("{}: '{}' should be a small whole number, but it is {}", where, key, found->dump(-1, ' ', true, Json::error_handler_t::replace));
        *value = found->get<int>();
    }
    check(p, where);
    return p;
}

void MlxQuantisation::check(const MlxFormat& p, const std::string& where) const {
    const bool known = p.mode == MlxMode::affine
                           ? p.bits >= 1 && p.bits <= 8 && p.bits != 7 && (p.group == 32 || p.group == 64 || p.group == 128)
                           : p == mlx_default(p.mode);
    if (!known)
        fail(ErrorKind::unsupported,
             "{}: {} is not implemented (affine with 1, 2, 3, 4, 5, 6 or 8 bits and groups of 32, 64 or 128, mxfp4 and mxfp8 with groups "
             "of 32 and nvfp4 with groups of 16 are)", where, describe(p));
}

MlxFormat MlxQuantisation::infer(const Tensor& weight, const Tensor& scales, std::int64_t cols) const {
    const std::int64_t words = weight.cols(), groups = scales.cols();
    if (groups < 1 || cols % groups != 0 || words * 32 % cols != 0)
        fail("{}: {} with {} do not fit {} inputs: a row should have a scale a group, and 32 bits of codes a word", file_->path,
             weight.describe(), scales.describe(), cols);
    constexpr std::int64_t most = 1 << 20;   // beyond what any mode has
    MlxFormat p{MlxMode::affine, static_cast<int>(std::min(words * 32 / cols, most)), static_cast<int>(std::min(cols / groups, most))};
    if (scales.dtype == DType::u8) {
        p.mode = p.bits == 8 ? MlxMode::mxfp8 : p.group == 16 ? MlxMode::nvfp4 : MlxMode::mxfp4;
    }
    check(p, fmt::format("{}: {}", file_->path, weight.name));
    return p;
}

std::optional<QuantisedTensor> MlxQuantisation::of(const Tensor& weight, std::int64_t cols) const {
    constexpr std::string_view suffix = ".weight";
    if (!block_ || !weight.name.ends_with(suffix)) return std::nullopt;
    const std::string path = weight.name.substr(0, weight.name.size() - suffix.size());
    const auto where = [&] { return fmt::format("{}: config.json: the quantization of '{}'", file_->path, path); };
    const auto entry = block_->find(path);
    const bool listed = entry != block_->end() && !entry->is_null();
    if (listed && !entry->is_object() && !entry->is_boolean())
        fail("{} should be an object, true or false, but it is {}", where(), entry->type_name());
    const bool denied = listed && entry->is_boolean() && !entry->get<bool>();
    QuantisedTensor out;
    out.scales = file_->find(path + ".scales");
    if (!out.scales) {
        if (listed && !denied) fail("{} is stated, but there is no tensor {}.scales", where(), path);
        if (weight.dtype == DType::u32) fail("{}: {} holds codes, but there is no tensor {}.scales", file_->path, weight.describe(), path);
        return std::nullopt;
    }
    if (denied) fail("{} is false, but there is a tensor {}.scales", where(), path);
    if (weight.shape.size() < 2 || out.scales->shape.size() != weight.shape.size())
        fail("{}: {} and {} should be matrices of as many rows", file_->path, weight.describe(), out.scales->describe());
    if (weight.dtype != DType::u32) fail("{}: {} has scales beside it, so it should hold codes in u32 words", file_->path, weight.describe());
    if (!std::equal(weight.shape.begin(), weight.shape.end() - 1, out.scales->shape.begin(), out.scales->shape.end() - 1))
        fail("{}: {} and {} differ in their rows", file_->path, weight.describe(), out.scales->describe());

    const MlxFormat p = infer(weight, *out.scales, cols);
    if (listed) {
        const MlxFormat stated = entry->is_object() ? read(*entry, where()) : top_;
        if (stated != p)
            fail("{} is {}, but the shapes of {} and {} say {}", where(), describe(stated), weight.describe(), out.scales->describe(), describe(p));
    }
    const bool affine = p.mode == MlxMode::affine;
    if (affine && out.scales->dtype != DType::f16 && out.scales->dtype != DType::bf16 && out.scales->dtype != DType::f32)
        fail(ErrorKind::unsupported, "{}: scales of this type are not implemented: {}", file_->path, out.scales->describe());
    out.format = mlx_planes(p, out.scales->dtype);
    out.biases = file_->find(path + ".biases");
    if (affine) {
        if (!out.biases) fail("{}: {} is affine, but there is no tensor {}.biases", file_->path, weight.describe(), path);
        if (out.biases->shape != out.scales->shape || out.biases->dtype != out.scales->dtype)
            fail("{}: {} and {} should have one shape and type", file_->path, out.biases->describe(), out.scales->describe());
        return out;
    }
    if (out.biases) fail("{}: {} is {}, which has no biases, but there is {}", file_->path, weight.describe(), describe(p), out.biases->describe());
    out.global_scale = file_->find(path + ".global_scale");
    if (out.global_scale) {
        const std::int64_t count = out.global_scale->elements();
        if (p.mode != MlxMode::nvfp4) fail("{}: {} is {}, which has no global scale, but there is {}", file_->path, weight.describe(), describe(p), out.global_scale->describe());
        if (count != 1 && !(weight.shape.size() == 3 && count == weight.shape[0]))
            fail("{}: {} should be one number, or one for each of the matrices of {}", file_->path, out.global_scale->describe(), weight.describe());
    }
    return out;
}

}  // namespace forge
