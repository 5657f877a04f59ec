#include "tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
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

using NameOf = std::function<std::string(std::string_view)>;

TensorPlan small(Kind kind, std::string hf, std::string gguf, std::int64_t rows, std::int64_t cols) {
    TensorPlan plan = matrix(std::move(hf), std::move(gguf), rows, cols);
    plan.kind = kind;
    return plan;
}

// Names of these end without ".weight" in one or both formats.
std::string bare(std::string name, std::string_view suffix = "") { return name.substr(0, name.size() - 7) + std::string(suffix); }

void append_delta(const Shape& s, const NameOf& hf, const NameOf& gguf, std::vector<TensorPlan>& out) {
    const DeltaShape& d = s.delta;
    const std::int64_t value = d.v_heads * d.v_dim;
    out.push_back(matrix(hf("linear_attn.in_proj_qkv"), gguf("attn_qkv"), s.conv_channels(), s.hidden));
    out.push_back(matrix(hf("linear_attn.in_proj_z"), gguf("attn_gate"), value, s.hidden));
    out.push_back(matrix(hf("linear_attn.in_proj_b"), gguf("ssm_beta"), d.v_heads, s.hidden));
    out.push_back(matrix(hf("linear_attn.in_proj_a"), gguf("ssm_alpha"), d.v_heads, s.hidden));
    out.push_back(small(Kind::conv, hf("linear_attn.conv1d"), gguf("ssm_conv1d"), s.conv_channels(), 4));
    out.push_back(small(Kind::decay, bare(hf("linear_attn.A_log")), bare(gguf("ssm_a")), 1, d.v_heads));
    out.push_back(small(Kind::decay_bias, bare(hf("linear_attn.dt_bias")), bare(gguf("ssm_dt"), ".bias"), 1, d.v_heads));
    out.push_back(norm(hf("linear_attn.norm"), gguf("ssm_norm"), d.v_dim, false));
    out.push_back(matrix(hf("linear_attn.out_proj"), gguf("ssm_out"), s.hidden, value));
}

void append_experts(const Shape& s, const NameOf& hf, const NameOf& gguf, std::vector<TensorPlan>& out) {
    const auto experts = [&](std::string_view part, std::string_view name, std::int64_t rows, std::int64_t cols, Use use) {
        out.push_back(matrix(hf("mlp.experts.{}." + std::string(part)), gguf(name), rows, cols, use));
        out.back().experts = s.moe.experts;
    };
    out.push_back(matrix(hf("mlp.gate"), gguf("ffn_gate_inp"), s.moe.experts, s.hidden));
    out.back().f32 = true;
    experts("gate_proj", "ffn_gate_exps", s.moe.width, s.hidden, Use::other);
    experts("up_proj", "ffn_up_exps", s.moe.width, s.hidden, Use::other);
    experts("down_proj", "ffn_down_exps", s.hidden, s.moe.width, Use::ffn_down);
    if (s.moe.shared_width == 0) return;
    out.push_back(matrix(hf("mlp.shared_expert_gate"), gguf("ffn_gate_inp_shexp"), 1, s.hidden));
    out.back().f32 = true;
    out.push_back(matrix(hf("mlp.shared_expert.gate_proj"), gguf("ffn_gate_shexp"), s.moe.shared_width, s.hidden));
    out.push_back(matrix(hf("mlp.shared_expert.up_proj"), gguf("ffn_up_shexp"), s.moe.shared_width, s.hidden));
    out.push_back(matrix(hf("mlp.shared_expert.down_proj"), gguf("ffn_down_shexp"), s.hidden, s.moe.shared_width, Use::ffn_down));
}

void append_per_layer_input(const Shape& s, const NameOf& hf, const NameOf& gguf, std::vector<TensorPlan>& out) {
    out.push_back(matrix(hf("per_layer_input_gate"), gguf("inp_gate"), s.gemma4.per_layer, s.hidden));
    out.push_back(matrix(hf("per_layer_projection"), gguf("proj"), s.hidden, s.gemma4.per_layer));
    out.push_back(norm(hf("post_per_layer_input_norm"), gguf("post_norm"), s.hidden, false));
    out.push_back(norm(bare(hf("layer_scalar")), gguf("layer_output_scale"), 1, false));
}

void append_layer(const Shape& s, int layer, std::vector<TensorPlan>& out) {
    const std::size_t first = out.size();
    const bool gemma4 = s.family == Family::gemma4, gemma = s.family == Family::gemma3 || gemma4, hybrid = s.delta.interval > 0;
    const auto hf = [&](std::string_view name) {
        return fmt::format("model.layers.{}.{}.weight", layer, name);
    };
    const auto gguf = [&](std::string_view name) { return fmt::format("blk.{}.{}.weight", layer, name); };
    const std::int64_t head_dim = s.layer_head_dim(layer), feed_forward = s.layer_feed_forward(layer);
    const std::int64_t q = s.heads * head_dim, kv = s.kv_heads * head_dim;
    const bool shifted = s.family == Family::gemma3 || hybrid;   // norms that Hugging Face stores less 1
    out.push_back(norm(hf("input_layernorm"), gguf("attn_norm"), s.hidden, shifted));
    if (s.recurrent(layer)) {
        append_delta(s, hf, gguf, out);
    } else {
        const bool own_cache = !s.shares_cache(layer);
        // A gate behind every head's query.
        out.push_back(matrix(hf("self_attn.q_proj"), gguf("attn_q"), hybrid ? 2 * q : q, s.hidden));
        if (own_cache) out.push_back(matrix(hf("self_attn.k_proj"), gguf("attn_k"), kv, s.hidden));
        if (s.family == Family::llama) {
            out[out.size() - 2].interleaved_heads = s.heads;
            out[out.size() - 1].interleaved_heads = s.kv_heads;
        }
        if (own_cache) out.push_back(matrix(hf("self_attn.v_proj"), gguf("attn_v"), kv, s.hidden, Use::attn_v));
        if (s.family != Family::llama) {
            out.push_back(norm(hf("self_attn.q_norm"), gguf("attn_q_norm"), head_dim, shifted));
            if (own_cache) out.push_back(norm(hf("self_attn.k_norm"), gguf("attn_k_norm"), head_dim, shifted));
        }
        out.push_back(matrix(hf("self_attn.o_proj"), gguf("attn_output"), s.hidden, q));
    }
    if (gemma) {
        out.push_back(norm(hf("post_attention_layernorm"), gguf("post_attention_norm"), s.hidden, shifted));
        out.push_back(norm(hf("pre_feedforward_layernorm"), gguf("ffn_norm"), s.hidden, shifted));
    } else {
        out.push_back(norm(hf("post_attention_layernorm"), gguf(hybrid ? "post_attention_norm" : "ffn_norm"), s.hidden, hybrid));
    }
    if (s.moe.experts > 0) {
        append_experts(s, hf, gguf, out);
        for (std::size_t i = first; i < out.size(); ++i) out[i].layer = layer;
        return;
    }
    out.push_back(matrix(hf("mlp.gate_proj"), gguf("ffn_gate"), feed_forward, s.hidden));
    out.push_back(matrix(hf("mlp.up_proj"), gguf("ffn_up"), feed_forward, s.hidden));
    out.push_back(matrix(hf("mlp.down_proj"), gguf("ffn_down"), s.hidden, feed_forward, Use::ffn_down));
    if (gemma) out.push_back(norm(hf("post_feedforward_layernorm"), gguf("post_ffw_norm"), s.hidden, shifted));
    if (gemma4) append_per_layer_input(s, hf, gguf, out);
    for (std::size_t i = first; i < out.size(); ++i) out[i].layer = layer;
}

}  // namespace

std::vector<TensorPlan> tensors_of(const Shape& s) {
    std::vector<TensorPlan> out;
    out.push_back(
        matrix("model.embed_tokens.weight", "token_embd.weight", s.vocab, s.hidden, Use::embedding));
    if (s.rope_factor > 0 || s.gemma4.interval > 0) {
        TensorPlan factors = matrix("", "rope_freqs.weight", 1, (s.gemma4.interval > 0 ? s.gemma4.head_dim : s.head_dim) / 2);
        factors.kind = Kind::rope_factors;
        out.push_back(factors);
    }
    if (const std::int64_t numbers = std::int64_t{s.gemma4.per_layer} * s.layers; numbers > 0) {
        out.push_back(matrix("model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", s.vocab, numbers));
        out.push_back(matrix("model.per_layer_model_projection.weight", "per_layer_model_proj.weight", numbers, s.hidden));
        out.push_back(norm("model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", s.gemma4.per_layer, false));
    }
    for (int layer = 0; layer < s.layers; ++layer) append_layer(s, layer, out);
    out.push_back(norm("model.norm.weight", "output_norm.weight", s.hidden, s.family == Family::gemma3 || s.delta.interval > 0));
    if (!s.tied) out.push_back(matrix("lm_head.weight", "output.weight", s.vocab, s.hidden, Use::head));
    return out;
}

std::vector<std::int64_t> dims_of(const TensorPlan& tensor, bool gguf) {
    switch (tensor.kind) {
        case Kind::matrix:
            // One row of a gate is a vector in GGUF.
            if (gguf && tensor.f32 && tensor.rows == 1) return {tensor.cols};
            if (gguf && tensor.experts > 0) return {tensor.experts, tensor.rows, tensor.cols};
            return {tensor.rows, tensor.cols};
        case Kind::conv:
            if (gguf) return {tensor.rows, tensor.cols};
            return {tensor.rows, 1, tensor.cols};
        default:
            return {tensor.cols};
    }
}

std::int64_t elements_of(const TensorPlan& tensor) { return std::max<std::int64_t>(1, tensor.experts) * tensor.rows * tensor.cols; }

std::string hf_name(const TensorPlan& tensor, std::int64_t expert) {
    const std::size_t at = tensor.hf.find("{}");
    return at == std::string::npos ? tensor.hf : tensor.hf.substr(0, at) + std::to_string(expert) + tensor.hf.substr(at + 2);
}

std::vector<float> small_values(const TensorPlan& tensor, std::uint64_t key, const Shape& shape, bool gguf) {
    if (tensor.kind == Kind::rope_factors) return rope_factors(shape);
    std::vector<float> values;
    for (std::int64_t i = 0; i < tensor.rows * tensor.cols; ++i) {
        const float near_one = norm_value(key, i);
        switch (tensor.kind) {
            case Kind::conv: values.push_back((near_one - 1) * 4); break;                           // within half
            case Kind::decay: values.push_back(gguf ? -std::exp(near_one) : near_one); break;
            case Kind::decay_bias: values.push_back((near_one - 1) * 8 - 2); break;
            default: values.push_back(near_one - (!gguf && tensor.one_plus ? 1.0f : 0.0f)); break;
        }
    }
    return values;
}

float norm_value(std::uint64_t key, std::int64_t i) {
    const auto k = static_cast<int>(mix(key, static_cast<std::uint64_t>(i)) % 17) - 8;
    return 1.0f + static_cast<float>(k) / 64.0f;
}

// Gemma 4: a quarter of the pairs turns, the others stand still. llama3: frequencies of long waves are divided by the factor, those of short waves
// stay, those between are blended (spec of rope type "llama3").
std::vector<float> rope_factors(const Shape& s) {
    constexpr double low = 1, high = 4, original_context = 8192;
    if (s.gemma4.interval > 0) {
        std::vector<float> factors(static_cast<std::size_t>(s.gemma4.head_dim / 2), 1e30f);
        std::fill_n(factors.begin(), s.gemma4.head_dim / 8, 1.0f);
        return factors;
    }
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
