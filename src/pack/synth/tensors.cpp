#include "tensors.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "chunks.h"

namespace forge::synth {
namespace {

TensorPlan matrix(std::string hf, std::string gguf, std::int64_t rows, std::int64_t cols,
                  Use use = Use::other) {
    TensorPlan plan;
    plan.hf = std::move(hf);
    plan.gguf = std::move(gguf);
    plan.use = use;
    plan.rows = rows;
    plan.cols = cols;
    return plan;
}

TensorPlan norm(std::string hf, std::string gguf, std::int64_t cols, bool one_plus) {
    TensorPlan plan = matrix(std::move(hf), std::move(gguf), 1, cols);
    plan.kind = Kind::norm;
    plan.one_plus = one_plus;
    return plan;
}

void append_layer(const Shape& s, int layer, std::vector<TensorPlan>& out) {
    const std::size_t first = out.size();
    const bool gemma = s.family == Family::gemma3;
    const auto hf = [&](std::string_view name) {
        return fmt::format("model.layers.{}.{}.weight", layer, name);
    };
    const auto gguf = [&](std::string_view name) { return fmt::format("blk.{}.{}.weight", layer, name); };
    const std::int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
    out.push_back(norm(hf("input_layernorm"), gguf("attn_norm"), s.hidden, gemma));
    out.push_back(matrix(hf("self_attn.q_proj"), gguf("attn_q"), q, s.hidden));
    out.push_back(matrix(hf("self_attn.k_proj"), gguf("attn_k"), kv, s.hidden));
    if (s.family == Family::llama) {
        out[out.size() - 2].interleaved_heads = s.heads;
        out[out.size() - 1].interleaved_heads = s.kv_heads;
    }
    out.push_back(matrix(hf("self_attn.v_proj"), gguf("attn_v"), kv, s.hidden, Use::attn_v));
    if (s.family != Family::llama) {
        out.push_back(norm(hf("self_attn.q_norm"), gguf("attn_q_norm"), s.head_dim, gemma));
        out.push_back(norm(hf("self_attn.k_norm"), gguf("attn_k_norm"), s.head_dim, gemma));
    }
    out.push_back(matrix(hf("self_attn.o_proj"), gguf("attn_output"), s.hidden, q));
    if (gemma) {
        out.push_back(norm(hf("post_attention_layernorm"), gguf("post_attention_norm"), s.hidden, true));
        out.push_back(norm(hf("pre_feedforward_layernorm"), gguf("ffn_norm"), s.hidden, true));
    } else {
        out.push_back(norm(hf("post_attention_layernorm"), gguf("ffn_norm"), s.hidden, false));
    }
    out.push_back(matrix(hf("mlp.gate_proj"), gguf("ffn_gate"), s.feed_forward, s.hidden));
    out.push_back(matrix(hf("mlp.up_proj"), gguf("ffn_up"), s.feed_forward, s.hidden));
    out.push_back(matrix(hf("mlp.down_proj"), gguf("ffn_down"), s.hidden, s.feed_forward, Use::ffn_down));
    if (gemma) out.push_back(norm(hf("post_feedforward_layernorm"), gguf("post_ffw_norm"), s.hidden, true));
    for (std::size_t i = first; i < out.size(); ++i) out[i].layer = layer;
}

}  // namespace

std::vector<TensorPlan> tensors_of(const Shape& s) {
    std::vector<TensorPlan> out;
    out.push_back(
        matrix("model.embed_tokens.weight", "token_embd.weight", s.vocab, s.hidden, Use::embedding));
    if (s.rope_factor > 0) {
        TensorPlan factors = matrix("", "rope_freqs.weight", 1, s.head_dim / 2);
        factors.kind = Kind::rope_factors;
        out.push_back(factors);
    }
    for (int layer = 0; layer < s.layers; ++layer) append_layer(s, layer, out);
    out.push_back(norm("model.norm.weight", "output_norm.weight", s.hidden, s.family == Family::gemma3));
    if (!s.tied) out.push_back(matrix("lm_head.weight", "output.weight", s.vocab, s.hidden, Use::head));
    return out;
}

float norm_value(std::uint64_t key, std::int64_t i) {
    const auto k = static_cast<int>(mix(key, static_cast<std::uint64_t>(i)) % 17) - 8;
    return 1.0f + static_cast<float>(k) / 64.0f;
}

// Frequencies of long waves are divided by the factor, those of short waves
// stay, those between are blended (spec of rope type "llama3").
std::vector<float> rope_factors(const Shape& s) {
    constexpr double low = 1, high = 4, original_context = 8192;
    std::vector<float> factors(static_cast<std::size_t>(s.head_dim / 2));
    for (std::size_t i = 0; i < factors.size(); ++i) {
        const double frequency = std::pow(s.rope_theta, -2.0 * static_cast<double>(i) / s.head_dim);
        const double wave = 2 * std::numbers::pi / frequency;
        double factor = 1;
        if (wave > original_context / low) {
            factor = s.rope_factor;
        } else if (wave > original_context / high) {
            const double smooth = (original_context / wave - low) / (high - low);
            factor = 1 / ((1 - smooth) / s.rope_factor + smooth);
        }
        factors[i] = static_cast<float>(factor);
    }
    return factors;
}

std::uint64_t tensor_key(std::uint64_t seed, const TensorPlan& tensor) {
    std::uint64_t key = mix(seed, 0x7e45);
    for (unsigned char c : tensor.gguf) key = mix(key, c);
    return key;
}

}  // namespace forge::synth
