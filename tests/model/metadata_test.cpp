// GGUF metadata -> the descriptor.
#include <cmath>

#include "model/bind.h"
#include "support.h"

namespace forge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::uint64_t u(int value) { return static_cast<std::uint64_t>(value); }

ModelFile decoder(const std::string& arch) {
    ModelFile file = test::gguf_file({{"general.architecture", arch}, {"general.name", "A Model"},
                                      {"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.eos_token_id", u(2)},
                                      {"tokenizer.ggml.eot_token_id", u(5)}});
    const auto set = [&](const std::string& key, const MetaValue& value) { file.metadata.set(arch + "." + key, value); };
    set("context_length", u(8192));
    set("embedding_length", u(576));
    set("block_count", u(6));
    set("feed_forward_length", u(1536));
    set("attention.head_count", u(9));
    set("attention.head_count_kv", u(3));
    set("attention.layer_norm_rms_epsilon", 1e-5);
    set("rope.freq_base", 100000.0);
    set("vocab_size", u(49152));
    return file;
}

TEST(Metadata, Llama) {
    const ModelSpec spec = read_spec(decoder("llama"));
    EXPECT_EQ(spec.architecture, "llama");
    EXPECT_EQ(spec.name, "A Model");
    EXPECT_EQ(spec.hidden, 576);
    EXPECT_EQ(spec.vocab, 49152);
    EXPECT_EQ(spec.context_length, 8192);
    EXPECT_FLOAT_EQ(spec.norm.eps, 1e-5f);
    EXPECT_EQ(spec.norm.kind, NormKind::two_rounding);
    EXPECT_EQ(spec.embed_scale, 1);
    ASSERT_EQ(spec.layers.size(), 6u);
    for (const LayerSpec& layer : spec.layers) {
        EXPECT_EQ(layer.attention.n_heads, 9);
        EXPECT_EQ(layer.attention.n_kv_heads, 3);
        EXPECT_EQ(layer.attention.head_dim, 64);
        EXPECT_EQ(layer.attention.window, 0);
        EXPECT_FLOAT_EQ(layer.attention.scale, 0.125f);
        EXPECT_FALSE(layer.attention.qk_norm);
        EXPECT_EQ(layer.feed_forward.width, 1536);
    }
    EXPECT_THAT(spec.ropes[0].description, HasSubstr("theta 100000"));
    EXPECT_EQ(spec.ropes[0].inv_freq.size(), 32u);
    EXPECT_THAT(spec.stop_ids, ElementsAre(2, 5));
}

TEST(Metadata, DefaultsOfAbsentKeys) {
    ModelFile file = test::gguf_file({{"general.architecture", "qwen3"}, {"tokenizer.ggml.model", "gpt2"},
                                      {"qwen3.context_length", u(10)}, {"qwen3.embedding_length", u(64)},
                                      {"qwen3.block_count", u(1)}, {"qwen3.feed_forward_length", u(96)},
                                      {"qwen3.attention.head_count", u(4)}, {"qwen3.attention.key_length", u(128)},
                                      {"qwen3.attention.value_length", u(128)}, {"qwen3.attention.layer_norm_rms_epsilon", 1e-6},
                                      {"tokenizer.ggml.tokens", std::vector<std::string>(20, "a")}});
    const ModelSpec spec = read_spec(file);
    EXPECT_EQ(spec.layers[0].attention.n_kv_heads, 4);
    EXPECT_EQ(spec.layers[0].attention.head_dim, 128);
    EXPECT_TRUE(spec.layers[0].attention.qk_norm);
    EXPECT_EQ(spec.vocab, 20);
    EXPECT_THAT(spec.ropes[0].description, HasSubstr("theta 10000"));
    EXPECT_THAT(spec.stop_ids, ElementsAre(11));  // of a gpt2 vocabulary without an end id
    file.metadata.set("tokenizer.ggml.model", "llama");
    EXPECT_THAT(read_spec(file).stop_ids, ElementsAre(2));
}

TEST(Metadata, NumbersOfEachLayer) {
    ModelFile file = decoder("llama");
    file.metadata.set("llama.attention.head_count_kv", std::vector<std::int64_t>{3, 3, 9, 1, 3, 3});
    file.metadata.set("llama.feed_forward_length", std::vector<std::int64_t>{8, 16, 24, 32, 40, 48});
    const ModelSpec spec = read_spec(file);
    EXPECT_EQ(spec.layers[2].attention.n_kv_heads, 9);
    EXPECT_EQ(spec.layers[3].attention.n_kv_heads, 1);
    EXPECT_EQ(spec.layers[4].feed_forward.width, 40);
    file.metadata.set("llama.feed_forward_length", std::vector<std::int64_t>{8, 16});
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { read_spec(file); }), HasSubstr("llama.feed_forward_length"));
}

TEST(Metadata, RopeScaling) {
    ModelFile file = decoder("llama");
    const auto first = [&] { return read_spec(file).ropes[0].inv_freq[0]; };
    EXPECT_EQ(first(), 1.0f);
    file.metadata.set("llama.rope.scale_linear", 4.0);  // the old key
    EXPECT_EQ(first(), 0.25f);
    file.metadata.set("llama.rope.scaling.factor", 8.0);  // factor without a type is linear
    EXPECT_EQ(first(), 0.125f);
    file.metadata.set("llama.rope.scaling.type", "none");
    EXPECT_EQ(first(), 1.0f);
    file.metadata.set("llama.rope.scaling.type", "linear");
    EXPECT_EQ(first(), 0.125f);
    file.metadata.set("llama.rope.scaling.type", "yarn");
    file.metadata.set("llama.rope.scaling.original_context_length", u(1024));
    RopeSpec yarn = read_spec(file).ropes[0];
    EXPECT_EQ(yarn.inv_freq[0], 1.0f);  // the fastest pair is kept
    EXPECT_NEAR(yarn.inv_freq.back(), std::pow(100000.0, -62.0 / 64) / 8, 1e-9);
    EXPECT_FLOAT_EQ(yarn.scale, static_cast<float>(0.1 * std::log(8.0) + 1));
    file.metadata.set("llama.rope.scaling.yarn_attn_factor", 0.5);
    file.metadata.set("llama.rope.scaling.attn_factor", 3.0);
    EXPECT_FLOAT_EQ(read_spec(file).ropes[0].scale, 1.5f);
    for (const char* type : {"longrope", "llama3", "dynamic"}) {
        file.metadata.set("llama.rope.scaling.type", type);
        EXPECT_THAT(test::error_of(ErrorKind::unsupported, [&] { read_spec(file); }),
                    testing::AllOf(HasSubstr("test.gguf: llama.rope.scaling.type"), HasSubstr(type)));
    }
}

TEST(Metadata, Gemma3) {
    ModelFile file = decoder("gemma3");
    file.metadata.set("gemma3.attention.key_length", u(256));
    file.metadata.set("gemma3.attention.sliding_window", u(512));
    file.metadata.set("gemma3.rope.freq_base", 1e6);
    file.metadata.set("gemma3.rope.scaling.type", "linear");
    file.metadata.set("gemma3.rope.scaling.factor", 8.0);
    file.metadata.set("gemma3.final_logit_softcapping", 30.0);
    ModelSpec spec = read_spec(file);
    EXPECT_EQ(spec.norm.kind, NormKind::one_rounding);
    EXPECT_EQ(spec.qk_norm.kind, NormKind::one_rounding);
    EXPECT_FLOAT_EQ(spec.embed_scale, 24);
    EXPECT_EQ(spec.final_softcap, 30);
    for (std::size_t i = 0; i < 6; ++i) {
        const AttentionSpec& a = spec.layers[i].attention;
        EXPECT_EQ(a.window, i == 5 ? 0 : 512);
        EXPECT_FLOAT_EQ(a.scale, 0.0625f);
        EXPECT_THAT(spec.ropes[static_cast<std::size_t>(a.rope)].description,
                    HasSubstr(i == 5 ? "linear theta 1e+06 factor 8" : "default theta 10000"));
        EXPECT_EQ(spec.layers[i].feed_forward.activation, Activation::gelu_tanh);
    }
    file.metadata.set("gemma3.rope.freq_base_swa", 20000.0);
    EXPECT_THAT(read_spec(file).ropes[0].description, HasSubstr("theta 20000"));
    const auto windows = [&] {
        std::string out;
        for (const LayerSpec& layer : read_spec(file).layers) out += layer.attention.window ? 's' : 'f';
        return out;
    };
    file.metadata.set("gemma3.attention.sliding_window_pattern", u(2));
    EXPECT_EQ(windows(), "sfsfsf");
    file.metadata.set("gemma3.attention.sliding_window_pattern", std::vector<bool>{false, true, true, false, true, true});
    EXPECT_EQ(windows(), "fssfss");
    file.metadata.set("gemma3.attention.sliding_window_pattern", std::vector<bool>{false, true});
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { read_spec(file); }), HasSubstr("sliding_window_pattern has 2 entries"));
    file.metadata.set("gemma3.attention.sliding_window", u(0));
    EXPECT_EQ(windows(), "ffffff");
    // The 27B model is known by its 62 layers: scaled by hidden / heads.
    file.metadata.set("gemma3.block_count", u(62));
    EXPECT_FLOAT_EQ(read_spec(file).layers[0].attention.scale, 0.125f);
}

TEST(Metadata, Refusals) {
    const auto refused = [](const std::string& arch, const std::string& key, const MetaValue& value) {
        ModelFile file = decoder(arch);
        file.metadata.set(key, value);
        return test::error_of(ErrorKind::unsupported, [&] { read_spec(file); });
    };
    EXPECT_THAT(refused("llama", "general.architecture", "mamba"), testing::AllOf(HasSubstr("'mamba'"), HasSubstr("gemma3")));
    EXPECT_THAT(refused("llama", "general.type", "adapter"), HasSubstr("'adapter'"));
    EXPECT_THAT(refused("llama", "llama.attention.causal", false), HasSubstr("llama.attention.causal is false"));
    EXPECT_THAT(refused("mistral3", "mistral3.attention.temperature_scale", 0.1), HasSubstr("temperature_scale"));
    EXPECT_THAT(refused("mistral3", "mistral3.rope.scaling.yarn_log_multiplier", 1.0), HasSubstr("yarn_log_multiplier"));
    EXPECT_THAT(refused("llama", "llama.attention.value_length", u(32)), HasSubstr("value_length is 32"));
    EXPECT_EQ(read_spec(decoder("mistral3")).architecture, "llama");
    ModelFile harmless = decoder("llama");
    harmless.metadata.set("llama.expert_count", u(0));
    harmless.metadata.set("llama.attention.causal", true);
    EXPECT_NO_THROW(read_spec(harmless));
}

TEST(Metadata, WrongValuesAreErrorsThatNameTheKey) {
    for (const auto& [key, value] : std::initializer_list<std::pair<const char*, MetaValue>>{
             {"llama.block_count", u(0)}, {"llama.block_count", u(1 << 30)}, {"llama.embedding_length", "many"},
             {"llama.attention.head_count", u(0)}, {"llama.attention.head_count_kv", u(0)}, {"llama.context_length", std::int64_t{-1}},
             {"llama.attention.layer_norm_rms_epsilon", std::nan("")}, {"llama.rope.freq_base", "x"},
             {"llama.rope.dimension_count", u(100)}, {"llama.attention.key_length", u(100000)}, {"llama.vocab_size", u(0)}}) {
        SCOPED_TRACE(key);
        ModelFile file = decoder("llama");
        file.metadata.set(key, value);
        EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { read_spec(file); }), testing::AllOf(HasSubstr(key), HasSubstr("test.gguf")));
    }
    ModelFile empty = test::gguf_file({{"general.architecture", "llama"}});
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { read_spec(empty); }), HasSubstr("llama.embedding_length"));
}

}  // namespace
}  // namespace forge
