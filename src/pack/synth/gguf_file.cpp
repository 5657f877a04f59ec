// A synthetic model as one GGUF file.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "pack/gguf_writer.h"
#include "types.h"
#include "writers.h"

namespace forge::synth {
namespace {

std::string_view architecture(Family family) {
    switch (family) {
        case Family::llama:
            return "llama";
        case Family::qwen3:
            return "qwen3";
        case Family::gemma3:
            return "gemma3";
        case Family::gemma4:
            return "gemma4";
        case Family::qwen3_moe:
            return "qwen3moe";
        case Family::qwen35:
            return "qwen35";
        case Family::qwen35_moe:
            return "qwen35moe";
    }
    fail(ErrorKind::internal, "a model family has no GGUF architecture");
}

// What differs from layer to layer.
void set_gemma4(const Shape& s, const std::string& arch, GgufWriter& out) {
    std::vector<std::int32_t> widths;
    std::vector<bool> sliding;
    for (int layer = 0; layer < s.layers; ++layer) {
        widths.push_back(s.layer_feed_forward(layer));
        sliding.push_back(!s.global(layer));
    }
    out.set_i32s(arch + ".feed_forward_length", widths);
    out.set_bools(arch + ".attention.sliding_window_pattern", sliding);
    const std::pair<const char*, int> numbers[] = {
        {"attention.head_count", s.heads}, {"attention.head_count_kv", s.kv_heads}, {"attention.sliding_window", s.window},
        {"attention.key_length", s.gemma4.head_dim}, {"attention.value_length", s.gemma4.head_dim}, {"attention.key_length_swa", s.head_dim},
        {"attention.value_length_swa", s.head_dim}, {"attention.shared_kv_layers", s.gemma4.shared},
        {"embedding_length_per_layer_input", s.gemma4.per_layer}, {"rope.dimension_count", s.gemma4.head_dim},
        {"rope.dimension_count_swa", s.head_dim}, {"vocab_size", s.vocab}};
    for (const auto& [key, value] : numbers) out.set_u32(arch + "." + key, static_cast<std::uint32_t>(value));
    out.set_f32(arch + ".attention.layer_norm_rms_epsilon", static_cast<float>(s.norm_eps));
    out.set_f32(arch + ".rope.freq_base", static_cast<float>(s.rope_theta));
    out.set_f32(arch + ".rope.freq_base_swa", 10000);
    out.set_f32(arch + ".final_logit_softcapping", static_cast<float>(s.gemma4.softcap));
}

void set_dimensions(const Shape& s, const Recipe& recipe, GgufWriter& out) {
    const std::string arch(architecture(s.family));
    const auto u32 = [&](std::string_view key, int value) {
        out.set_u32(arch + "." + std::string(key), static_cast<std::uint32_t>(value));
    };
    const auto f32 = [&](std::string_view key, double value) {
        out.set_f32(arch + "." + std::string(key), static_cast<float>(value));
    };
    out.set_string("general.architecture", arch);
    out.set_string("general.type", "model");
    out.set_string("general.name", s.title);
    out.set_u32("general.file_type", recipe.file_type);
    out.set_u32("general.quantization_version", 2);
    u32("context_length", s.context);
    u32("block_count", s.layers);
    u32("embedding_length", s.hidden);
    if (s.gemma4.interval > 0) return set_gemma4(s, arch, out);
    if (s.feed_forward > 0) u32("feed_forward_length", s.feed_forward);
    u32("attention.head_count", s.heads);
    u32("attention.head_count_kv", s.kv_heads);
    u32("attention.key_length", s.head_dim);
    u32("attention.value_length", s.head_dim);
    f32("attention.layer_norm_rms_epsilon", s.norm_eps);
    f32("rope.freq_base", s.rope_theta);
    if (s.window > 0) u32("attention.sliding_window", s.window);
    if (s.family == Family::llama) u32("rope.dimension_count", s.head_dim);
    if (s.moe.experts > 0) {
        u32("expert_count", s.moe.experts);
        u32("expert_used_count", s.moe.per_token);
        u32("expert_feed_forward_length", s.moe.width);
        if (s.moe.shared_width > 0) u32("expert_shared_feed_forward_length", s.moe.shared_width);
    }
    if (s.delta.interval > 0) {
        u32("rope.dimension_count", s.head_dim / 4);
        out.set_i32s(arch + ".rope.dimension_sections", std::vector<std::int32_t>{s.head_dim / 24 + 1, s.head_dim / 24 + 1, s.head_dim / 24, 0});
        u32("full_attention_interval", s.delta.interval);
        u32("ssm.conv_kernel", 4);
        u32("ssm.state_size", s.delta.k_dim);
        u32("ssm.group_count", s.delta.k_heads);
        u32("ssm.time_step_rank", s.delta.v_heads);
        u32("ssm.inner_size", s.delta.v_heads * s.delta.v_dim);
    }
    u32("vocab_size", s.vocab);
}

void set_tokenizer(const Shape& s, GgufWriter& out) {
    const Tokenizer t = make_tokenizer(s);
    constexpr std::int32_t normal = 1, control = 3;
    std::vector<std::int32_t> types(t.tokens.size(), normal);
    std::fill(types.begin() + t.first_special, types.end(), control);
    std::vector<std::string> merges;
    for (const auto& [left, right] : t.merges) merges.push_back(left + " " + right);
    out.set_string("tokenizer.ggml.model", "gpt2");
    out.set_string("tokenizer.ggml.pre", t.gguf_pre);
    out.set_strings("tokenizer.ggml.tokens", t.tokens);
    out.set_i32s("tokenizer.ggml.token_type", types);
    out.set_strings("tokenizer.ggml.merges", merges);
    // Without BOS the key names the padding token, as converters do; add_bos_token is what counts.
    out.set_u32("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(t.bos >= 0 ? t.bos : t.pad));
    out.set_u32("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(t.eos));
    out.set_u32("tokenizer.ggml.padding_token_id", static_cast<std::uint32_t>(t.pad));
    out.set_bool("tokenizer.ggml.add_bos_token", t.add_bos);
    out.set_string("tokenizer.chat_template", t.chat_template);
}

}  // namespace

void write_gguf(const SynthOptions& options, const Shape& shape, ThreadPool& threads, SynthSummary& summary) {
    const Recipe& recipe = recipe_named(options.type);
    GgufWriter out(options.output);
    set_dimensions(shape, recipe, out);
    set_tokenizer(shape, out);
    const std::vector<TensorPlan> tensors = tensors_of(shape);
    for (const TensorPlan& tensor : tensors) {
        out.add_tensor(tensor.gguf, dims_of(tensor, true), type_of(tensor, shape, recipe));
        if (tensor.kind != Kind::rope_factors) summary.parameters += static_cast<std::uint64_t>(elements_of(tensor));
    }
    summary.tensors = tensors.size();
    summary.tensor_bytes = out.data_bytes();
    out.begin();

    Progress progress(std::string("Writing ") + options.output, summary.tensor_bytes);
    const std::vector<float> pool = chunk_pool(options.seed, threads);
    std::map<GgufType, EncodedChunks> encoded;
    for (const TensorPlan& tensor : tensors) {
        const std::uint64_t key = tensor_key(options.seed, tensor);
        if (tensor.kind == Kind::matrix) {
            const GgufType type = type_of(tensor, shape, recipe);
            auto chunks = encoded.find(type);
            if (chunks == encoded.end())
                chunks = encoded.emplace(type, EncodedChunks(pool, type, threads)).first;
            write_matrix(tensor, key, chunks->second, true, threads, progress,
                         [&](std::span<const std::byte> bytes) { out.write(bytes); });
        } else {
            const std::vector<float> values = small_values(tensor, key, shape, true);
            out.write(std::as_bytes(std::span(values)));
            progress.advance(values.size() * sizeof(float));
        }
    }
    out.finish();
}

}  // namespace forge::synth
