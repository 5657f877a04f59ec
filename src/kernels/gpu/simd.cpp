// Kernels of text/simd_gemm.h and text/simd_flash.h. (Experts are in experts.cpp.)
#include "gpu/simd.h"

#include <algorithm>

namespace forge::gpu {
namespace {

// Weights that f16 has no room for: elements of bf16 and f32, scales that are powers of two up to 2^127.
bool beyond_f16(const WeightFormat& f) { return f.is_dense() ? f.dense_type != DType::f16 : f.scale == ScaleKind::e8m0; }

int row_bytes(int elements, int element_bytes) { return elements * element_bytes + 16; }

int matmul2d_bytes(const SimdTile& t) { return std::max((t.rows + t.columns) * row_bytes(t.depth, 2), t.rows * (t.columns + 4) * 4); }

int flash_tile_bytes(const AttentionShape& s, const SimdFlashTile& t) {
    const int score_row = (std::max(t.keys, 32) + 4) * 4;
    return (t.shared ? 1 : 2) * t.keys * row_bytes(s.head_dim, 2) + t.simdgroups * t.rows * score_row;
}
int flash_bytes(const AttentionShape& s, const SimdFlashTile& t) { return flash_tile_bytes(s, t) + t.simdgroups * t.rows * 4; }

}  // namespace

int simd_tile_bytes(const SimdTile& tile) {
    const int across = tile.rows >= 32 ? 2 : 4;
    return std::max((tile.rows + tile.columns) * row_bytes(tile.depth, tile.wide ? 4 : 2), 4 * 8 * (tile.columns / across + 4) * 4);
}

const char* simd_units(const Common& c, const SimdTile& tile) { return tile.wide ? "fk::F32" : type_name(c.type); }

std::string simd_literals(const SimdTile& tile) { return fmt::format("{}, {}, {}, {}", tile.rows, tile.columns, tile.depth, tile.ahead ? 1 : 0); }

bool simd_fits(const Common& c, const MatvecShape&) { return c.limits.tensor == Tensor::simdgroup && c.type != DType::f32; }

std::vector<SimdTile> simd_tiles(const Common& c, const MatvecShape& s) {
    const WeightFormat& f = s.w->format;
    const bool wide = c.type == DType::f16 && beyond_f16(f);
    // A thread's share of a tile: one unit of 32 codes takes 64 columns of depth; f32 weights are too many to be held.
    const int depth = f.is_dense() ? 32 : 64;
    const bool ahead = !(f.is_dense() && f.dense_type == DType::f32);
    std::vector<SimdTile> tiles;
    for (const int rows : {64, 32, 16})
        for (const int columns : {64, 32})
            for (const int deep : {depth, 96 - depth})
                for (const bool early : {ahead, !ahead}) {
                    if (columns == 32 && s.epilogue == Epilogue::act_mul && rows < 32) continue;   // a simdgroup has eight columns
                    const SimdTile t{rows, columns, deep, wide, early};
                    if (simd_tile_bytes(t) <= c.limits.threadgroup_bytes) tiles.push_back(t);
                }
    return tiles;
}

SimdTile choose_simd_tile(const Common& c, const MatvecShape& s, int rows) {
    const std::vector<SimdTile> tiles = simd_tiles(c, s);
    const int wanted = rows > 32 ? 64 : rows > 16 ? 32 : 16;
    for (const SimdTile& t : tiles)
        if (t.rows <= wanted) return t;
    return tiles.back();
}

Kernel gemm_simd(const Common& c, const MatvecShape& s, const SimdTile& tile) {
    EntryBuilder b("gemm");
    const ProductNames p = product_parameters(b, c, s);
    const std::string memory = b.array("memory", "uint4", simd_tile_bytes(tile) / 16);
    b.statement(fmt::format("fk::gemm_simd<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>({}, w1, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type),
                            simd_units(c, tile), format_type(*s.w, false), s.w->cols, s.w->rows, simd_literals(tile), static_cast<int>(s.epilogue), static_cast<int>(s.act),
                            s.bias ? 1 : 0, s.f32_out ? 1 : 0, s.output_rows ? 1 : 0, p.step, s.w2 ? "w2" : "w1", p.x, p.bias, p.bias2, p.residual, p.y, p.y32,
                            literal(s.w->global_scale), literal(s.w2 ? s.w2->global_scale : 1.0f), literal(s.softcap), memory));
    const int columns = s.epilogue == Epilogue::act_mul ? tile.columns / 2 : tile.columns;
    return b.finish(kSimdThreads, {divide_up(s.w->rows, columns), tile.rows, 0, 0, s.output_rows});
}

// Weights that f16 has no room for keep the 8x8 matrices, which multiply floats.
bool matmul2d_fits(const Common& c, const MatvecShape& s) {
    return c.limits.matmul2d && c.type != DType::f32 && !(c.type == DType::f16 && beyond_f16(s.w->format)) && !matmul2d_tiles(c, s).empty();
}

std::vector<SimdTile> matmul2d_tiles(const Common& c, const MatvecShape& s) {
    const WeightFormat& f = s.w->format;
    const int depth = f.is_dense() ? 32 : 64;
    std::vector<SimdTile> tiles;
    for (const int rows : {64, 32})
        for (const int columns : {64, 32})
            for (const int deep : {depth, 96 - depth}) {
                const SimdTile t{rows, columns, deep, false, true};
                if (matmul2d_bytes(t) <= c.limits.threadgroup_bytes) tiles.push_back(t);
            }
    return tiles;
}

Kernel gemm_matmul2d(const Common& c, const MatvecShape& s, const SimdTile& tile) {
    EntryBuilder b("gemm");
    const ProductNames p = product_parameters(b, c, s);
    const std::string memory = b.array("memory", "uint4", matmul2d_bytes(tile) / 16);
    b.statement(fmt::format("fk::gemm_matmul2d<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>({}, w1, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type),
                            simd_units(c, tile), format_type(*s.w, false), s.w->cols, s.w->rows, tile.rows, tile.columns, tile.depth, static_cast<int>(s.epilogue), static_cast<int>(s.act),
                            s.bias ? 1 : 0, s.f32_out ? 1 : 0, s.output_rows ? 1 : 0, p.step, s.w2 ? "w2" : "w1", p.x, p.bias, p.bias2, p.residual, p.y, p.y32,
                            literal(s.w->global_scale), literal(s.w2 ? s.w2->global_scale : 1.0f), literal(s.softcap), memory));
    const int columns = s.epilogue == Epilogue::act_mul ? tile.columns / 2 : tile.columns;
    Kernel kernel = b.finish(kSimdThreads, {divide_up(s.w->rows, columns), tile.rows, 0, 0, s.output_rows});
    kernel.matmul2d = true;
    return kernel;
}

bool simd_flash_fits(const Common& c, const AttentionShape& s) {
    return c.limits.tensor == Tensor::simdgroup && c.type != DType::f32 && s.head_dim % 8 == 0 && s.head_dim <= 256;
}

// The first is the one that is used: long heads leave a simdgroup registers for eight rows, and memory for one tile.
std::vector<SimdFlashTile> simd_flash_tiles(const Common& c, const AttentionShape& s) {
    const bool apart_first = 2 * 32 * row_bytes(s.head_dim, 2) <= 10 * 1024;
    std::vector<SimdFlashTile> tiles;
    for (const int rows : {16, 8})
        for (const int simdgroups : {4, 8, 2})
            for (const int keys : {32, 16, 64})
                for (const bool shared : {!apart_first, apart_first}) {
                    if (rows == 16 && s.head_dim > 128) continue;
                    const SimdFlashTile t{simdgroups, rows, keys, shared};
                    if (flash_bytes(s, t) <= c.limits.threadgroup_bytes) tiles.push_back(t);
                }
    return tiles;
}

Kernel attention_simd(const Common& c, const AttentionShape& s, const SimdFlashTile& tile) {
    EntryBuilder b("attention_prefill");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), q = b.read("q", t), keys = b.read("keys", t), values = b.read("values", t), y = b.write("y", t);
    const int rows = tile.simdgroups * tile.rows;
    b.statement(fmt::format("fk::attention_simd<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type), s.n_heads, s.n_kv_heads,
                            s.head_dim, s.window, s.capacity, c.max_rows, tile.simdgroups, tile.rows / 8, tile.keys, tile.shared ? 1 : 0, step, q, keys, values, y,
                            literal(s.scale), literal(s.softcap), b.array("memory", "uint4", flash_tile_bytes(s, tile) / 16), b.array("breaks", "int", rows)));
    return b.finish(32 * tile.simdgroups, {s.n_heads, rows});
}

}  // namespace forge::gpu
