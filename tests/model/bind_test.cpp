// Binding: which bytes become which weight, and what is refused.
#include "model/bind.h"

#include <filesystem>

#include "base/float16.h"
#include "support.h"

namespace forge {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ThreadPool& pool() {
    static ThreadPool threads(2);
    return threads;
}

constexpr int hidden = 8, heads = 2, kv_heads = 1, head_dim = 4, width = 12, vocab = 5;

// One Llama layer of floats that are all different.
struct Tiny {
    ModelFile file;
    test::Tensors tensors{file};
    explicit Tiny(const char* more = "") {
        file = test::config_file(fmt::format(R"({{"model_type":"llama","hidden_size":{},"num_attention_heads":{},
            "num_key_value_heads":{},"num_hidden_layers":1,"intermediate_size":{},"vocab_size":{}{}}})", hidden, heads, kv_heads, width, vocab, more));
        tensors.ramp("model.embed_tokens.weight", {vocab, hidden});
        tensors.ramp("model.norm.weight", {hidden}, 100);
        tensors.ramp("lm_head.weight", {vocab, hidden}, 200);
        layer("input_layernorm.weight", {hidden}, 300);
        layer("post_attention_layernorm.weight", {hidden}, 400);
        layer("self_attn.q_proj.weight", {heads * head_dim, hidden}, 500);
        layer("self_attn.k_proj.weight", {kv_heads * head_dim, hidden}, 600);
        layer("self_attn.v_proj.weight", {kv_heads * head_dim, hidden}, 700);
        layer("self_attn.o_proj.weight", {hidden, heads * head_dim}, 800);
        layer("mlp.gate_proj.weight", {width, hidden}, 900);
        layer("mlp.up_proj.weight", {width, hidden}, 1000);
        layer("mlp.down_proj.weight", {hidden, width}, 1100);
    }
    void layer(const std::string& name, std::vector<std::int64_t> shape, float first) {
        tensors.ramp("model.layers.0." + name, std::move(shape), first);
    }
    void drop(const std::string& name) {
        std::erase_if(file.tensors, [&](const Tensor& t) { return t.name == name; });
    }
    std::shared_ptr<const BoundModel> bind() {
        file.index_names();
        return bind_model(file, pool());
    }
};

std::vector<float> all(const BoundModel& model, WeightId id) {
    const Weight& weight = model.weights.at(static_cast<std::size_t>(id));
    std::vector<float> out(static_cast<std::size_t>(weight.rows * weight.cols));
    for (std::int64_t r = 0; r < weight.rows; ++r) decode_row(weight, r, out.data() + r * weight.cols);
    return out;
}

TEST(Bind, EveryRoleGetsItsTensor) {
    Tiny tiny;
    const auto model = tiny.bind();
    const LayerSpec& layer = model->spec.layers[0];
    const auto first = [&](WeightId id) { return all(*model, id).front(); };
    EXPECT_EQ(first(model->spec.embed), 0);
    EXPECT_EQ(first(model->spec.final_norm), 100);
    EXPECT_EQ(first(model->spec.head), 200);
    const std::pair<Role, float> expected[]{{Role::attn_norm, 300.f}, {Role::ffn_norm, 400.f}, {Role::attn_q, 500.f},
                                            {Role::attn_k, 600.f}, {Role::attn_v, 700.f}, {Role::attn_o, 800.f},
                                            {Role::ffn_gate, 900.f}, {Role::ffn_up, 1000.f}, {Role::ffn_down, 1100.f}};
    for (const auto& [role, value] : expected) EXPECT_EQ(first(layer[role]), value) << name_of(role);
    for (const Role role : {Role::attn_q_bias, Role::attn_q_norm, Role::ffn_down_bias, Role::attn_post_norm}) EXPECT_EQ(layer[role], -1);
    const Weight& down = model->weights[static_cast<std::size_t>(layer[Role::ffn_down])];
    EXPECT_EQ(down.rows, hidden);
    EXPECT_EQ(down.cols, width);
    EXPECT_EQ(down.name, "model.layers.0.mlp.down_proj.weight");
    // Matrices stay where the file has them; vectors are floats of one row, owned.
    EXPECT_EQ(down.codes.data, tiny.file.get(down.name).data.data());
    const Weight& norm = model->weights[static_cast<std::size_t>(layer[Role::attn_norm])];
    EXPECT_EQ(norm.rows, 1);
    EXPECT_EQ(norm.cols, hidden);
    EXPECT_EQ(norm.format.dense_type, DType::f32);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(norm.codes.data) % 64, 0u);
    EXPECT_EQ(model->spec.parameters, 2u * vocab * hidden + 3 * hidden + 2 * 64 + 2 * 32 + 3 * width * hidden);
    EXPECT_EQ(model->bytes(), model->spec.parameters * 4);
}

TEST(Bind, ReadSpecGivesTheSameIds) {
    Tiny tiny;
    const auto model = tiny.bind();
    const ModelSpec spec = read_spec(tiny.file);
    EXPECT_EQ(spec.layers[0].weights, model->spec.layers[0].weights);
    EXPECT_EQ(spec.head, model->spec.head);
    EXPECT_EQ(spec.parameters, model->spec.parameters);
}

TEST(Bind, SixteenBitNormsBecomeFloats) {
    Tiny tiny;
    tiny.drop("model.norm.weight");
    std::vector<std::uint16_t> bits;
    for (int i = 0; i < hidden; ++i) bits.push_back(f32_to_bf16(1.5f + static_cast<float>(i)));
    tiny.tensors.add("model.norm.weight", {hidden}, DType::bf16, bits.data(), 2 * bits.size());
    const auto model = tiny.bind();
    const Weight& norm = model->weights[static_cast<std::size_t>(model->spec.final_norm)];
    EXPECT_EQ(norm.format.dense_type, DType::f32);
    EXPECT_THAT(all(*model, model->spec.final_norm), ElementsAre(1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5));
}

TEST(Bind, MisalignedMatricesAreCopied) {
    Tiny tiny;
    const std::string name = "model.layers.0.self_attn.v_proj.weight";
    tiny.drop(name);
    std::vector<std::uint16_t> bits;
    for (int i = 0; i < kv_heads * head_dim * hidden; ++i) bits.push_back(f32_to_f16(static_cast<float>(i)));
    tiny.tensors.add(name, {kv_heads * head_dim, hidden}, DType::f16, bits.data(), 2 * bits.size(), 1);
    const auto model = tiny.bind();
    const WeightId v = model->spec.layers[0][Role::attn_v];
    const Weight& weight = model->weights[static_cast<std::size_t>(v)];
    EXPECT_NE(weight.codes.data, tiny.file.get(name).data.data());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weight.codes.data) % 64, 0u);
    EXPECT_EQ(weight.format.dense_type, DType::f16);
    const auto values = all(*model, v);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i));
}

TEST(Bind, HeadsThatAreTiedOrNot) {
    Tiny tied(R"(,"tie_word_embeddings":true)");
    tied.drop("lm_head.weight");
    const auto model = tied.bind();
    EXPECT_EQ(model->spec.head, model->spec.embed);
    Tiny own(R"(,"tie_word_embeddings":true)");  // a tied config with a head: the head is used
    EXPECT_EQ(all(*own.bind(), own.bind()->spec.head).front(), 200);
    Tiny lost;
    lost.drop("lm_head.weight");
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { lost.bind(); }), HasSubstr("lm_head.weight"));
}

TEST(Bind, MissingTensorsAreNamed) {
    Tiny tiny;
    tiny.drop("model.norm.weight");
    tiny.drop("model.layers.0.mlp.up_proj.weight");
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { tiny.bind(); }),
                AllOf(HasSubstr("models/test"), HasSubstr("2 tensors"), HasSubstr("model.norm.weight"),
                      HasSubstr("model.layers.0.mlp.up_proj.weight")));
    Tiny biased(R"(,"attention_bias":true,"mlp_bias":true)");
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { biased.bind(); }),
                AllOf(HasSubstr("7 tensors"), HasSubstr("self_attn.q_proj.bias"), HasSubstr("and 2 more")));
    ModelFile config = test::config_file(Tiny().file.config.dump());
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { bind_model(config, pool()); }), HasSubstr("no tensors"));
}

TEST(Bind, BiasesThatExistAreUsed) {
    Tiny tiny;
    tiny.layer("self_attn.o_proj.bias", {hidden}, 7);
    const auto model = tiny.bind();
    EXPECT_EQ(all(*model, model->spec.layers[0][Role::attn_o_bias]).front(), 7);
}

TEST(Bind, ShapesAreCheckedAndPrinted) {
    Tiny tiny;
    tiny.drop("model.layers.0.self_attn.k_proj.weight");
    tiny.layer("self_attn.k_proj.weight", {6, hidden}, 0);
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { tiny.bind(); }),
                AllOf(HasSubstr("self_attn.k_proj.weight"), HasSubstr("[4, 8]"), HasSubstr("[6, 8]"), HasSubstr("attn_k")));
    EXPECT_THROW(read_spec(tiny.file), Error);
    Tiny norm;
    norm.drop("model.norm.weight");
    norm.tensors.ramp("model.norm.weight", {hidden, 2});
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { norm.bind(); }), AllOf(HasSubstr("[8]"), HasSubstr("[8, 2]")));
}

TEST(Bind, ShapesFillInWhatTheConfigLeavesOut) {
    Tiny tiny;
    tiny.file.config["model_type"] = "mistral";  // eight key-value heads when absent
    for (const char* key : {"intermediate_size", "vocab_size", "num_key_value_heads"}) tiny.file.config.erase(key);
    const auto model = tiny.bind();
    EXPECT_EQ(model->spec.layers[0].attention.n_kv_heads, kv_heads);
    EXPECT_EQ(model->spec.layers[0].feed_forward.width, width);
    EXPECT_EQ(model->spec.vocab, vocab);
}

TEST(Bind, TypesOfMatricesAreChecked) {
    Tiny tiny;
    const std::string name = "model.layers.0.mlp.up_proj.weight";
    tiny.drop(name);
    std::vector<std::byte> bytes(width * hidden);
    tiny.tensors.add(name, {width, hidden}, DType::i8, bytes.data(), bytes.size());
    EXPECT_THAT(test::error_of(ErrorKind::unsupported, [&] { tiny.bind(); }), AllOf(HasSubstr(name), HasSubstr("i8")));
    tiny.file.tensors.back().dtype = DType::f16;  // twice as many bytes as there are
    EXPECT_THAT(test::error_of(ErrorKind::invalid_input, [&] { tiny.bind(); }), AllOf(HasSubstr(name), HasSubstr("192"), HasSubstr("96")));
}

TEST(Bind, UnusedTensorsAreReportedOnce) {
    Tiny tiny;
    tiny.tensors.ramp("model.layers.0.self_attn.rotary_emb.inv_freq", {2});
    tiny.tensors.ramp("vision_tower.patch.weight", {2});
    tiny.tensors.ramp("mtp.fc.weight", {2});
    tiny.file.index_names();
    testing::internal::CaptureStderr();
    bind_model(tiny.file, pool());
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) tiny.tensors.ramp(name, {1});
    tiny.file.index_names();
    testing::internal::CaptureStderr();
    bind_model(tiny.file, pool());
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("7 tensors are not used: a, b, c, d, e and 2 more"));
}

TEST(Bind, PrefixesAreToldApartByTheNames) {
    for (const char* prefix : {"model.language_model.", "language_model.model.", ""}) {
        Tiny tiny;
        for (Tensor& tensor : tiny.file.tensors)
            if (tensor.name.starts_with("model.")) tensor.name = prefix + tensor.name.substr(6);
        if (std::string(prefix) == "language_model.model.")
            for (Tensor& tensor : tiny.file.tensors)
                if (tensor.name == "lm_head.weight") tensor.name = "language_model.lm_head.weight";
        const auto model = tiny.bind();
        EXPECT_EQ(all(*model, model->spec.layers[0][Role::ffn_down]).front(), 1100) << prefix;
        EXPECT_EQ(all(*model, model->spec.head).front(), 200) << prefix;
    }
}

// The same layer as a GGUF of arch llama: rows of q and k are stored interleaved.
ModelFile gguf_of(const Tiny& tiny, std::vector<std::unique_ptr<std::vector<float>>>& keep, bool fused) {
    ModelFile file = test::gguf_file({{"general.architecture", "llama"}, {"llama.context_length", std::uint64_t{64}},
        {"llama.embedding_length", std::uint64_t{hidden}}, {"llama.block_count", std::uint64_t{1}},
        {"llama.feed_forward_length", std::uint64_t{width}}, {"llama.attention.head_count", std::uint64_t{heads}},
        {"llama.attention.head_count_kv", std::uint64_t{kv_heads}}, {"llama.attention.layer_norm_rms_epsilon", 1e-6}});
    const std::pair<const char*, const char*> names[]{{"model.embed_tokens.weight", "token_embd.weight"},
        {"model.norm.weight", "output_norm.weight"}, {"lm_head.weight", "output.weight"},
        {"model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"},
        {"model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"},
        {"model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"},
        {"model.layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight"},
        {"model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight"},
        {"model.layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight"},
        {"model.layers.0.self_attn.q_proj.bias", "blk.0.attn_q.bias"},
        {"model.layers.0.self_attn.k_proj.bias", "blk.0.attn_k.bias"},
        {"model.layers.0.self_attn.v_proj.bias", "blk.0.attn_v.bias"},
        {"model.layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight"},
        {"model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight"},
        {"model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"}};
    const auto put = [&](const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values) {
        keep.push_back(std::make_unique<std::vector<float>>(std::move(values)));
        Tensor tensor;
        tensor.name = name;
        tensor.shape = std::move(shape);
        tensor.data = std::as_bytes(std::span(*keep.back()));
        file.tensors.push_back(std::move(tensor));
    };
    for (const auto& [hf, gguf] : names) {
        const Tensor* tensor = tiny.file.find(hf);
        if (!tensor) continue;
        std::vector<float> values(tensor->data.size() / 4), stored(values.size());
        std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
        const std::string name = gguf;
        stored = values;
        if (name.find("attn_q") != std::string::npos || name.find("attn_k") != std::string::npos) {
            // The converter's rule: per head, stored row 2i + j is row j * (head_dim / 2) + i.
            const bool matrix = tensor->shape.size() == 2;
            const std::size_t cols = matrix ? static_cast<std::size_t>(tensor->shape[1]) : 1;
            for (std::size_t head = 0; head < values.size() / cols; head += head_dim)
                for (std::size_t i = 0; i < head_dim / 2; ++i)
                    for (std::size_t j = 0; j < 2; ++j)
                        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>((head + j * (head_dim / 2) + i) * cols), cols,
                                    stored.begin() + static_cast<std::ptrdiff_t>((head + 2 * i + j) * cols));
        }
        put(name, tensor->shape, std::move(stored));
    }
    if (fused) {
        for (const char* what : {".weight", ".bias"}) {
            std::vector<float> together;
            for (const char* part : {"q", "k", "v"}) {
                const std::string name = fmt::format("blk.0.attn_{}{}", part, what);
                const auto it = std::find_if(file.tensors.begin(), file.tensors.end(), [&](const Tensor& t) { return t.name == name; });
                const auto* floats = reinterpret_cast<const float*>(it->data.data());
                together.insert(together.end(), floats, floats + it->data.size() / 4);
                file.tensors.erase(it);
            }
            const bool matrix = std::string(what) == ".weight";
            const auto rows = static_cast<std::int64_t>(together.size()) / (matrix ? hidden : 1);
            put(std::string("blk.0.attn_qkv") + what, matrix ? std::vector<std::int64_t>{rows, hidden} : std::vector<std::int64_t>{rows}, std::move(together));
        }
    }
    file.index_names();
    return file;
}

TEST(Bind, GgufRowsAreUnpermutedAndFusedOnesSplit) {
    Tiny tiny;
    tiny.layer("self_attn.q_proj.bias", {heads * head_dim}, 11);
    tiny.layer("self_attn.k_proj.bias", {kv_heads * head_dim}, 22);
    tiny.layer("self_attn.v_proj.bias", {kv_heads * head_dim}, 33);
    const auto expected = tiny.bind();
    for (const bool fused : {false, true}) {
        SCOPED_TRACE(fused);
        std::vector<std::unique_ptr<std::vector<float>>> keep;
        const ModelFile file = gguf_of(tiny, keep, fused);
        testing::internal::CaptureStderr();
        const auto model = bind_model(file, pool());
        EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
        for (std::size_t r = 0; r < static_cast<std::size_t>(Role::count_); ++r) {
            const Role role = static_cast<Role>(r);
            const WeightId want = expected->spec.layers[0][role], got = model->spec.layers[0][role];
            ASSERT_EQ(want < 0, got < 0) << name_of(role);
            if (want < 0) continue;
            EXPECT_EQ(all(*model, got), all(*expected, want)) << name_of(role);
        }
        EXPECT_EQ(all(*model, model->spec.head), all(*expected, expected->spec.head));
        EXPECT_EQ(model->spec.parameters, expected->spec.parameters);
    }
}

TEST(Bind, ScalesBesideAWeight) {
    Tiny tiny;
    tiny.file.index_names();
    std::vector<std::unique_ptr<std::vector<float>>> keep;
    ModelFile file = gguf_of(tiny, keep, false);
    test::Tensors more(file);
    more.f32("blk.0.ffn_up.scale", {1}, {0.5f});
    more.f32("blk.0.ffn_up.input_scale", {1}, {9});
    file.index_names();
    testing::internal::CaptureStderr();
    const auto model = bind_model(file, pool());
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(model->weights[static_cast<std::size_t>(model->spec.layers[0][Role::ffn_up])].global_scale, 0.5f);
    EXPECT_EQ(model->weights[static_cast<std::size_t>(model->spec.layers[0][Role::ffn_gate])].global_scale, 1.0f);
    more.f32("blk.0.ffn_down.scale", {2}, {1, 2});
    file.index_names();
    EXPECT_THAT(test::error_of(ErrorKind::unsupported, [&] { bind_model(file, pool()); }), HasSubstr("blk.0.ffn_down.scale"));
}

}  // namespace
}  // namespace forge
