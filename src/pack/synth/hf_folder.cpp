// A synthetic model as a Hugging Face folder: config.json, generation_config.json,
// tokenizer.json, tokenizer_config.json, chat_template.jinja, model.safetensors.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/float16.h"
#include "base/paths.h"
#include "pack/gguf_encode.h"
#include "pack/safetensors_writer.h"
#include "types.h"
#include "writers.h"

namespace forge::synth {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct PlainType {
    GgufType block;
    DType dtype;
    std::string_view torch;
};

PlainType plain_type(GgufType type) {
    if (type == GgufType::bf16) return {type, DType::bf16, "bfloat16"};
    if (type == GgufType::f16) return {type, DType::f16, "float16"};
    return {GgufType::f32, DType::f32, "float32"};
}

}  // namespace

Json hf_config(const Shape& s, const Tokenizer& t, std::string_view torch_type) {
    Json c;
    switch (s.family) {
        case Family::llama:
            c = {{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}};
            break;
        case Family::qwen3:
            c = {{"architectures", {"Qwen3ForCausalLM"}}, {"model_type", "qwen3"}};
            break;
        case Family::gemma3:
            c = {{"architectures", {"Gemma3ForCausalLM"}}, {"model_type", "gemma3_text"}};
            break;
        case Family::gemma4:
            c = {{"architectures", {"Gemma4ForCausalLM"}}, {"model_type", "gemma4_text"}};
            break;
        case Family::qwen3_moe:
            c = {{"architectures", {"Qwen3MoeForCausalLM"}}, {"model_type", "qwen3_moe"}};
            break;
        case Family::qwen35:
            c = {{"architectures", {"Qwen3_5ForCausalLM"}}, {"model_type", "qwen3_5_text"}};
            break;
        case Family::qwen35_moe:
            c = {{"architectures", {"Qwen3_5MoeForCausalLM"}}, {"model_type", "qwen3_5_moe_text"}};
            break;
    }
    c["vocab_size"] = s.vocab;
    c["hidden_size"] = s.hidden;
    if (s.feed_forward > 0) c["intermediate_size"] = s.feed_forward;
    if (s.moe.experts > 0) {
        c["num_experts"] = s.moe.experts;
        c["num_experts_per_tok"] = s.moe.per_token;
        c["moe_intermediate_size"] = s.moe.width;
        c["norm_topk_prob"] = true;
        c["decoder_sparse_step"] = 1;
        c["mlp_only_layers"] = Json::array();
        if (s.moe.shared_width > 0) c["shared_expert_intermediate_size"] = s.moe.shared_width;
    }
    if (s.delta.interval > 0) {
        c["full_attention_interval"] = s.delta.interval;
        c["linear_num_key_heads"] = s.delta.k_heads;
        c["linear_num_value_heads"] = s.delta.v_heads;
        c["linear_key_head_dim"] = s.delta.k_dim;
        c["linear_value_head_dim"] = s.delta.v_dim;
        c["linear_conv_kernel_dim"] = 4;
        c["partial_rotary_factor"] = 0.25;
        c["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", s.rope_theta}, {"partial_rotary_factor", 0.25}};
    }
    c["num_hidden_layers"] = s.layers;
    c["num_attention_heads"] = s.heads;
    c["num_key_value_heads"] = s.kv_heads;
    c["head_dim"] = s.head_dim;
    c["max_position_embeddings"] = s.context;
    c["rms_norm_eps"] = s.norm_eps;
    c["tie_word_embeddings"] = s.tied;
    c["attention_bias"] = false;
    if (s.family != Family::gemma4) c["rope_theta"] = s.rope_theta;
    if (s.family == Family::gemma3) {
        c["hidden_activation"] = "gelu_pytorch_tanh";
        c["rope_local_base_freq"] = 10000.0;
        c["query_pre_attn_scalar"] = s.head_dim;
        c["sliding_window"] = s.window;
        c["final_logit_softcapping"] = nullptr;
        c["attn_logit_softcapping"] = nullptr;
        c["layer_types"] = Json::array();
        for (int layer = 0; layer < s.layers; ++layer)
            c["layer_types"].push_back(s.global(layer) ? "full_attention" : "sliding_attention");
    } else if (s.family == Family::gemma4) {
        c["hidden_activation"] = "gelu_pytorch_tanh";
        c["sliding_window"] = s.window;
        c["global_head_dim"] = s.gemma4.head_dim;
        c["num_kv_shared_layers"] = s.gemma4.shared;
        c["use_double_wide_mlp"] = true;
        c["hidden_size_per_layer_input"] = s.gemma4.per_layer;
        c["vocab_size_per_layer_input"] = s.vocab;
        c["final_logit_softcapping"] = s.gemma4.softcap;
        c["rope_parameters"] = {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
                                {"full_attention", {{"rope_type", "proportional"}, {"rope_theta", s.rope_theta}, {"partial_rotary_factor", 0.25}}}};
        c["layer_types"] = Json::array();
        for (int layer = 0; layer < s.layers; ++layer) c["layer_types"].push_back(s.global(layer) ? "full_attention" : "sliding_attention");
    } else {
        c["hidden_act"] = "silu";
    }
    if (s.rope_factor > 0)
        c["rope_scaling"] = {{"rope_type", "llama3"},
                             {"factor", s.rope_factor},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 8192}};
    else if (s.family != Family::gemma4)
        c["rope_scaling"] = nullptr;
    c["bos_token_id"] = t.bos >= 0 ? Json(t.bos) : Json();
    c["eos_token_id"] = t.eos;
    c["pad_token_id"] = t.pad;
    c["torch_dtype"] = torch_type;
    return c;
}

namespace {

Json generation_config_of(const Tokenizer& t) {
    Json c;
    if (t.bos >= 0) c["bos_token_id"] = t.bos;
    c["eos_token_id"] = t.stop;
    c["pad_token_id"] = t.pad;
    return c;
}

const std::string& token_text(const Tokenizer& t, int id) { return t.tokens[static_cast<std::size_t>(id)]; }

Json pre_tokenizer_of(const Tokenizer& t) {
    const Json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", false},
                             {"use_regex", t.split_regex.empty()}};
    if (t.split_regex.empty()) return byte_level;
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", t.split_regex}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}};
}

Json post_processor_of(const Tokenizer& t) {
    const Json byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
    if (!t.add_bos) return byte_level;
    const std::string& bos = token_text(t, t.bos);
    const Json begin = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
    const Json first = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
               second = {{"Sequence", {{"id", "B"}, {"type_id", 0}}}};
    Json special;
    special[bos] = {{"id", bos}, {"ids", Json::array({t.bos})}, {"tokens", Json::array({bos})}};
    return {{"type", "TemplateProcessing"},
            {"single", Json::array({begin, first})},
            {"pair", Json::array({begin, first, second})},
            {"special_tokens", special}};
}

// The vocabulary is written by hand: an ordered JSON object looks every one of
// its 150000 names up on insertion.
std::string tokenizer_json(const Tokenizer& t) {
    Json head;
    head["version"] = "1.0";
    head["truncation"] = nullptr;
    head["padding"] = nullptr;
    head["added_tokens"] = Json::array();
    for (int id = t.first_special; id < static_cast<int>(t.tokens.size()); ++id)
        head["added_tokens"].push_back({{"id", id},
                                        {"content", token_text(t, id)},
                                        {"single_word", false},
                                        {"lstrip", false},
                                        {"rstrip", false},
                                        {"normalized", false},
                                        {"special", true}});
    head["normalizer"] = t.nfc ? Json{{"type", "NFC"}} : Json();
    head["pre_tokenizer"] = pre_tokenizer_of(t);
    head["post_processor"] = post_processor_of(t);
    head["decoder"] = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
    std::string text = head.dump(1, ' ');
    text.erase(text.rfind('\n'));  // and the closing brace after it
    text +=
        ",\n \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
        "\"continuing_subword_prefix\": null, "
        "\"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": ";
    text += t.ignore_merges ? "true" : "false";
    text += ",\n  \"vocab\": {";
    for (int id = 0; id < t.first_special; ++id)
        text += fmt::format("{}{}: {}", id == 0 ? "\n" : ",\n", Json(token_text(t, id)).dump(), id);
    text += "},\n  \"merges\": [";
    for (std::size_t i = 0; i < t.merges.size(); ++i)
        text += (i == 0 ? "\n" : ",\n") + Json::array({t.merges[i].first, t.merges[i].second}).dump();
    return text + "]}\n}\n";
}

Json tokenizer_config_of(const Shape& s, const Tokenizer& t) {
    Json c;
    c["tokenizer_class"] = "PreTrainedTokenizerFast";
    c["bos_token"] = t.bos >= 0 ? Json(token_text(t, t.bos)) : Json();
    c["eos_token"] = token_text(t, t.eos);
    c["pad_token"] = token_text(t, t.pad);
    c["add_bos_token"] = t.add_bos;
    c["model_max_length"] = s.context;
    c["clean_up_tokenization_spaces"] = false;
    c["chat_template"] = t.chat_template;
    return c;
}

void write_weights(const fs::path& path, const SynthOptions& options, const Shape& shape, PlainType type,
                   ThreadPool& threads, SynthSummary& summary) {
    std::vector<TensorPlan> tensors = tensors_of(shape);
    std::erase_if(tensors, [](const TensorPlan& tensor) { return tensor.hf.empty(); });
    SafetensorsWriter out(path.string());
    out.set_metadata("format", "pt");
    // One tensor an expert, written one after the other: the rows of GGUF's stack.
    std::vector<const TensorPlan*> plans;   // by index of add_tensor; null: written with the first expert
    for (const TensorPlan& tensor : tensors) {
        for (std::int64_t e = 0; e < std::max<std::int64_t>(1, tensor.experts); ++e) {
            out.add_tensor(hf_name(tensor, e), dims_of(tensor, false), type.dtype);
            plans.push_back(e == 0 ? &tensor : nullptr);
        }
        summary.parameters += static_cast<std::uint64_t>(elements_of(tensor));
    }
    summary.tensors = plans.size();
    summary.tensor_bytes = out.data_bytes();

    if (options.outline) {
        out.skip_data();
        return out.finish();
    }
    Progress progress("Writing " + path.string(), summary.tensor_bytes);
    const EncodedChunks chunks(chunk_pool(options.seed, threads), type.block, threads);
    const auto write = [&](std::span<const std::byte> bytes) { out.write(bytes); };
    for (std::size_t index : out.begin()) {
        if (!plans[index]) continue;
        const TensorPlan& tensor = *plans[index];
        const std::uint64_t key = tensor_key(options.seed, tensor);
        if (tensor.kind == Kind::matrix) {
            write_matrix(tensor, key, chunks, false, threads, progress, write);
            continue;
        }
        const std::vector<float> values = small_values(tensor, key, shape, false);
        std::vector<std::byte> bytes(values.size() * size_of(type.dtype));
        encode_gguf_row(type.block, values.data(), static_cast<std::int64_t>(values.size()), bytes.data());
        write(bytes);
        progress.advance(bytes.size());
    }
    out.finish();
}

}  // namespace

void write_tokenizer_files(const fs::path& folder, const Shape& shape, const Tokenizer& tokenizer) {
    write_file_atomically(folder / "generation_config.json", generation_config_of(tokenizer).dump(2) + "\n");
    write_file_atomically(folder / "tokenizer_config.json", tokenizer_config_of(shape, tokenizer).dump(2) + "\n");
    write_file_atomically(folder / "chat_template.jinja", tokenizer.chat_template);
    write_file_atomically(folder / "tokenizer.json", tokenizer_json(tokenizer));
}

void write_hf(const SynthOptions& options, const Shape& shape, ThreadPool& threads, SynthSummary& summary) {
    const fs::path folder(options.output);
    std::error_code reason;
    fs::create_directories(folder, reason);
    if (reason) fail(ErrorKind::io, "cannot create the folder {}: {}", options.output, reason.message());
    const PlainType type = plain_type(recipe_named(options.type).type);
    const Tokenizer tokenizer = make_tokenizer(shape);
    write_weights(folder / "model.safetensors", options, shape, type, threads, summary);
    write_tokenizer_files(folder, shape, tokenizer);
    // Last: it makes the folder a model.
    write_file_atomically(folder / "config.json", hf_config(shape, tokenizer, type.torch).dump(2) + "\n");
}

}  // namespace forge::synth
