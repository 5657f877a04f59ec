// A made-up two-layer descriptor with named weights and no data, for plan tests.
#pragma once

#include "model/spec.h"

namespace forge::test {

inline WeightId add_weight(BoundModel& model, const std::string& name, std::int64_t rows, std::int64_t cols,
                           DType type = DType::bf16) {
    Weight w;
    w.name = name;
    w.rows = rows;
    w.cols = cols;
    w.format.dense_type = type;
    w.format.bits = static_cast<std::uint8_t>(8 * size_of(type));
    model.weights.push_back(w);
    return static_cast<WeightId>(model.weights.size() - 1);
}

struct TinyOptions { bool sandwich = false, bias = false, qk_norm = false; int layers = 2; };

inline BoundModel tiny_model(const TinyOptions& options = {}) {
    BoundModel model;
    ModelSpec& spec = model.spec;
    spec.hidden = 24;
    spec.vocab = 50;
    spec.ropes.push_back({{1.0f, 0.5f, 0.25f}, 1.0f, "test"});
    spec.embed = spec.head = add_weight(model, "embed", 50, 24);
    spec.final_norm = add_weight(model, "norm", 1, 24, DType::f32);
    for (int i = 0; i < options.layers; ++i) {
        LayerSpec layer;
        layer.attention = {3, 1, 6, 0, 0, options.qk_norm, 0.5f, 0, i};
        layer.feed_forward = {40, Activation::silu};
        auto set = [&](Role role, std::int64_t rows, std::int64_t cols, DType type = DType::bf16) {
            const std::string name = std::to_string(i) + "." + std::string(name_of(role));
            layer.weights[static_cast<std::size_t>(role)] = add_weight(model, name, rows, cols, type);
        };
        set(Role::attn_norm, 1, 24, DType::f32);
        set(Role::attn_q, 18, 24);
        set(Role::attn_k, 6, 24);
        set(Role::attn_v, 6, 24);
        set(Role::attn_o, 24, 18);
        set(Role::ffn_norm, 1, 24, DType::f32);
        set(Role::ffn_gate, 40, 24);
        set(Role::ffn_up, 40, 24);
        set(Role::ffn_down, 24, 40);
        if (options.bias) {
            set(Role::attn_q_bias, 1, 18, DType::f32);
            set(Role::attn_o_bias, 1, 24, DType::f32);
            set(Role::ffn_up_bias, 1, 40, DType::f32);
        }
        if (options.qk_norm) {
            set(Role::attn_q_norm, 1, 6, DType::f32);
            set(Role::attn_k_norm, 1, 6, DType::f32);
        }
        if (options.sandwich) {
            set(Role::attn_post_norm, 1, 24, DType::f32);
            set(Role::ffn_post_norm, 1, 24, DType::f32);
        }
        spec.layers.push_back(layer);
    }
    return model;
}

}  // namespace forge::test
