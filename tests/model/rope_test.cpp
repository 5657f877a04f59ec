// Rotary frequencies against the reference's (tools/make_rope_vectors.py).
#include <cmath>

#include "model/bind.h"
#include "support.h"

namespace forge {
namespace {

using test::config_file;
using test::Json;

// Powers are taken in f64 here and by a vector library in f32 there: the last
// bit of a power may differ, and every later step may carry it on.
constexpr float tolerance = 4 * 0x1p-24f;

TEST(Rope, AgreesWithTheReference) {
    const Json cases = Json::parse(test::read_text(FORGE_TEST_DATA "/model/rope.json"));
    ASSERT_GT(cases.size(), 15u);
    for (const Json& c : cases) {
        SCOPED_TRACE(c["name"].get<std::string>() + " " + c["kind"].get<std::string>());
        const ModelSpec spec = read_spec(config_file(c["config"].dump()));
        // Layer 0 slides in Gemma's pattern of six, layer 5 is full; the others have one kind.
        const LayerSpec& layer = c["kind"] == "sliding_attention" ? spec.layers.front() : spec.layers.back();
        const RopeSpec& rope = spec.ropes.at(static_cast<std::size_t>(layer.attention.rope));
        ASSERT_EQ(rope.inv_freq.size(), c["inv_freq"].size());
        for (std::size_t i = 0; i < rope.inv_freq.size(); ++i) {
            const float expected = c["inv_freq"][i].get<float>();
            EXPECT_NEAR(rope.inv_freq[i], expected, tolerance * expected) << "pair " << i;
        }
        EXPECT_FLOAT_EQ(rope.scale, c["scale"].get<float>());
        EXPECT_FALSE(rope.description.empty());
    }
}

TEST(Rope, DivisorsOfAFileDivideTheFrequencies) {
    auto file = test::gguf_file({{"general.architecture", "llama"}, {"llama.context_length", std::uint64_t{64}},
                                 {"llama.embedding_length", std::uint64_t{16}}, {"llama.block_count", std::uint64_t{1}},
                                 {"llama.feed_forward_length", std::uint64_t{32}}, {"llama.attention.head_count", std::uint64_t{2}},
                                 {"llama.attention.layer_norm_rms_epsilon", 1e-5}, {"llama.vocab_size", std::uint64_t{7}},
                                 {"llama.rope.freq_base", 10000.0}});
    const ModelSpec plain = read_spec(file);
    test::Tensors tensors(file);
    tensors.f32("rope_freqs.weight", {4}, {1, 2, 4, 8});
    tensors.done();
    const ModelSpec divided = read_spec(file);
    for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(divided.ropes[0].inv_freq[i], plain.ropes[0].inv_freq[i] / static_cast<float>(1 << i));

    // llama3 is in the tensor: neither its name nor its factor is applied once more.
    file.metadata.set("llama.rope.scaling.factor", 32.0);
    EXPECT_EQ(read_spec(file).ropes[0].inv_freq, divided.ropes[0].inv_freq);
    file.metadata.set("llama.rope.scaling.type", "llama3");
    EXPECT_EQ(read_spec(file).ropes[0].inv_freq, divided.ropes[0].inv_freq);
    // An explicit linear factor is something else and applies.
    file.metadata.set("llama.rope.scaling.type", "linear");
    EXPECT_EQ(read_spec(file).ropes[0].inv_freq[0], divided.ropes[0].inv_freq[0] / 32);
}

std::string with_rope(const std::string& rope) {
    return R"({"model_type":"llama","hidden_size":64,"num_attention_heads":4,"num_hidden_layers":1,"intermediate_size":8,
               "vocab_size":9,"max_position_embeddings":4096,)" + rope + "}";
}

TEST(Rope, TypesThatAreNotImplementedAreRefusedByName) {
    for (const char* name : {"longrope", "dynamic", "su", "axial", "foo"}) {
        const std::string message = test::error_of(ErrorKind::unsupported, [&] {
            read_spec(config_file(with_rope(fmt::format(R"("rope_scaling":{{"type":"{}","factor":2.0}})", name))));
        });
        EXPECT_THAT(message, testing::HasSubstr(name));
        EXPECT_THAT(message, testing::HasSubstr("models/test: config.json rope_scaling"));
    }
}

TEST(Rope, SenselessParametersAreErrors) {
    for (const char* rope : {
             R"("rope_theta":0)", R"("rope_theta":-1)", R"("rope_theta":"big")",
             R"("rope_scaling":{"rope_type":"linear"})",
             R"("rope_scaling":{"rope_type":"linear","factor":0})",
             R"("rope_scaling":{"rope_type":"linear","factor":"2"})",
             R"("rope_scaling":{"rope_type":"llama3","factor":8})",
             R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})",
             R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":0,"high_freq_factor":4})",
             R"("rope_scaling":{"rope_type":"yarn","factor":8,"original_max_position_embeddings":0})",
             R"("rope_scaling":{"rope_type":"yarn","factor":8,"beta_fast":-1})",
             R"("rope_scaling":{"rope_type":"yarn","factor":1e300,"attention_factor":1e300})",
             R"("rope_scaling":{"rope_type":"linear","factor":2,"partial_rotary_factor":0})",
             R"("rope_scaling":{"rope_type":"linear","factor":2,"partial_rotary_factor":1.5})",
             R"("rope_scaling":{"rope_type":"yarn","factor":2,"partial_rotary_factor":0.45})",
             R"("rope_scaling":{"rope_type":"linear","factor":2,"partial_rotary_factor":0.01})",
             R"("rope_scaling":[1])", R"("rope_parameters":{"full_attention":null})",
         }) {
        SCOPED_TRACE(rope);
        const std::string message = test::error_of(ErrorKind::invalid_input, [&] { read_spec(config_file(with_rope(rope))); });
        EXPECT_THAT(message, testing::HasSubstr("models/test"));
    }
}

TEST(Rope, OneEntryEachForLayersThatShareIt) {
    const ModelSpec spec = read_spec(config_file(with_rope(
        R"("rope_parameters":{"rope_type":"default","rope_theta":10000.0})")));
    EXPECT_EQ(spec.ropes.size(), 1u);
    EXPECT_EQ(spec.ropes[0].inv_freq.size(), 8u);
    EXPECT_EQ(spec.ropes[0].inv_freq[0], 1.0f);
}

}  // namespace
}  // namespace forge
