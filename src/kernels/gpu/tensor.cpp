// Kernels of text/tensor.h, text/flash.h and text/group_flash.h.
#include <algorithm>

#include "gpu/builder.h"

namespace forge::gpu {
namespace {

// Weights of T lie as the kernel reads them; others go through registers.
bool copied(const Common& c, const Weight& w) {
    return w.format.is_dense() && w.format.dense_type == c.type && w.cols % 8 == 0 && w.codes.stride % 16 == 0;
}

int columns_of(const MatvecShape& s) { return static_cast<int>(s.w->rows) * (s.epilogue == Epilogue::act_mul ? 2 : 1); }

// Tiles that a threadgroup's share of an SM allows at a time.
int residents(const TensorTile& t) { return std::clamp(220 * 1024 / ((t.rows + t.columns) * 128 * t.stages + 1024), 1, t.rows * t.columns > 128 * 128 ? 1 : 2); }

}  // namespace

bool tensor_fits(const Common& c, const MatvecShape& s) {
    if ((c.limits.tensor != Tensor::mma_sync && c.limits.tensor != Tensor::wgmma) || c.type == DType::f32 || s.w->cols % 8 != 0) return false;
    // bf16 and f32 have a range that f16 has not.
    const WeightFormat& f = s.w->format;
    return c.type == DType::bf16 || !f.is_dense() || f.dense_type == DType::f16;
}

std::vector<TensorTile> tensor_tiles(const Common& c, const MatvecShape& s) {
    // Dense weights that are decoded take too many registers beside the sums of a wide tile.
    const bool narrow = s.w->format.is_dense() && !copied(c, *s.w);
    if (c.limits.tensor == Tensor::wgmma) {
        std::vector<TensorTile> tiles{{64, 64, 4}, {64, 128, 4}, {128, 128, 4}};
        if (!narrow) tiles.push_back({128, 256, 4});
        return tiles;
    }
    return {{64, 64, 3}, {64, 128, 3}, {128, 128, 3}};
}

TensorTile choose_tensor_tile(const Common& c, const MatvecShape& s, int rows) {
    TensorTile best{};
    double least = 0;
    for (const TensorTile& t : tensor_tiles(c, s)) {
        const int groups = divide_up(rows, t.rows) * divide_up(columns_of(s), t.columns), slots = c.limits.cores * residents(t);
        // Work of a wave; small tiles load more for a product.
        const double work = static_cast<double>(t.rows) * t.columns * residents(t) * (1.0 + 24.0 * (1.0 / t.rows + 1.0 / t.columns));
        const double cost = divide_up(groups, slots) * work;
        if (best.rows == 0 || cost <= least) {
            best = t;
            least = cost;
        }
    }
    return best;
}

Kernel gemm_tensor(const Common& c, const MatvecShape& s, const TensorTile& tile) {
    EntryBuilder b("gemm");
    const ProductNames p = product_parameters(b, c, s);
    const std::string memory = b.array("memory", "uint4", (tile.rows + tile.columns) * 8 * tile.stages + 64);
    b.statement(fmt::format("fk::gemm_tensor<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>({}, w1, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type),
                            format_type(*s.w, false), s.w->cols, s.w->rows, tile.rows, tile.columns, tile.stages, c.limits.tensor == Tensor::wgmma ? 1 : 0,
                            static_cast<int>(s.epilogue), static_cast<int>(s.act), s.bias ? 1 : 0, s.f32_out ? 1 : 0, s.output_rows ? 1 : 0, p.step,
                            s.w2 ? "w2" : "w1", p.x, p.bias, p.bias2, p.residual, p.y, p.y32, literal(s.w->global_scale), literal(s.w2 ? s.w2->global_scale : 1.0f),
                            literal(s.softcap), memory));
    return b.finish(2 * tile.rows, {divide_up(columns_of(s), tile.columns), tile.rows, 0, 0, s.output_rows});
}

bool flash_fits(const Common& c, const AttentionShape& s) {
    return (c.limits.tensor == Tensor::mma_sync || c.limits.tensor == Tensor::wgmma) && c.type != DType::f32 && s.head_dim % 16 == 0 && s.head_dim <= 256;
}

Kernel attention_flash(const Common& c, const AttentionShape& s) {
    EntryBuilder b("attention_prefill");
    const char* t = storage(c.type);
    const bool groups = c.limits.tensor == Tensor::wgmma && (s.head_dim == 64 || s.head_dim == 128 || s.head_dim == 256);
    // Tiles of keys and values beside those of queries: what a multiprocessor has room for.
    const int rows = groups ? 128 : 64, stages = s.head_dim == 256 ? 5 : 8, tile = 64 * s.head_dim / 8;
    const std::string step = b.read("step", "int"), q = b.read("q", t), keys = b.read("keys", t), values = b.read("values", t), y = b.write("y", t);
    const std::string memory = b.array("memory", "uint4", groups ? (2 + stages) * tile + stages + 64 : 3 * 64 * (s.head_dim / 8 + 1));
    b.statement(fmt::format("fk::{}<{}, {}, {}, {}, {}, {}, {}{}>({}, {}, {}, {}, {}, {}, {}, {}, {}, id);", groups ? "attention_groups" : "attention_flash", type_name(c.type), s.n_heads, s.n_kv_heads,
                            s.head_dim, s.window, s.capacity, c.max_rows, groups ? fmt::format(", {}", stages) : "", step, q, keys, values, y, literal(s.scale), literal(s.softcap), memory,
                            b.array("breaks", "int", rows)));
    Kernel k = b.finish(groups ? 384 : 128, {s.n_heads, rows});
    if (groups) k.residents = 1;
    name_kernel(k);
    return k;
}

}  // namespace forge::gpu
