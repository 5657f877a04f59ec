// The model descriptor: what an architecture table and a file's config say,
// as plain data. After binding nothing asks for the architecture's name.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "quant/weight.h"

namespace forge {

// The norms of docs/numerics.md (r = rounding to the activation type):
enum class NormKind : std::uint8_t {
    two_rounding,   // N1: r(w * r(n))            Llama, Qwen2, Qwen3
    one_plus,       // N2: r(n * (1 + w))         Gemma 3, Qwen3.5 (as stored by Hugging Face)
    one_rounding,   // N3: r(n * w)               Gemma 4; also N2 when the file holds 1 + w
};

enum class Activation : std::uint8_t { silu, gelu_tanh };

struct NormSpec {
    NormKind kind = NormKind::two_rounding;
    float eps = 1e-6f;
};

// Rotary embedding, already resolved: angle_i = position * inv_freq[i], cos and
// sin multiplied by `scale`; dims i and i + inv_freq.size() form a pair
// (half-split; interleaved files are un-permuted when bound).
struct RopeSpec {
    std::vector<float> inv_freq;   // rotary_dim / 2 entries
    float scale = 1.0f;
    std::string description;       // "llama3 theta 500000 factor 8", for inspect
};

struct AttentionSpec {
    int n_heads = 0, n_kv_heads = 0, head_dim = 0;
    int rope = 0;                  // index into ModelSpec::ropes
    int window = 0;                // keys seen, itself included; 0 = all
    bool qk_norm = false;          // norm of ModelSpec::qk_norm over head_dim before rope
    float scale = 0;               // of q.k
    float softcap = 0;             // 0 = none
    int kv_layer = 0;              // layer whose cache is read (and written when it is this layer)
    bool gated = false;            // q rows are query then gate, head by head; output times r(sigmoid(gate))
    bool v_norm = false;           // values are normed over head_dim without a weight (one_rounding)
    bool v_from_k = false;         // no v tensor: values are the raw key projection
};

// Gated DeltaNet (docs/models.md has the recurrence).
struct DeltaSpec {
    int n_k_heads = 0, n_v_heads = 0, k_dim = 0, v_dim = 0, conv_kernel = 4;
    // Key head of value head h: h / (n_v_heads / n_k_heads), or h % n_k_heads when the file stores heads tiled.
    bool tiled_heads = false;
    bool a_is_negative_exp = false;  // the tensor holds -exp(A_log) already (GGUF)
    int conv_channels() const { return 2 * n_k_heads * k_dim + n_v_heads * v_dim; }
};

enum class MixerKind : std::uint8_t { attention, gated_delta };

enum class RouterKind : std::uint8_t {
    softmax,       // softmax over all experts, largest k
    gemma4,        // of norm(h) * scale * hidden^-0.5; renormalised, times a scale per expert, kept f32
};

// Mixture of experts. Expert e's matrices are the weights `expert_gate + e` and so on: consecutive ids.
struct MoeSpec {
    int experts = 0, per_token = 0, width = 0;   // experts 0: the layer is dense
    bool normalise = true;         // chosen weights divided by their sum
    bool round_weights = true;     // chosen weights rounded to the activation type; false: kept f32 (Mixtral, Gemma 4)
    RouterKind router = RouterKind::softmax;
    int shared_width = 0;          // shared expert, times r(sigmoid(shared_router x)); 0 = none
    bool beside_dense = false;     // Gemma 4: a dense MLP runs too, each with norms of its own
};

struct FeedForwardSpec {
    int width = 0;                 // dense MLP; 0 when there is none
    Activation activation = Activation::silu;
    MoeSpec moe = {};
};

// What a tensor is for. Names per format are in the architecture tables.
enum class Role : std::uint8_t {
    attn_norm, attn_q, attn_k, attn_v, attn_o,
    attn_q_bias, attn_k_bias, attn_v_bias, attn_o_bias,
    attn_q_norm, attn_k_norm, attn_post_norm,
    ffn_norm, ffn_gate, ffn_up, ffn_down,
    ffn_gate_bias, ffn_up_bias, ffn_down_bias, ffn_post_norm,
    // Gated DeltaNet
    delta_qkv, delta_z, delta_b, delta_a, delta_conv, delta_a_log, delta_dt_bias, delta_norm, delta_out,
    // mixture of experts
    router, router_scale, expert_gate, expert_up, expert_down, expert_scale,
    shared_router, shared_gate, shared_up, shared_down,
    moe_norm, ffn_post_norm_1, moe_post_norm,     // Gemma 4: experts' input norm, norms of both branches
    // Gemma 4: per-layer embeddings and the layer's scalar
    ple_gate, ple_proj, ple_post_norm, layer_scale,
    count_,
};
std::string_view name_of(Role role);

using WeightId = std::int32_t;     // index into BoundModel::weights; -1 = absent

struct LayerSpec {
    MixerKind mixer = MixerKind::attention;
    AttentionSpec attention;       // of attention layers
    DeltaSpec delta;               // of gated_delta layers
    FeedForwardSpec feed_forward;
    std::array<WeightId, static_cast<std::size_t>(Role::count_)> weights;
    LayerSpec() { weights.fill(-1); }
    WeightId operator[](Role role) const { return weights[static_cast<std::size_t>(role)]; }
};

struct ModelSpec {
    std::string architecture;      // for people; "llama", "qwen3", ...
    std::string name;              // general.name or the folder's name
    int hidden = 0;
    int vocab = 0;                 // rows of the head; ids >= the tokenizer's size are never sampled
    int context_length = 0;        // what the model was trained for
    NormSpec norm;                 // every norm but q/k
    NormSpec qk_norm;
    float embed_scale = 1.0f;      // Gemma: sqrt(hidden), unrounded; applied as r(e * r(scale))
    float final_softcap = 0;       // logits = c * tanh(logits / c); 0 = none
    std::vector<RopeSpec> ropes;
    std::vector<LayerSpec> layers;
    WeightId embed = -1, final_norm = -1, head = -1;  // head == embed when tied
    // Gemma 4 per-layer embeddings: table [vocab, layers * ple_width], projection and its norm.
    int ple_width = 0;
    WeightId ple_embed = -1, ple_proj = -1, ple_norm = -1;
    std::vector<std::int32_t> stop_ids;  // from generation_config / config / metadata
    std::uint64_t parameters = 0;
};

struct BoundModel {
    ModelSpec spec;
    std::vector<Weight> weights;
    std::uint64_t mapped = 0;      // bytes of the planes that stay in the file
    std::uint64_t bytes() const;   // of all planes
};

}  // namespace forge
