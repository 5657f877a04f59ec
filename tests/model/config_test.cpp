// config.json of released models -> the descriptor, every field.
#include <cmath>

#include "model/bind.h"
#include "support.h"

namespace forge {
namespace {

using test::config_file;
using testing::ElementsAre;
using testing::HasSubstr;

// What every layer of a model has in common, to compare in one line.
struct Shape {
    int heads, kv_heads, head_dim, width, window;
    bool operator==(const Shape&) const = default;
};
Shape shape_of(const LayerSpec& layer) {
    const AttentionSpec& a = layer.attention;
    return {a.n_heads, a.n_kv_heads, a.head_dim, layer.feed_forward.width, a.window};
}
void PrintTo(const Shape& s, std::ostream* out) {
    *out << s.heads << "/" << s.kv_heads << " heads of " << s.head_dim << ", ffn " << s.width << ", window " << s.window;
}

void expect_all_layers(const ModelSpec& spec, Shape shape) {
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(shape_of(spec.layers[i]), shape);
        EXPECT_EQ(spec.layers[i].attention.kv_layer, static_cast<int>(i));
        EXPECT_FLOAT_EQ(spec.layers[i].attention.scale, 1 / std::sqrt(static_cast<float>(shape.head_dim)));
        EXPECT_EQ(spec.layers[i].attention.softcap, 0);
        EXPECT_EQ(spec.layers[i].attention.rope, 0);
        EXPECT_EQ(spec.layers[i].feed_forward.activation, Activation::silu);
        for (const WeightId id : spec.layers[i].weights) EXPECT_EQ(id, -1);
    }
    EXPECT_EQ(spec.ropes.size(), 1u);
    EXPECT_EQ(spec.embed_scale, 1.0f);
    EXPECT_EQ(spec.final_softcap, 0);
    EXPECT_EQ(spec.norm.kind, NormKind::two_rounding);
    EXPECT_EQ(spec.qk_norm.kind, NormKind::two_rounding);
}

constexpr const char* llama31_8b = R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
    "bos_token_id":128000,"eos_token_id":[128001,128008,128009],"hidden_act":"silu","hidden_size":4096,
    "initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":131072,"mlp_bias":false,
    "model_type":"llama","num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,"pretraining_tp":1,
    "rms_norm_eps":1e-05,"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
    "original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,"tie_word_embeddings":false,
    "torch_dtype":"bfloat16","use_cache":true,"vocab_size":128256})";

TEST(Config, Llama31) {
    const ModelSpec spec = read_spec(config_file(llama31_8b, R"({"eos_token_id":[128001,128008,128009],"temperature":0.6})"));
    EXPECT_EQ(spec.architecture, "llama");
    EXPECT_EQ(spec.name, "test");
    EXPECT_EQ(spec.hidden, 4096);
    EXPECT_EQ(spec.vocab, 128256);
    EXPECT_EQ(spec.context_length, 131072);
    EXPECT_FLOAT_EQ(spec.norm.eps, 1e-5f);
    ASSERT_EQ(spec.layers.size(), 32u);
    expect_all_layers(spec, {32, 8, 128, 14336, 0});
    EXPECT_FALSE(spec.layers[0].attention.qk_norm);
    EXPECT_THAT(spec.ropes[0].description, HasSubstr("llama3 theta 500000 factor 8"));
    EXPECT_THAT(spec.stop_ids, ElementsAre(128001, 128008, 128009));
    EXPECT_EQ(spec.parameters, 8030261248u);
}

TEST(Config, Llama32Tied) {
    const ModelSpec spec = read_spec(config_file(R"({"eos_token_id":128001,"head_dim":64,"hidden_act":"silu",
        "hidden_size":2048,"intermediate_size":8192,"max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama",
        "num_attention_heads":32,"num_hidden_layers":16,"num_key_value_heads":8,"rms_norm_eps":1e-05,
        "rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,
        "rope_type":"llama3"},"rope_theta":500000.0,"tie_word_embeddings":true,"vocab_size":128256})",
        R"({"eos_token_id":[128001,128008,128009]})"));
    ASSERT_EQ(spec.layers.size(), 16u);
    expect_all_layers(spec, {32, 8, 64, 8192, 0});
    EXPECT_THAT(spec.stop_ids, ElementsAre(128001, 128008, 128009));
    EXPECT_EQ(spec.parameters, 1235814400u);
}

TEST(Config, SmolLM2) {
    const ModelSpec spec = read_spec(config_file(R"({"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":576,
        "intermediate_size":1536,"is_llama_config":true,"max_position_embeddings":8192,"model_type":"llama",
        "num_attention_heads":9,"num_hidden_layers":30,"num_key_value_heads":3,"rms_norm_eps":1e-05,"rope_interleaved":false,
        "rope_scaling":null,"rope_theta":100000,"tie_word_embeddings":true,"vocab_size":49152})"));
    ASSERT_EQ(spec.layers.size(), 30u);
    expect_all_layers(spec, {9, 3, 64, 1536, 0});
    EXPECT_EQ(spec.context_length, 8192);
    EXPECT_THAT(spec.ropes[0].description, HasSubstr("default theta 100000"));
    EXPECT_EQ(spec.ropes[0].inv_freq.size(), 32u);
    EXPECT_THAT(spec.stop_ids, ElementsAre(2));
    EXPECT_EQ(spec.parameters, 134515008u);
}

TEST(Config, LlamaDefaults) {
    // Absent: key-value heads as heads, head_dim from hidden, eps 1e-6, theta 10000, context 2048, stop id 2, untied.
    const ModelSpec spec = read_spec(config_file(R"({"model_type":"llama","hidden_size":64,"num_attention_heads":4,
        "num_hidden_layers":2,"intermediate_size":96,"vocab_size":50,"head_dim":null})"));
    expect_all_layers(spec, {4, 4, 16, 96, 0});
    EXPECT_FLOAT_EQ(spec.norm.eps, 1e-6f);
    EXPECT_EQ(spec.context_length, 2048);
    EXPECT_THAT(spec.stop_ids, ElementsAre(2));
    EXPECT_EQ(spec.parameters, 2u * 50 * 64 + 64 + 2 * (2 * 64 + 4 * 64 * 64 + 3 * 64 * 96));
}

TEST(Config, Mistral) {
    const std::string common = R"("hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,"model_type":"mistral",
        "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,"rms_norm_eps":1e-05,
        "tie_word_embeddings":false,"eos_token_id":2)";
    const ModelSpec v1 = read_spec(config_file("{" + common + R"(,"max_position_embeddings":32768,"rope_theta":10000.0,
        "sliding_window":4096,"vocab_size":32000})"));
    EXPECT_EQ(v1.architecture, "mistral");
    expect_all_layers(v1, {32, 8, 128, 14336, 4096});
    const ModelSpec v3 = read_spec(config_file("{" + common + R"(,"max_position_embeddings":32768,"rope_theta":1000000.0,
        "sliding_window":null,"vocab_size":32768})"));
    expect_all_layers(v3, {32, 8, 128, 14336, 0});
    EXPECT_EQ(v3.vocab, 32768);
    const ModelSpec absent = read_spec(config_file("{" + common + R"(,"vocab_size":32768})"));
    expect_all_layers(absent, {32, 8, 128, 14336, 4096});
    EXPECT_EQ(absent.context_length, 131072);
}

TEST(Config, MistralNemo) {
    const ModelSpec spec = read_spec(config_file(R"({"model_type":"mistral","head_dim":128,"hidden_act":"silu",
        "hidden_size":5120,"intermediate_size":14336,"max_position_embeddings":131072,"num_attention_heads":32,
        "num_hidden_layers":40,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":1000000.0,"sliding_window":null,
        "tie_word_embeddings":false,"vocab_size":131072,"eos_token_id":2})"));
    ASSERT_EQ(spec.layers.size(), 40u);
    expect_all_layers(spec, {32, 8, 128, 14336, 0});  // 32 * 128 is not 5120
    EXPECT_EQ(spec.parameters, 12247782400u);
}

TEST(Config, Qwen25) {
    const std::string config = R"({"model_type":"qwen2","hidden_act":"silu","hidden_size":896,"intermediate_size":4864,
        "max_position_embeddings":32768,"max_window_layers":21,"num_attention_heads":14,"num_hidden_layers":24,
        "num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,
        "tie_word_embeddings":true,"use_sliding_window":false,"vocab_size":151936,"eos_token_id":151645})";
    const ModelSpec spec = read_spec(config_file(config, R"({"eos_token_id":[151645,151643]})"));
    EXPECT_EQ(spec.architecture, "qwen2");
    ASSERT_EQ(spec.layers.size(), 24u);
    expect_all_layers(spec, {14, 2, 64, 4864, 0});
    EXPECT_THAT(spec.stop_ids, ElementsAre(151645, 151643));
    EXPECT_EQ(spec.parameters, 494032768u);

    test::Json sliding = test::Json::parse(config);
    sliding["use_sliding_window"] = true;
    const ModelSpec late = read_spec(config_file(sliding.dump()));
    for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(late.layers[i].attention.window, i >= 21 ? 32768 : 0);
    sliding.erase("max_window_layers");  // 28 when absent
    EXPECT_EQ(read_spec(config_file(sliding.dump())).layers.back().attention.window, 0);
    sliding["sliding_window"] = nullptr;
    sliding["max_window_layers"] = 0;
    EXPECT_EQ(read_spec(config_file(sliding.dump())).layers.front().attention.window, 0);
    sliding["sliding_window"] = 100;
    sliding["layer_types"] = std::vector<std::string>(24, "full_attention");
    sliding["layer_types"][3] = "sliding_attention";
    const ModelSpec listed = read_spec(config_file(sliding.dump()));
    for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(listed.layers[i].attention.window, i == 3 ? 100 : 0);
}

TEST(Config, Qwen3) {
    for (const char* rope : {R"("rope_scaling":null,"rope_theta":1000000)", R"("rope_parameters":{"rope_type":"default","rope_theta":1000000})"}) {
        const ModelSpec spec = read_spec(config_file(R"({"model_type":"qwen3","attention_bias":false,"head_dim":128,
            "hidden_act":"silu","hidden_size":1024,"intermediate_size":3072,"max_position_embeddings":40960,
            "max_window_layers":28,"num_attention_heads":16,"num_hidden_layers":28,"num_key_value_heads":8,
            "rms_norm_eps":1e-06,"sliding_window":null,"tie_word_embeddings":true,"use_sliding_window":false,
            "vocab_size":151936,"eos_token_id":151645,)" + std::string(rope) + "}"));
        EXPECT_EQ(spec.architecture, "qwen3");
        ASSERT_EQ(spec.layers.size(), 28u);
        expect_all_layers(spec, {16, 8, 128, 3072, 0});
        EXPECT_TRUE(spec.layers[27].attention.qk_norm);
        EXPECT_EQ(spec.qk_norm.eps, 1e-6f);
        EXPECT_THAT(spec.ropes[0].description, HasSubstr("theta 1e+06"));
        EXPECT_EQ(spec.parameters, 596049920u);
    }
}

void expect_gemma3(const ModelSpec& spec, Shape shape, int window, int period) {
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
        SCOPED_TRACE(i);
        const bool full = (i + 1) % static_cast<std::size_t>(period) == 0;
        Shape expected = shape;
        expected.window = full ? 0 : window;
        EXPECT_EQ(shape_of(spec.layers[i]), expected);
        EXPECT_EQ(spec.layers[i].attention.rope, full ? 1 : 0);
        EXPECT_TRUE(spec.layers[i].attention.qk_norm);
        EXPECT_FLOAT_EQ(spec.layers[i].attention.scale, 0.0625f);
        EXPECT_EQ(spec.layers[i].feed_forward.activation, Activation::gelu_tanh);
    }
    EXPECT_EQ(spec.ropes.size(), 2u);
    EXPECT_EQ(spec.norm.kind, NormKind::one_plus);
    EXPECT_EQ(spec.qk_norm.kind, NormKind::one_plus);
    EXPECT_FLOAT_EQ(spec.embed_scale, std::sqrt(static_cast<float>(spec.hidden)));
    EXPECT_EQ(spec.architecture, "gemma3");
}

TEST(Config, Gemma3Small) {
    const std::string common = R"("model_type":"gemma3_text","attn_logit_softcapping":null,"final_logit_softcapping":null,
        "head_dim":256,"hidden_activation":"gelu_pytorch_tanh","num_attention_heads":4,"num_key_value_heads":1,
        "query_pre_attn_scalar":256,"rms_norm_eps":1e-06,"rope_local_base_freq":10000.0,"rope_scaling":null,
        "rope_theta":1000000.0,"sliding_window":512,"vocab_size":262144,"eos_token_id":[1,106],"max_position_embeddings":32768)";
    const ModelSpec m270 = read_spec(config_file("{" + common + R"(,"_sliding_window_pattern":7,"hidden_size":640,
        "intermediate_size":2048,"num_hidden_layers":18,"use_bidirectional_attention":false})"));
    ASSERT_EQ(m270.layers.size(), 18u);
    expect_gemma3(m270, {4, 1, 256, 2048, 0}, 512, 6);  // the underscored key is never read
    EXPECT_THAT(m270.ropes[0].description, HasSubstr("theta 10000"));
    EXPECT_THAT(m270.ropes[1].description, HasSubstr("theta 1e+06"));
    EXPECT_THAT(m270.stop_ids, ElementsAre(1, 106));
    EXPECT_EQ(m270.parameters, 268098176u);
    const ModelSpec m1b = read_spec(config_file("{" + common + R"(,"sliding_window_pattern":6,"hidden_size":1152,
        "intermediate_size":6912,"num_hidden_layers":26})"));
    expect_gemma3(m1b, {4, 1, 256, 6912, 0}, 512, 6);
    EXPECT_EQ(m1b.parameters, 999885952u);
}

TEST(Config, Gemma3SparseWrapper) {
    const ModelSpec spec = read_spec(config_file(R"({"architectures":["Gemma3ForConditionalGeneration"],
        "eos_token_id":[1,106],"model_type":"gemma3","text_config":{"hidden_size":2560,"intermediate_size":10240,
        "model_type":"gemma3_text","num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"},
        "sliding_window":1024},"vision_config":{"hidden_size":1152,"model_type":"siglip_vision_model"}})"));
    ASSERT_EQ(spec.layers.size(), 34u);
    expect_gemma3(spec, {8, 4, 256, 10240, 0}, 1024, 6);
    EXPECT_EQ(spec.vocab, 262208);
    EXPECT_EQ(spec.context_length, 131072);
    EXPECT_THAT(spec.ropes[0].description, HasSubstr("default theta 10000"));
    EXPECT_THAT(spec.ropes[1].description, HasSubstr("linear theta 1e+06 factor 8"));
    EXPECT_EQ(spec.parameters, 3880263168u);
}

TEST(Config, Gemma3NewSpelling) {
    const ModelSpec spec = read_spec(config_file(R"({"model_type":"gemma3_text","hidden_size":64,"num_hidden_layers":3,
        "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":96,"vocab_size":50,"head_dim":256,
        "sliding_window":7,"layer_types":["full_attention","sliding_attention","sliding_attention"],
        "rope_parameters":{"full_attention":{"rope_type":"linear","factor":2.0,"rope_theta":500.0},
        "sliding_attention":{"rope_type":"default","rope_theta":100.0}},"attn_logit_softcapping":50.0,
        "final_logit_softcapping":30.0})"));
    EXPECT_EQ(spec.layers[0].attention.window, 0);
    EXPECT_EQ(spec.layers[1].attention.window, 7);
    EXPECT_EQ(spec.layers[2].attention.rope, 1);
    EXPECT_EQ(spec.layers[1].attention.softcap, 50);
    EXPECT_EQ(spec.final_softcap, 30);
    EXPECT_THAT(spec.ropes[0].description, HasSubstr("linear theta 500 factor 2"));
    EXPECT_THAT(spec.ropes[1].description, HasSubstr("default theta 100"));
}

std::string refused(const std::string& config) {
    return test::error_of(ErrorKind::unsupported, [&] { read_spec(config_file(config)); });
}

TEST(Config, RefusesByNameWhatChangesResults) {
    test::Json llama = test::Json::parse(llama31_8b);
    const auto with = [&](const char* key, const test::Json& value) {
        test::Json changed = llama;
        changed[key] = value;
        return changed.dump();
    };
    EXPECT_THAT(refused(with("model_type", "mamba")), testing::AllOf(HasSubstr("'mamba'"), HasSubstr("config.json"), HasSubstr("qwen3")));
    EXPECT_THAT(refused(with("hidden_act", "relu2")), testing::AllOf(HasSubstr("'hidden_act'"), HasSubstr("relu2")));
    EXPECT_THAT(refused(with("hidden_act", "gelu")), HasSubstr("gelu"));
    EXPECT_THAT(refused(with("is_causal", false)), HasSubstr("'is_causal' is false"));
    EXPECT_THAT(refused(with("use_bidirectional_attention", true)), HasSubstr("'use_bidirectional_attention' is true"));
    EXPECT_NO_THROW(read_spec(config_file(with("is_causal", true))));
    EXPECT_NO_THROW(read_spec(config_file(with("use_bidirectional_attention", false))));
    EXPECT_THAT(refused(R"({"model_type":"gemma3","text_config":{"use_bidirectional_attention":true}})"), HasSubstr("text_config"));
    EXPECT_THAT(refused(R"({"model_type":"gemma3_text","rope_parameters":{"rope_type":"linear","factor":2,"rope_theta":1}})"),
                HasSubstr("full_attention and sliding_attention"));
    EXPECT_THAT(refused(R"({"model_type":"gemma3_text","num_hidden_layers":1,"layer_types":["linear_attention"]})"), HasSubstr("linear_attention"));
}

TEST(Config, WrongValuesAreErrorsThatNameTheKey) {
    const test::Json llama = test::Json::parse(llama31_8b);
    const std::vector<std::pair<std::string, test::Json>> cases{
        {"hidden_size", "big"}, {"hidden_size", 0}, {"hidden_size", -4}, {"hidden_size", 1.5}, {"hidden_size", 1e30},
        {"num_hidden_layers", 1000000000}, {"num_hidden_layers", 0}, {"num_attention_heads", true}, {"head_dim", 7},
        {"num_key_value_heads", 0}, {"vocab_size", 1ull << 40}, {"rms_norm_eps", "x"}, {"hidden_act", 3},
        {"max_position_embeddings", -1}, {"attention_bias", 1}, {"tie_word_embeddings", "yes"}, {"eos_token_id", "two"},
        {"eos_token_id", {1, 2.5}}, {"rope_scaling", "llama3"}, {"rope_theta", {1}},
    };
    for (const auto& [key, value] : cases) {
        SCOPED_TRACE(key + " " + value.dump());
        test::Json changed = llama;
        changed[key] = value;
        EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { read_spec(config_file(changed.dump())); }),
                    testing::AllOf(HasSubstr(key), HasSubstr("models/test: config.json")));
    }
    test::Json uneven = llama;
    uneven["num_key_value_heads"] = 5;
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { read_spec(config_file(uneven.dump())); }), HasSubstr("32 query heads"));
    for (const char* key : {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"}) {
        test::Json lacking = llama;
        lacking.erase(key);
        EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { read_spec(config_file(lacking.dump())); }),
                    HasSubstr("'" + std::string(key) + "' is missing"));
    }
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { read_spec(config_file("[1]")); }), HasSubstr("JSON object"));
}

TEST(Config, StopIdsOutsideTheVocabularyAreDropped) {
    const ModelSpec spec = read_spec(config_file(R"({"model_type":"llama","hidden_size":64,"num_attention_heads":4,
        "num_hidden_layers":1,"intermediate_size":96,"vocab_size":50,"eos_token_id":[-1,49,50,18446744073709551615,49,3]})"));
    EXPECT_THAT(spec.stop_ids, ElementsAre(49, 3));
}

}  // namespace
}  // namespace forge
