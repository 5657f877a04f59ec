// config.json of released models with experts, gated DeltaNet and shared caches.
#include "model/bind.h"
#include "support.h"

namespace forge {
namespace {

using test::config_file;
using testing::HasSubstr;

TEST(MixedConfig, Mixtral) {
    const ModelSpec spec = read_spec(config_file(R"({"model_type":"mixtral","hidden_act":"silu","hidden_size":4096,
        "intermediate_size":14336,"max_position_embeddings":32768,"num_attention_heads":32,"num_experts_per_tok":2,
        "num_hidden_layers":32,"num_key_value_heads":8,"num_local_experts":8,"rms_norm_eps":1e-05,"rope_theta":1000000.0,
        "sliding_window":null,"tie_word_embeddings":false,"vocab_size":32000,"eos_token_id":2})"));
    EXPECT_EQ(spec.parameters, 46702792704u);
    for (const LayerSpec& layer : spec.layers) {
        EXPECT_EQ(layer.feed_forward.width, 0);
        EXPECT_EQ(layer.feed_forward.moe.experts, 8);
        EXPECT_EQ(layer.feed_forward.moe.per_token, 2);
        EXPECT_EQ(layer.feed_forward.moe.width, 14336);
        EXPECT_TRUE(layer.feed_forward.moe.normalise);
        EXPECT_FALSE(layer.feed_forward.moe.round_weights);
        EXPECT_EQ(layer.attention.window, 0);
    }
}

TEST(MixedConfig, Qwen3Moe) {
    test::Json config = test::Json::parse(R"({"model_type":"qwen3_moe","decoder_sparse_step":1,"head_dim":128,"hidden_act":"silu",
        "hidden_size":2048,"intermediate_size":6144,"max_position_embeddings":40960,"max_window_layers":48,
        "mlp_only_layers":[],"moe_intermediate_size":768,"norm_topk_prob":true,"num_attention_heads":32,"num_experts":128,
        "num_experts_per_tok":8,"num_hidden_layers":48,"num_key_value_heads":4,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
        "sliding_window":null,"tie_word_embeddings":false,"use_sliding_window":false,"vocab_size":151936})");
    ModelSpec spec = read_spec(config_file(config.dump()));
    EXPECT_EQ(spec.parameters, 30532122624u);
    EXPECT_TRUE(spec.layers[0].feed_forward.moe.normalise);
    EXPECT_TRUE(spec.layers[0].feed_forward.moe.round_weights);
    EXPECT_TRUE(spec.layers[0].attention.qk_norm);
    config.erase("norm_topk_prob");
    config["mlp_only_layers"] = {0, 3};
    config["decoder_sparse_step"] = 2;
    spec = read_spec(config_file(config.dump()));
    for (std::size_t i = 0; i < 48; ++i) {
        const bool sparse = i % 2 == 1 && i != 3;
        EXPECT_EQ(spec.layers[i].feed_forward.moe.experts, sparse ? 128 : 0) << i;
        EXPECT_EQ(spec.layers[i].feed_forward.width, sparse ? 0 : 6144) << i;
    }
    EXPECT_FALSE(spec.layers[1].feed_forward.moe.normalise);
    config["num_experts_per_tok"] = 129;
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { read_spec(config_file(config.dump())); }), HasSubstr("num_experts_per_tok"));
}

TEST(MixedConfig, Qwen35) {
    const ModelSpec spec = read_spec(config_file(R"({"model_type":"qwen3_5","tie_word_embeddings":true,"text_config":{
        "model_type":"qwen3_5_text","attention_bias":false,"attn_output_gate":true,"eos_token_id":248044,
        "full_attention_interval":4,"head_dim":256,"hidden_act":"silu","hidden_size":1024,"intermediate_size":3584,
        "linear_conv_kernel_dim":4,"linear_key_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":16,
        "linear_value_head_dim":128,"max_position_embeddings":262144,"num_attention_heads":8,"num_hidden_layers":24,
        "num_key_value_heads":2,"rms_norm_eps":1e-06,"vocab_size":248320,"rope_parameters":{"mrope_interleaved":true,
        "mrope_section":[11,11,10],"partial_rotary_factor":0.25,"rope_theta":10000000,"rope_type":"default"}}})",
        R"({"eos_token_id":[248046,248044]})"));
    EXPECT_EQ(spec.parameters, 752393024u);
    EXPECT_THAT(spec.stop_ids, testing::ElementsAre(248046, 248044));
    EXPECT_EQ(spec.norm.kind, NormKind::one_plus);
    for (std::size_t i = 0; i < 24; ++i) {
        const LayerSpec& layer = spec.layers[i];
        const bool full = i % 4 == 3;
        EXPECT_EQ(layer.mixer, full ? MixerKind::attention : MixerKind::gated_delta) << i;
        if (full) {
            EXPECT_TRUE(layer.attention.gated);
            EXPECT_EQ(layer.attention.kv_layer, static_cast<int>(i));
            EXPECT_EQ(layer.attention.scale, 0.0625f);
        } else {
            EXPECT_EQ(layer.delta.conv_channels(), 6144);
            EXPECT_EQ(layer.delta.n_k_heads, 16);
            EXPECT_FALSE(layer.delta.tiled_heads);
            EXPECT_FALSE(layer.delta.a_is_negative_exp);
        }
    }
    ASSERT_EQ(spec.ropes.size(), 1u);
    EXPECT_EQ(spec.ropes[0].inv_freq.size(), 32u);  // 64 of 256 dims
}

TEST(MixedConfig, Gemma4) {
    const ModelSpec spec = read_spec(config_file(R"({"model_type":"gemma4","text_config":{"model_type":"gemma4_text",
        "hidden_size":1536,"intermediate_size":6144,"num_hidden_layers":35,"num_attention_heads":8,"num_key_value_heads":1,
        "head_dim":256,"global_head_dim":512,"sliding_window":512,"num_kv_shared_layers":20,"use_double_wide_mlp":true,
        "hidden_size_per_layer_input":256,"final_logit_softcapping":30.0,"use_bidirectional_attention":"vision",
        "layer_types":["sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
        "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
        "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
        "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
        "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
        "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
        "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention"]}})"));
    EXPECT_EQ(spec.ple_width, 256);
    EXPECT_EQ(spec.final_softcap, 30);
    for (std::size_t i = 0; i < 35; ++i) {
        SCOPED_TRACE(i);
        const AttentionSpec& a = spec.layers[i].attention;
        const bool full = i % 5 == 4;
        EXPECT_EQ(a.head_dim, full ? 512 : 256);
        EXPECT_EQ(a.window, full ? 0 : 512);
        EXPECT_EQ(a.scale, 1);
        EXPECT_TRUE(a.v_norm);
        EXPECT_FALSE(a.v_from_k);
        EXPECT_EQ(a.kv_layer, i < 15 ? static_cast<int>(i) : full ? 14 : 13);
        EXPECT_EQ(spec.layers[i].feed_forward.width, i < 15 ? 6144 : 12288);
    }
    EXPECT_THAT(spec.ropes[1].description, HasSubstr("proportional theta 1e+06 share 0.25"));
    EXPECT_EQ(spec.ropes[1].inv_freq.size(), 256u);
    EXPECT_EQ(spec.ropes[1].inv_freq[63] > 0, true);
    EXPECT_EQ(spec.ropes[1].inv_freq[64], 0);
}

TEST(MixedConfig, Refusals) {
    const auto refused = [](ErrorKind kind, const char* config) {
        return test::error_of(kind, [&] { read_spec(config_file(config)); });
    };
    EXPECT_THAT(refused(ErrorKind::unsupported, R"({"model_type":"gemma4_text","use_bidirectional_attention":"all"})"), HasSubstr("\"all\""));
    EXPECT_THAT(refused(ErrorKind::unsupported, R"({"model_type":"gemma4_text","num_hidden_layers":2,"sliding_window":4,
        "layer_types":["full_attention","full_attention"],"per_layer_config":{"0":{"head_dim":64}}})"), HasSubstr("64"));
    EXPECT_THAT(refused(ErrorKind::invalid_input, R"({"model_type":"gemma4_text","per_layer_config":{"99":{}}})"), HasSubstr("'99'"));
    EXPECT_THAT(refused(ErrorKind::invalid_input, R"({"model_type":"gemma4_text","num_hidden_layers":6,"num_kv_shared_layers":5})"), HasSubstr("share the cache"));
    EXPECT_THAT(refused(ErrorKind::invalid_input, R"({"model_type":"qwen3_next","hidden_size":64,"num_hidden_layers":4,
        "num_attention_heads":4,"vocab_size":9,"linear_num_key_heads":3,"linear_num_value_heads":4})"), HasSubstr("4 value heads"));
}

}  // namespace
}  // namespace forge
