#include <algorithm>
#include <cmath>

#include "foreign/mlx.h"

namespace metal_emu::foreign {
namespace {

using half = _Float16;
std::uint32_t u32(long v) { return static_cast<std::uint32_t>(v); }
std::size_t size(long v) { return static_cast<std::size_t>(v); }

struct Shape {
    long heads, kv_heads, queries, context;
    bool causal = false, masked = false;
};
struct Heads {
    Shape shape;
    std::vector<half> q, k, v, mask, out;   // [heads][positions][dim]; mask [queries][context]
    std::vector<double> wanted;
};
constexpr long kDim = 64;
constexpr float kScale = 0.3f;

Heads heads(Harness& h, const Shape& s) {
    Heads x{s, h.random<half>(size(s.heads * s.queries * kDim)), h.random<half>(size(s.kv_heads * s.context * kDim)), h.random<half>(size(s.kv_heads * s.context * kDim)),
            h.random<half>(size(s.queries * s.context)), std::vector<half>(size(s.heads * s.queries * kDim)), {}};
    std::vector<double> p(size(s.context));
    for (long head = 0; head < s.heads; head++)
        for (long r = 0; r < s.queries; r++) {
            const long kv = head / (s.heads / s.kv_heads), seen = s.causal ? r + s.context - s.queries + 1 : s.context;
            double most = -1e300, sum = 0;
            for (long t = 0; t < seen; t++) {
                double dot = 0;
                for (long e = 0; e < kDim; e++)
                    dot += static_cast<double>(x.q[size((head * s.queries + r) * kDim + e)]) * static_cast<double>(x.k[size((kv * s.context + t) * kDim + e)]);
                p[size(t)] = dot * static_cast<double>(kScale) + (s.masked ? static_cast<double>(x.mask[size(r * s.context + t)]) : 0.0);
                most = std::max(most, p[size(t)]);
            }
            for (long t = 0; t < seen; t++) sum += p[size(t)] = std::exp(p[size(t)] - most);
            for (long e = 0; e < kDim; e++) {
                double v = 0;
                for (long t = 0; t < seen; t++) v += p[size(t)] * static_cast<double>(x.v[size((kv * s.context + t) * kDim + e)]);
                x.wanted.push_back(v / sum);
            }
        }
    return x;
}
double error_of(const Heads& x) {
    const std::vector<float> found(x.out.begin(), x.out.end());
    return largest_error(found.data(), x.wanted, 0.1);
}

void one_query(Harness& h) {
    Heads x = heads(h, {4, 2, 1, 150});
    const int factor = 2, context = 150;
    const std::size_t head_stride = 150 * kDim, row_stride = kDim;
    Constants none;
    for (int i = 20; i < 27; i++) none.push_back({i, "", "", "0"});
    h.run({"MLX sdpa_vector f16",
           {{"mlx_vector.metal", "sdpa", none,
             {in(x.q), in(x.k), in(x.v), out(x.out), value(factor), value(context), value(head_stride), value(row_stride), value(head_stride), value(row_stride), value(kScale)},
             {4, 1, 1}, {1024, 1, 1}}},
           2e-3, [&] { return error_of(x); }});
}

// MLX's argument structures of attention.
struct AttentionParams {
    int batch, heads, dim, queries, context, factor;
    float scale;
    int query_blocks, key_blocks, whole_query_blocks, whole_key_blocks, queries_left, keys_left, query_offset;
    std::int64_t q[3], k[3], v[3], o[3];
};
struct MaskParams {
    std::int64_t strides[3];
};

void steel(Harness& h, const std::string& name, const std::string& file, const std::string& kernel, const Shape& s, long block_q, long block_k, Profile profile) {
    Heads x = heads(h, s);
    const auto i = [](long v) { return static_cast<int>(v); };
    const std::int64_t q = s.queries * kDim, k = s.context * kDim;
    const AttentionParams params{1, i(s.heads), i(kDim), i(s.queries), i(s.context), i(s.heads / s.kv_heads), kScale, i((s.queries + block_q - 1) / block_q),
                                 i((s.context + block_k - 1) / block_k), i(s.queries / block_q), i(s.context / block_k), i(s.queries % block_q), i(s.context % block_k),
                                 i(s.context - s.queries), {q * s.heads, q, kDim}, {k * s.kv_heads, k, kDim}, {k * s.kv_heads, k, kDim}, {q * s.heads, q, kDim}};
    const MaskParams mask{{0, 0, s.context}};
    const auto word = [](bool b) { return b ? "true" : "false"; };
    const Constants how{{200, "", "", word(s.queries % block_q == 0)}, {201, "", "", word(s.context % block_k == 0)}, {300, "", "", word(s.masked)},
                        {301, "", "", word(s.causal)}, {302, "", "", "false"}, {303, "", "", "false"}};
    h.run({name, {{file, kernel, how, {in(x.q), in(x.k), in(x.v), out(x.out), value(params), value(mask), in(x.mask)}, {u32(params.query_blocks), u32(s.heads), 1}, {32, 4, 1}}}, 4e-3,
           [&] { return error_of(x); }, profile});
}

constexpr Shape kWhole{2, 2, 64, 96}, kRagged{2, 2, 45, 77}, kCausal{4, 2, 50, 90, true}, kMasked{2, 1, 40, 70, false, true};

void all_shapes(Harness& h, const std::string& name, const std::string& file, const std::string& kernel, long block_q, long block_k, Profile profile) {
    steel(h, name, file, kernel, kWhole, block_q, block_k, profile);
    steel(h, name + " ragged", file, kernel, kRagged, block_q, block_k, profile);
    steel(h, name + " causal, shared heads", file, kernel, kCausal, block_q, block_k, profile);
    steel(h, name + " mask", file, kernel, kMasked, block_q, block_k, profile);
}

}  // namespace

void mlx_attention(Harness& h) {
    h.add_text("mlx_vector.metal", mlx_includes({"utils.h", "sdpa_vector.h"}) + "instantiate_kernel(\"sdpa\", sdpa_vector, half, 64, 64)\n");
    one_query(h);
    h.add_text("mlx_attention.metal", mlx_includes({"utils.h", "steel/attn/kernels/steel_attention.h"}) +
                                          "instantiate_kernel(\"attend\", attention, half, 32, 32, 64, 64, 4, 1, half, float)\n");
    all_shapes(h, "MLX steel attention", "mlx_attention.metal", "attend", 32, 32, Profile::m1);
}

void mlx_tensor_attention(Harness& h) {
    h.add_text("mlx_attention_nax.metal", mlx_includes({"utils.h", "steel/attn/kernels/steel_attention_nax.h"}) +
                                              "instantiate_kernel(\"attend_nax\", attention_nax, half, 64, 32, 64, 64, 4, 1, half, float)\n");
    all_shapes(h, "MLX attention, matmul2d", "mlx_attention_nax.metal", "attend_nax", 64, 32, Profile::m5);
}

}  // namespace metal_emu::foreign
