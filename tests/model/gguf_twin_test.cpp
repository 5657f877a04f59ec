// Tiny Hugging Face models rewritten, in memory, as the GGUF files that a
// converter would make of them: other names, experts stacked, value heads
// tiled, norms with 1 added. Both must give the same logits.
#include <algorithm>
#include <cmath>

#include "forward.h"
#include "model/bind.h"
#include "support.h"
#include "tensor_data.h"

namespace forge {
namespace {

using Floats = std::vector<float>;

struct Twin {
    std::shared_ptr<ModelFile> from;
    ModelFile file;
    test::Tensors tensors{file};
    std::string arch;

    Twin(const std::string& folder, std::string architecture) : from(open_huggingface(FORGE_TEST_DATA "/models-mixed/" + folder)), arch(std::move(architecture)) {
        file = test::gguf_file({{"general.architecture", arch}});
    }
    void set(const std::string& key, const MetaValue& value) { file.metadata.set(arch + "." + key, value); }
    void count(const std::string& key, int value) { set(key, static_cast<std::uint64_t>(value)); }

    void put(const std::string& name, std::vector<std::int64_t> shape, Floats values) { tensors.f32(name, std::move(shape), std::move(values)); }
    // The same tensor, its numbers changed by `edit`.
    void copy(const std::string& hf, const std::string& gguf, const std::function<void(Floats&)>& edit = {}) {
        const Tensor* tensor = from->find(hf);
        if (!tensor) return;
        Floats values = floats_of(*tensor);
        if (edit) edit(values);
        std::vector<std::int64_t> shape = tensor->shape;
        std::erase(shape, 1);
        put(gguf, shape.empty() ? std::vector<std::int64_t>{1} : shape, std::move(values));
    }
    // Experts' own tensors as one.
    void stack(const std::string& before, const std::string& after, int experts, const std::string& gguf) {
        Floats all;
        std::vector<std::int64_t> shape;
        for (int e = 0; e < experts; ++e) {
            const Tensor* tensor = from->find(before + std::to_string(e) + after);
            if (!tensor) return;
            const Floats values = floats_of(*tensor);
            all.insert(all.end(), values.begin(), values.end());
            shape = tensor->shape;
        }
        shape.insert(shape.begin(), experts);
        put(gguf, shape, std::move(all));
    }

    void expect_same_logits() {
        file.index_names();
        ThreadPool pool(2);
        const auto expected = bind_model(*from, pool);
        testing::internal::CaptureStderr();
        const auto got = bind_model(file, pool);
        EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
        EXPECT_EQ(got->spec.parameters, expected->spec.parameters);
        std::vector<int> ids;
        for (int i = 0; i < 40; ++i) ids.push_back((7 * i + 3) % 89);
        const auto a = test::forward(*expected, ids), b = test::forward(*got, ids);
        ASSERT_EQ(a.size(), b.size());
        double largest = 0, difference = 0;
        for (std::size_t i = 0; i < a.size(); ++i) {
            largest = std::max(largest, std::abs(a[i]));
            difference = std::max(difference, std::abs(a[i] - b[i]));
        }
        EXPECT_LT(difference / largest, 1e-5);  // 1 + w, -exp(a) and frequencies are rounded to f32
    }
};

void plus_one(Floats& values) {
    for (float& value : values) value += 1;
}

TEST(GgufTwin, MixtralIsStoredAsLlama) {
    for (const bool old_experts : {false, true}) {  // one tensor an expert, as the first converters wrote
        Twin twin("mixtral", "llama");
        for (const auto& [key, value] : std::initializer_list<std::pair<const char*, int>>{
                 {"context_length", 512}, {"embedding_length", 48}, {"block_count", 2}, {"feed_forward_length", 28},
                 {"attention.head_count", 4}, {"attention.head_count_kv", 2}, {"expert_count", 4}, {"expert_used_count", 2}})
            twin.count(key, value);
        twin.set("attention.layer_norm_rms_epsilon", 1e-5);
        twin.set("rope.freq_base", 1e6);
        twin.copy("model.embed_tokens.weight", "token_embd.weight");
        twin.copy("model.norm.weight", "output_norm.weight");
        twin.copy("lm_head.weight", "output.weight");
        for (int i = 0; i < 2; ++i) {
            const std::string hf = fmt::format("model.layers.{}.", i), gguf = fmt::format("blk.{}.", i);
            twin.copy(hf + "input_layernorm.weight", gguf + "attn_norm.weight");
            twin.copy(hf + "post_attention_layernorm.weight", gguf + "ffn_norm.weight");
            for (const char* part : {"q", "k"}) {
                twin.copy(hf + "self_attn." + part + "_proj.weight", gguf + "attn_" + part + ".weight", [](Floats& values) {
                    const Floats rows = values;  // heads of 12 rows of 48
                    for (std::size_t row = 0; row < rows.size() / 48; ++row) {
                        const std::size_t within = row % 12, stored = row - within + 2 * (within % 6) + within / 6;
                        std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(row * 48), 48, values.begin() + static_cast<std::ptrdiff_t>(stored * 48));
                    }
                });
            }
            twin.copy(hf + "self_attn.v_proj.weight", gguf + "attn_v.weight");
            twin.copy(hf + "self_attn.o_proj.weight", gguf + "attn_output.weight");
            twin.copy(hf + "block_sparse_moe.gate.weight", gguf + "ffn_gate_inp.weight");
            for (const auto& [w, name] : std::initializer_list<std::pair<const char*, const char*>>{{"w1", "gate"}, {"w3", "up"}, {"w2", "down"}}) {
                const std::string experts = hf + "block_sparse_moe.experts.";
                if (!old_experts) twin.stack(experts, fmt::format(".{}.weight", w), 4, fmt::format("{}ffn_{}_exps.weight", gguf, name));
                for (int e = 0; old_experts && e < 4; ++e)
                    twin.copy(fmt::format("{}{}.{}.weight", experts, e, w), fmt::format("{}ffn_{}.{}.weight", gguf, name, e));
            }
        }
        SCOPED_TRACE(old_experts);
        twin.expect_same_logits();
    }
}

// Value heads of Qwen 3.5 in GGUF: slot r * key_heads + k holds head k * per_key + r.
struct Tiling {
    std::size_t key_heads, per_key;
    // Moves blocks of `size` floats from head order to slots, starting at `first`.
    std::function<void(Floats&)> blocks(std::size_t size, std::size_t first = 0) const {
        return [*this, size, first](Floats& values) {
            const Floats old = values;
            for (std::size_t k = 0; k < key_heads; ++k)
                for (std::size_t r = 0; r < per_key; ++r)
                    std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(first + (k * per_key + r) * size), size,
                                values.begin() + static_cast<std::ptrdiff_t>(first + (r * key_heads + k) * size));
        };
    }
};

TEST(GgufTwin, Qwen35HasTiledValueHeads) {
    Twin twin("qwen3.5-text", "qwen35");
    constexpr std::size_t hidden = 32, key = 2 * 12, value_dim = 10, kernel = 4;
    const Tiling tiling{2, 3};
    for (const auto& [key_name, value] : std::initializer_list<std::pair<const char*, int>>{
             {"context_length", 512}, {"embedding_length", 32}, {"block_count", 6}, {"nextn_predict_layers", 1},
             {"feed_forward_length", 28}, {"attention.head_count", 3}, {"attention.head_count_kv", 1},
             {"attention.key_length", 20}, {"attention.value_length", 20}, {"rope.dimension_count", 6},
             {"ssm.conv_kernel", 4}, {"ssm.state_size", 12}, {"ssm.group_count", 2}, {"ssm.time_step_rank", 6}, {"ssm.inner_size", 60}})
        twin.count(key_name, value);
    twin.set("attention.layer_norm_rms_epsilon", 1e-6);
    twin.set("rope.freq_base", 1e5);
    twin.set("attention.recurrent_layers", std::vector<bool>{true, false, true, true, false, false});
    twin.copy("model.embed_tokens.weight", "token_embd.weight");
    twin.copy("model.norm.weight", "output_norm.weight", plus_one);
    // A quarter of 20 dims is 5: the reference's exponents are divided by 5, which no dimension_count says.
    twin.tensors.f32("rope_freqs.weight", {3}, {1, static_cast<float>(std::pow(1e5, 2.0 / 5 - 2.0 / 6)), static_cast<float>(std::pow(1e5, 4.0 / 5 - 4.0 / 6))});
    for (int i = 0; i < 5; ++i) {
        const std::string hf = fmt::format("model.layers.{}.", i), gguf = fmt::format("blk.{}.", i), linear = hf + "linear_attn.";
        twin.copy(hf + "input_layernorm.weight", gguf + "attn_norm.weight", plus_one);
        twin.copy(hf + "post_attention_layernorm.weight", gguf + "post_attention_norm.weight", plus_one);
        twin.copy(hf + "self_attn.q_norm.weight", gguf + "attn_q_norm.weight", plus_one);
        twin.copy(hf + "self_attn.k_norm.weight", gguf + "attn_k_norm.weight", plus_one);
        for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
                 {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},
                 {"self_attn.o_proj", "attn_output"}, {"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"}, {"mlp.down_proj", "ffn_down"}})
            twin.copy(hf + from + ".weight", gguf + to + ".weight");
        twin.copy(linear + "in_proj_qkv.weight", gguf + "attn_qkv.weight", tiling.blocks(value_dim * hidden, 2 * key * hidden));
        twin.copy(linear + "in_proj_z.weight", gguf + "attn_gate.weight", tiling.blocks(value_dim * hidden));
        twin.copy(linear + "in_proj_b.weight", gguf + "ssm_beta.weight", tiling.blocks(hidden));
        twin.copy(linear + "in_proj_a.weight", gguf + "ssm_alpha.weight", tiling.blocks(hidden));
        twin.copy(linear + "conv1d.weight", gguf + "ssm_conv1d.weight", tiling.blocks(value_dim * kernel, 2 * key * kernel));
        twin.copy(linear + "dt_bias", gguf + "ssm_dt.bias", tiling.blocks(1));
        twin.copy(linear + "A_log", gguf + "ssm_a", [&](Floats& values) {
            tiling.blocks(1)(values);
            for (float& a : values) a = static_cast<float>(-std::exp(static_cast<double>(a)));
        });
        twin.copy(linear + "norm.weight", gguf + "ssm_norm.weight");
        twin.copy(linear + "out_proj.weight", gguf + "ssm_out.weight", [&](Floats& values) {  // columns
            for (std::size_t row = 0; row < hidden; ++row) tiling.blocks(value_dim, row * 60)(values);
        });
    }
    twin.tensors.ramp("blk.5.nextn.eh_proj.weight", {2, 2});  // predicts further tokens: not run, not reported
    twin.file.index_names();
    const ModelSpec spec = read_spec(twin.file);
    ASSERT_EQ(spec.layers.size(), 5u);
    EXPECT_TRUE(spec.layers[0].delta.tiled_heads);
    EXPECT_TRUE(spec.layers[1].attention.gated);
    twin.expect_same_logits();
}

TEST(GgufTwin, Gemma4) {
    for (const std::string folder : {"gemma4-per-layer", "gemma4-experts"}) {
        SCOPED_TRACE(folder);
        Twin twin(folder, "gemma4");
        const bool experts = folder == "gemma4-experts";
        const int layers = experts ? 3 : 5;
        const std::vector<bool> slides = experts ? std::vector<bool>{true, true, false} : std::vector<bool>{true, false, true, true, false};
        for (const auto& [key, value] : std::initializer_list<std::pair<const char*, int>>{
                 {"context_length", 512}, {"embedding_length", 44}, {"block_count", layers}, {"attention.head_count", 4},
                 {"attention.key_length", 20}, {"attention.value_length", 20}, {"attention.key_length_swa", 12},
                 {"attention.value_length_swa", 12}, {"rope.dimension_count", 20}, {"rope.dimension_count_swa", 12},
                 {"attention.sliding_window", 9}})
            twin.count(key, value);
        twin.set("attention.layer_norm_rms_epsilon", 1e-6);
        twin.set("rope.freq_base", 1e6);
        twin.set("attention.sliding_window_pattern", slides);
        twin.set("final_logit_softcapping", 6.0);
        if (experts) {
            twin.count("feed_forward_length", 36);
            twin.count("expert_count", 5);
            twin.count("expert_used_count", 2);
            twin.count("expert_feed_forward_length", 20);
            twin.set("attention.head_count_kv", std::vector<std::int64_t>{2, 2, 1});
        } else {
            twin.set("feed_forward_length", std::vector<std::int64_t>{36, 36, 36, 72, 72});
            twin.count("attention.head_count_kv", 1);
            twin.count("attention.shared_kv_layers", 2);
            twin.count("embedding_length_per_layer_input", 6);
        }
        // Proportional rotation: a quarter of the ten pairs, rounded down; the rest stands still.
        Floats divisors(10, 1e30f);
        divisors[0] = divisors[1] = 1;
        twin.tensors.f32("rope_freqs.weight", {10}, divisors);
        twin.copy("model.embed_tokens.weight", "token_embd.weight");
        twin.copy("model.norm.weight", "output_norm.weight");
        twin.copy("model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight");
        twin.copy("model.per_layer_model_projection.weight", "per_layer_model_proj.weight");
        twin.copy("model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight");
        for (int i = 0; i < layers; ++i) {
            const std::string hf = fmt::format("model.layers.{}.", i), gguf = fmt::format("blk.{}.", i);
            for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
                     {"input_layernorm.weight", "attn_norm.weight"}, {"post_attention_layernorm.weight", "post_attention_norm.weight"},
                     {"pre_feedforward_layernorm.weight", "ffn_norm.weight"}, {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
                     {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"}, {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"},
                     {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"}, {"self_attn.q_norm.weight", "attn_q_norm.weight"},
                     {"self_attn.k_norm.weight", "attn_k_norm.weight"}, {"self_attn.q_proj.weight", "attn_q.weight"},
                     {"self_attn.k_proj.weight", "attn_k.weight"}, {"self_attn.v_proj.weight", "attn_v.weight"},
                     {"self_attn.o_proj.weight", "attn_output.weight"}, {"mlp.gate_proj.weight", "ffn_gate.weight"},
                     {"mlp.up_proj.weight", "ffn_up.weight"}, {"mlp.down_proj.weight", "ffn_down.weight"},
                     {"layer_scalar", "layer_output_scale.weight"}, {"per_layer_input_gate.weight", "inp_gate.weight"},
                     {"per_layer_projection.weight", "proj.weight"}, {"post_per_layer_input_norm.weight", "post_norm.weight"},
                     {"router.proj.weight", "ffn_gate_inp.weight"}, {"router.scale", "ffn_gate_inp.scale"},
                     {"router.per_expert_scale", "ffn_down_exps.scale"}, {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
                     {"experts.down_proj", "ffn_down_exps.weight"}})
                twin.copy(hf + from, gguf + to);
        }
        twin.expect_same_logits();
    }
}

}  // namespace
}  // namespace forge
