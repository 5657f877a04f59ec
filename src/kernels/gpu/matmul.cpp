#include <algorithm>

#include "gpu/builder.h"

namespace forge::gpu {
namespace {

int unit_elements(const Weight& w) { return w.format.is_dense() ? 8 : 32; }

// x of all rows in threadgroup memory: whole 32s of units.
int staged_bytes(const Common& c, const MatvecShape& s) {
    const int units = divide_up(s.w->cols, unit_elements(*s.w)), slots = (units + 31) / 32 * 32;
    return s.x_rows * slots * unit_elements(*s.w) * static_cast<int>(size_of(c.type));
}

// Tiles that a large GPU reads memory fastest with, one row, by measurement on an H200 of a text of the same form.
// Dense rows want bytes in flight, codes (which are bound by instructions) work of x shared by many matrix rows.
void widen(const MatvecShape& s, MatvecTile& t) {
    const long n = s.w->rows, k = s.w->cols;
    const bool act = s.epilogue == Epilogue::act_mul, dense = s.w->format.is_dense(), bytes = !dense && s.w->format.bits > 4;
    const bool head = s.f32_out && n > 32768;
    t.residents = 0;
    if (dense) {
        t.strip = act || k <= 1024 ? 2 : 1;
        t.units = act && k < 2048 ? 2 : act || k <= 1024 ? 4 : 8;
        t.ahead = act && k < 2048;
    } else if (bytes) {
        t.strip = act ? 4 : 2;
        t.units = 1;
        t.ahead = !act;
    } else {
        t.strip = act ? 4 : 2;
        t.units = k < 2048 ? 1 : 2;
        t.ahead = !act || k >= 2048;
    }
    if (t.split > 1) {
        t.strip = dense || bytes || n <= 2048 ? 2 : 4;
        t.units = dense ? (k < 8192 ? 3 : 4) : 1;
        t.ahead = false;
    }
    if (head) {
        t.strip = dense || bytes ? 2 : 8;
        t.units = dense ? 4 : 1;
        t.ahead = true;
        t.residents = bytes ? 3 : 2;
    }
}

// Matrices of 4-bit integer codes that are large enough for the tensor cores to win, on an H200: elsewhere too few
// simdgroups would have work. This depends on the matrix alone, as the order of sums does.
bool codes_on_tensor_cores(const Common& c, const Weight& w) {
    const WeightFormat& f = w.format;
    return c.limits.wide && c.limits.fast_codes && (c.limits.tensor == Tensor::mma_sync || c.limits.tensor == Tensor::wgmma) && c.type != DType::f32 && !f.is_dense() &&
           f.map == CodeMap::integer && f.packing == Packing::stream && f.bits == 4 && f.group % 32 == 0 && w.cols % 32 == 0 && w.rows * w.cols >= c.limits.tensor_codes;
}
// split and units decide the order of sums, and may depend on the matrix alone.
void choose_codes(const MatvecShape& s, MatvecTile& t) {
    const long n = s.w->rows, k = s.w->cols;
    const bool act = s.epilogue == Epilogue::act_mul, one = s.x_rows == 1;
    t.tensor = true;
    t.strip = act ? 2 : 1;
    if (n > 32768) {
        t.split = 1;
        t.units = 4;
        t.residents = one && !act ? 2 : 0;
    } else if (n >= 8192) {
        t.split = k < 4096 ? 4 : 2;
        t.units = 2;
        t.strip = one ? 2 : t.strip;
        t.ahead = one;
    } else if (k < 4096) {
        t.split = k < 2048 ? 2 : 4;
        t.units = 4;
    } else {
        t.split = k > 4096 || (n > 1024 && n < 4096) ? 8 : 4;   // with fewer of 4096, too few threadgroups
        t.units = k > 4096 && k <= 8192 ? 4 : 2;
        t.ahead = one && t.units == 2;
    }
}

// A threadgroup for every core, each with as many strips, where that keeps nearly every core at work: where some cores have
// two threadgroups and others one, the launch takes as long as with two everywhere, and x is prepared twice. Products of one
// row; the order of sums stays as it is. (Products that are joined round up one by one, to a threadgroup or two more.)
// By measurement on an H200 not for dense rows, nor for rows that simdgroups share, except long rows of codes on tensor
// cores; a norm or gates want 256 threads at least; 768 gained nothing.
void share_evenly(const Common& c, const MatvecShape& s, MatvecTile& t) {
    constexpr int kMost = 512;
    const int fewest = s.norm || s.gated_head > 0 ? 256 : 128, cores = c.limits.cores;
    const bool shared_rows = t.tensor ? s.w->cols < 4096 : t.split > 1;
    if (!c.limits.wide || !c.limits.even || s.x_rows != 1 || s.beside < 0 || t.residents > 0 || s.w->format.is_dense() || shared_rows) return;
    const int rows = (t.tensor ? 16 : 1) * t.strip / (s.epilogue == Epilogue::act_mul ? 2 : 1), strips = divide_up(s.w->rows + s.beside, rows);
    const int each = divide_up(strips, cores), threads = each * t.split * 32;
    if (threads < fewest || threads > kMost || (threads < 256 && 256 % threads != 0)) return;   // the latter: NormShare's
    if (divide_up(strips, each) < cores - cores / 8) return;
    if (!t.tensor && t.strip * t.units > 4 && threads > 256) return;   // so many sums want more registers than are left
    t.threads = threads;
}

MatvecTile choose(const Common& c, const MatvecShape& s) {
    MatvecTile t;
    const int units = divide_up(s.w->cols, unit_elements(*s.w));
    t.threads = kNormThreads;
    t.strip = s.epilogue == Epilogue::act_mul ? 4 : 2;
    // Dense rows want more loads in flight than quantised ones, whose units are larger.
    t.units = s.w->format.is_dense() ? (units >= 256 ? 4 : units >= 128 ? 2 : 1) : units >= 128 ? 2 : 1;
    // Long rows of one vector, by measurement on an 8B shape: codes are bound by instructions, and what a lane does for x
    // serves all matrix rows of its strip; dense rows by loads in flight.
    if (s.x_rows == 1 && units >= 128 && !s.w->format.is_dense() && (s.epilogue == Epilogue::act_mul || s.w->rows >= 8192)) {
        t.strip = 8;
        t.units = 1;
    }
    if (s.x_rows == 1 && units >= 256 && s.w->format.is_dense() && s.epilogue == Epilogue::act_mul) t.strip = 2;
    // Short matrices of long rows have too few strips for so large a GPU. The order of a sum depends on this, so it may
    // depend on the matrix alone: not on the rows of x, nor on what is fused.
    // Large matrices of long rows (an 8B shape's) lose by it: 380 instead of 396 tokens/s in Q4_0, 245 instead of 247 in BF16.
    const bool large = s.w->cols >= 4096 && (s.w->rows >= 4096 || s.w->cols < 8192);
    const bool wide = c.limits.wide && !large && s.w->cols % unit_elements(*s.w) == 0;
    if (wide && s.w->cols >= 2048 && s.w->cols >= 3 * s.w->rows) t.split = 4;
    if (wide && s.x_rows == 1) widen(s, t);
    if (c.limits.wide && large && s.w->format.is_dense()) {
        if (s.w->cols >= 8192) {
            t.split = 2;
        } else if (s.x_rows == 1 && s.epilogue == Epilogue::add) {
            t.strip = 1;
            t.units = 8;
        }
    }
    // With eight rows a strip, sums take a core's registers; with four, two threadgroups fit one.
    if (c.limits.wide && large && s.x_rows == 1 && s.f32_out && s.w->rows > 32768 && !s.w->format.is_dense() && s.w->format.bits > 4) {
        t.strip = 4;
        t.units = 1;
        t.ahead = true;
        t.residents = 2;
    }
    if (s.x_rows > 2) t.units = 1;
    if (s.x_rows > 4) t.strip = 2;
    if (s.x_rows > 1 && t.split > 1) t.strip = std::min(t.strip, s.epilogue == Epilogue::act_mul ? 4 : 2);
    if (codes_on_tensor_cores(c, *s.w)) choose_codes(s, t = MatvecTile{0, 0, kNormThreads});
    share_evenly(c, s, t);
    t.x_bytes = staged_bytes(c, s);
    t.staged = s.norm || s.gated_head > 0 || t.x_bytes <= (wide || t.tensor ? 28 : 16) * 1024;
    return t;
}

bool fast_codes(const Common& c) { return c.limits.fast_codes && c.type != DType::f32; }

}  // namespace

// Kernels that are split need a little more (8 simdgroups, 8 rows of x, strips of 2).
bool norm_fits(const Common& c, const MatvecShape& s) { return staged_bytes(c, s) + 1024 <= std::min(c.limits.threadgroup_bytes, 24 * 1024); }

std::vector<MatvecTile> matvec_tiles(const Common& c, const MatvecShape& s, bool alone) {
    const MatvecTile standard = choose(c, s);
    std::vector<MatvecTile> tiles{standard};
    if (standard.tensor) return tiles;   // all but the loads ahead of it decides the order of sums
    const int units = divide_up(s.w->cols, unit_elements(*s.w)), two = s.epilogue == Epilogue::act_mul ? 2 : 1;
    const auto groups = [&](const MatvecTile& t) { return divide_up(units, 32L * t.units * t.split); };   // of units of a row
    const auto offer = [&](auto change) {
        MatvecTile t = standard;
        change(t);
        // Sums and loads in flight are registers; units past the row's end would be idle lanes.
        if (t.strip < two || t.strip % two != 0 || t.strip > 8 || t.units < 1 || t.units > 4 || t.strip * s.x_rows > 16 || t.strip * t.units > 16) return;
        if (t.units > 1 && 32 * t.units * t.split > units + 31) return;
        if (t.threads / 32 < t.split || (t.ahead && t.residents == 0 && groups(t) == 1)) return;
        if (std::find(tiles.begin(), tiles.end(), t) == tiles.end()) tiles.push_back(t);
    };
    // Neighbours of the default: compiling takes longer than running, so not every product of literals.
    offer([](MatvecTile& t) { t.strip *= 2; });
    offer([](MatvecTile& t) { t.strip /= 2; });
    offer([](MatvecTile& t) { t.units *= 2; });
    offer([](MatvecTile& t) { t.units /= 2; });
    offer([](MatvecTile& t) { t.strip *= 2, t.units /= 2; });
    offer([](MatvecTile& t) { t.strip /= 2, t.units *= 2; });
    offer([](MatvecTile& t) { t.ahead = !t.ahead; });
    // What others can run beside has their threads and grid; fewer than 256 are slow to prepare a norm.
    if (alone && standard.residents > 0) offer([](MatvecTile& t) { t.residents = 0; });
    if (alone) offer([](MatvecTile& t) { t.threads = kNormThreads; });
    if (alone && !s.norm) {
        offer([](MatvecTile& t) { t.threads = 128; });
        offer([](MatvecTile& t) { t.threads = 64; });
    }
    return tiles;
}

std::string name_of(const MatvecTile& t) {
    return fmt::format("strip {}, {} in flight{}, {} threads{}", t.strip, t.units, t.ahead ? " ahead" : "", t.threads, t.residents > 0 ? fmt::format(", {} groups a core", t.residents) : "");
}

Kernel matvec(const Common& c, const MatvecShape& s) { return matvec(c, s, choose(c, s)); }

Kernel matvec(const Common& c, const MatvecShape& s, const MatvecTile& tile) {
    EntryBuilder b("matvec");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), x = b.read("x", t);
    b.planes("w1", "weight", *s.w);
    if (s.w2) b.planes("w2", "weight2", *s.w2);
    const std::string norm = b.vector(s.norm || s.gated_head > 0, "norm_weight"), bias = b.vector(s.bias, "bias"),
                      bias2 = b.vector(s.bias && s.w2, "bias2"), conv_weight = b.vector(s.conv, "conv_weight");
    const std::string z = s.gated_head > 0 ? b.read("z", t) : x, residual = s.epilogue == Epilogue::add ? b.read("residual", t) : x;
    const std::string state = s.conv ? b.write("conv_state", t) : EntryBuilder::absent_output(t);
    const std::string y = s.f32_out ? b.absent_output(t) : b.write("y", t), y32 = s.f32_out ? b.write("y", "float") : b.absent_output("float");
    const int tile_rows = tile.tensor ? 16 * tile.strip : tile.strip, per_strip = s.epilogue == Epilogue::act_mul ? tile_rows / 2 : tile_rows, groups = divide_up(divide_up(s.w->rows, per_strip), tile.threads / 32 / tile.split);
    const int grid = tile.residents > 0 ? std::min(groups, tile.residents * c.limits.cores) : groups;
    const std::string xs = b.array("xs", "uint4", tile.staged ? tile.x_bytes / 16 : 1),
                      red = b.array("red", "float", std::max(32, tile.split > 1 || tile.tensor ? tile.threads / 32 * s.x_rows * tile_rows : 0));
    std::string arrays = xs + ", " + red;
    if (tile.tensor) arrays += ", " + b.array("sums", "float", s.w->format.offset != OffsetKind::none ? s.x_rows * divide_up(divide_up(s.w->cols, 32), 32) * 32 : 1);
    const int kind = s.gated_head > 0 ? 4 : s.norm ? static_cast<int>(s.formula) : 3, epilogue = s.conv ? 3 : static_cast<int>(s.epilogue);
    b.statement(fmt::format("fk::MatvecInputs<{}> in = {{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}};", type_name(c.type), step, x, norm, z, bias, bias2, residual, conv_weight, state, y,
                            y32, literal(s.eps), literal(s.w->global_scale), literal(s.w2 ? s.w2->global_scale : 1.0f), literal(s.softcap)));
    b.statement(fmt::format("fk::{}<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>(in, w1, {}, {}, id);", tile.tensor ? "tensor_rows" : "matvec", type_name(c.type), format_type(*s.w, fast_codes(c)),
                            s.w->cols, s.w->rows, s.x_rows, tile.strip, tile.units, tile.split, tile.ahead ? 1 : 0, tile.staged ? 1 : 0, kind, std::max(1, s.gated_head), epilogue,
                            static_cast<int>(s.act), s.conv_kernel, c.max_rows, s.bias ? 1 : 0, s.f32_out ? 1 : 0, s.output_rows ? 1 : 0, grid == groups ? 1 : 0, tile.threads, s.w2 ? "w2" : "w1",
                            arrays));
    Kernel kernel = b.finish(tile.threads, {grid, 0, 0, 0, s.output_rows});
    if (tile.residents > 0) {
        kernel.residents = tile.residents;
        name_kernel(kernel);
    }
    return kernel;
}

Kernel gemm(const Common& c, const MatvecShape& s) {
    EntryBuilder b("gemm");
    const ProductNames p = product_parameters(b, c, s);
    const std::string xs = b.array("xs", "float", 32 * 33), ws = b.array("ws", "float", 64 * 33),
                      ws2 = b.array("ws2", "float", s.w2 ? 64 * 33 : 1);
    b.statement(fmt::format("fk::gemm<{}, {}, {}, {}, {}, {}, {}, {}, {}>({}, w1, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type),
                            format_type(*s.w, false), s.w->cols, s.w->rows, static_cast<int>(s.epilogue), static_cast<int>(s.act), s.bias ? 1 : 0,
                            s.f32_out ? 1 : 0, s.output_rows ? 1 : 0, p.step, s.w2 ? "w2" : "w1", p.x, p.bias, p.bias2, p.residual, p.y, p.y32, literal(s.w->global_scale),
                            literal(s.w2 ? s.w2->global_scale : 1.0f), literal(s.softcap), xs, ws, ws2));
    return b.finish(128, {divide_up(s.w->rows, 64), 32, 0, 0, s.output_rows});
}

}  // namespace forge::gpu
