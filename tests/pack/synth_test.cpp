#include "pack/quantize.h"
#include "pack/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "../support/expect_error.h"
#include "base/paths.h"
#include "formats/model_file.h"
#include "model/bind.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

SynthOptions options(std::string shape, std::string type, std::string output, std::string format = "gguf",
                     std::uint64_t seed = 1) {
    SynthOptions o;
    o.shape = std::move(shape);
    o.type = std::move(type);
    o.format = std::move(format);
    o.output = std::move(output);
    o.seed = seed;
    o.threads = 2;
    return o;
}

std::vector<float> values(const Tensor& tensor) {
    const std::map<DType, GgufType> plain = {
        {DType::f32, GgufType::f32}, {DType::f16, GgufType::f16}, {DType::bf16, GgufType::bf16}};
    const GgufType type = tensor.is_block ? tensor.block : plain.at(tensor.dtype);
    std::vector<float> out(static_cast<std::size_t>(tensor.elements()));
    const std::size_t row_bytes = tensor.data.size() / static_cast<std::size_t>(tensor.rows());
    for (std::int64_t row = 0; row < tensor.rows(); ++row)
        decode_gguf_row(type, tensor.data.data() + static_cast<std::size_t>(row) * row_bytes, tensor.cols(),
                        out.data() + row * tensor.cols());
    return out;
}

double relative_error(const std::vector<float>& reference, const std::vector<float>& other) {
    double difference = 0, square = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
        difference += std::pow(reference[i] - other[i], 2);
        square += std::pow(reference[i], 2);
    }
    return std::sqrt(difference / square);
}

// Hybrids and experts: every tensor that the family needs, in its shape, in both formats.
TEST(Synth, MixedShapesAreCompleteModels) {
    for (const char* shape : {"qwen3-moe-tiny", "qwen3.5-tiny", "qwen3.5-moe-tiny", "gemma4-tiny"}) {
        const TestFolder folder;
        const SynthSummary gguf = synthesise(options(shape, "q4_0", folder / "m.gguf"));
        const SynthSummary hf = synthesise(options(shape, "bf16", folder / "hf", "hf"));
        EXPECT_EQ(gguf.parameters, hf.parameters) << shape;
        ThreadPool pool(2);
        testing::internal::CaptureStderr();
        const auto a = bind_model(*open_model_file(folder / "m.gguf"), pool), b = bind_model(*open_model_file(folder / "hf"), pool);
        EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "no tensor should be left over in " << shape;
        EXPECT_EQ(a->spec.parameters, gguf.parameters) << shape;
        EXPECT_EQ(b->spec.parameters, hf.parameters) << shape;
        EXPECT_EQ(a->spec.layers.size(), b->spec.layers.size());
        ASSERT_EQ(a->weights.size(), b->weights.size()) << shape;
        // The same values before rounding: those of matrices of an expert, and small ones.
        for (std::size_t i = 0; i < a->weights.size(); ++i) {
            std::vector<float> x(static_cast<std::size_t>(a->weights[i].cols)), y(x.size());
            decode_row(a->weights[i], a->weights[i].rows - 1, x.data());
            decode_row(b->weights[i], b->weights[i].rows - 1, y.data());
            // Norms and decays differ in how they are stored; more value than key heads are ordered differently.
            const bool comparable = a->weights[i].rows > 1 && std::string(shape) != "qwen3.5-tiny";
            if (comparable) {
                EXPECT_LT(relative_error(y, x), 0.15) << shape << " " << a->weights[i].name << " " << b->weights[i].name;
            }
        }
    }
}

TEST(Synth, SeedDecidesEveryByte) {
    const TestFolder folder;
    const auto make = [&](std::uint64_t seed, int threads) {
        SynthOptions o = options("qwen3-tiny", "q4_k_m", folder / "m.gguf", "gguf", seed);
        o.threads = threads;
        o.overwrite = true;
        synthesise(o);
        return read_file(o.output);
    };
    const std::string first = make(1, 2);
    EXPECT_EQ(make(1, 1), first);
    EXPECT_NE(make(2, 2), first);
}

TEST(Synth, WeightsAreNormalAndRowsDiffer) {
    const TestFolder folder;
    const SynthSummary summary = synthesise(options("qwen3-tiny", "f32", folder / "m.gguf"));
    const auto model = open_gguf(folder / "m.gguf");
    EXPECT_EQ(summary.tensors, model->tensors.size());
    EXPECT_EQ(summary.tensor_bytes, model->tensor_bytes());
    EXPECT_EQ(summary.parameters * 4, model->tensor_bytes());
    const Tensor& embedding = model->get("token_embd.weight");
    const std::vector<float> w = values(embedding);
    double sum = 0, square = 0, largest = 0;
    for (float x : w) {
        sum += x;
        square += static_cast<double>(x) * x;
        largest = std::max(largest, std::fabs(static_cast<double>(x)));
    }
    EXPECT_NEAR(sum / static_cast<double>(w.size()), 0, 1e-4);
    EXPECT_NEAR(std::sqrt(square / static_cast<double>(w.size())), 0.02, 2e-4);
    EXPECT_GT(largest, 0.07);
    EXPECT_LT(largest, 0.12);
    // Equal rows of a tied embedding would give equal logits.
    std::set<std::vector<float>> rows;
    for (std::int64_t row = 0; row < embedding.rows(); ++row)
        rows.emplace(w.begin() + row * embedding.cols(), w.begin() + (row + 1) * embedding.cols());
    EXPECT_EQ(rows.size(), static_cast<std::size_t>(embedding.rows()));
    EXPECT_GT(
        relative_error(values(model->get("blk.0.attn_k.weight")), values(model->get("blk.1.attn_k.weight"))),
        1);
}

// One seed is one model: every type approximates the same values.
TEST(Synth, TypesApproximateTheSameModel) {
    const TestFolder folder;
    synthesise(options("gemma3-tiny", "f32", folder / "f32.gguf"));
    const auto reference = open_gguf(folder / "f32.gguf");
    for (const std::string& type : synth_types()) {
        if (type == "f32") continue;
        const std::string path = folder / (type + ".gguf");
        synthesise(options("gemma3-tiny", type, path));
        const auto model = open_gguf(path);
        ASSERT_EQ(model->tensors.size(), reference->tensors.size()) << type;
        for (const Tensor& tensor : model->tensors)
            EXPECT_LT(relative_error(values(reference->get(tensor.name)), values(tensor)), 0.31)
                << type << " " << tensor.name;
    }
}

// The row of the interleaved GGUF order that holds row `row` of the plain one.
std::int64_t interleaved(std::int64_t row, std::int64_t head_dim) {
    const std::int64_t head = row / head_dim, in_head = row % head_dim;
    return head * head_dim + 2 * (in_head % (head_dim / 2)) + in_head / (head_dim / 2);
}

TEST(Synth, FolderAndFileAreTheSameModel) {
    for (const char* shape : {"llama-tiny", "qwen3-tiny", "gemma3-tiny"}) {
        const TestFolder folder;
        synthesise(options(shape, "bf16", folder / "m.gguf"));
        synthesise(options(shape, "bf16", folder / "hf", "hf"));
        const auto gguf = open_model_file(folder / "m.gguf"), hf = open_model_file(folder / "hf");
        ASSERT_EQ(hf->format, ModelFormat::huggingface);
        const auto equal_rows = [&](const char* hf_name, const char* gguf_name,
                                    std::int64_t interleaved_head_dim = 0) {
            const Tensor &a = hf->get(hf_name), &b = gguf->get(gguf_name);
            ASSERT_EQ(a.shape, b.shape) << shape << " " << hf_name;
            const std::vector<float> x = values(a), y = values(b);
            for (std::int64_t row = 0; row < a.rows(); ++row) {
                const std::int64_t other =
                    interleaved_head_dim ? interleaved(row, interleaved_head_dim) : row;
                ASSERT_TRUE(std::equal(x.begin() + row * a.cols(), x.begin() + (row + 1) * a.cols(),
                                       y.begin() + other * a.cols()))
                    << shape << " " << hf_name << " row " << row;
            }
        };
        const std::int64_t permuted = std::string(shape) == "llama-tiny" ? 64 : 0;
        equal_rows("model.embed_tokens.weight", "token_embd.weight");
        equal_rows("model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight", permuted);
        equal_rows("model.layers.1.self_attn.k_proj.weight", "blk.1.attn_k.weight", permuted);
        equal_rows("model.layers.1.self_attn.v_proj.weight", "blk.1.attn_v.weight");
        equal_rows("model.layers.3.mlp.down_proj.weight", "blk.3.ffn_down.weight");
        // Gemma's norms are stored less 1 by Hugging Face; norms are exact in both.
        const std::vector<float> x = values(hf->get("model.norm.weight")),
                                 y = values(gguf->get("output_norm.weight"));
        const float shift = std::string(shape) == "gemma3-tiny" ? 1.0f : 0.0f;
        std::set<float> different;
        for (std::size_t i = 0; i < x.size(); ++i) {
            EXPECT_EQ(x[i] + shift, y[i]);
            different.insert(y[i]);
        }
        EXPECT_GT(different.size(), 4u);
        EXPECT_EQ(hf->find("lm_head.weight") != nullptr, permuted != 0);
        EXPECT_EQ(gguf->find("rope_freqs.weight") != nullptr, permuted != 0);
    }
}

TEST(Synth, MediumMixIsThatOfPublishedFiles) {
    const TestFolder folder;
    synthesise(options("llama-tiny", "q4_k_m", folder / "m.gguf"));
    const auto llama = open_gguf(folder / "m.gguf");
    EXPECT_EQ(llama->metadata.integer("general.file_type"), 15);
    EXPECT_EQ(llama->get("output.weight").block, GgufType::q6_k);
    EXPECT_EQ(llama->get("token_embd.weight").block, GgufType::q4_k);  // not tied
    EXPECT_EQ(llama->get("blk.0.attn_q.weight").block, GgufType::q4_k);
    // Of 4 layers the third and (7/8 of 4 rounded down) the last have more bits.
    const GgufType down[] = {GgufType::q4_k, GgufType::q4_k, GgufType::q6_k, GgufType::q6_k};
    for (int layer = 0; layer < 4; ++layer) {
        EXPECT_EQ(llama->get("blk." + std::to_string(layer) + ".ffn_down.weight").block, down[layer])
            << layer;
        EXPECT_EQ(llama->get("blk." + std::to_string(layer) + ".attn_v.weight").block, down[layer]) << layer;
    }
    EXPECT_EQ(llama->get("blk.0.attn_norm.weight").dtype, DType::f32);

    // 160 and 544 columns are no multiple of 256.
    synthesise(options("gemma3-tiny", "q4_k_m", folder / "g.gguf"));
    const auto gemma = open_gguf(folder / "g.gguf");
    EXPECT_EQ(gemma->get("token_embd.weight").block, GgufType::q8_0);    // tied: for q6_k
    EXPECT_EQ(gemma->get("blk.0.attn_q.weight").block, GgufType::q5_0);  // for q4_k
    EXPECT_EQ(gemma->get("blk.0.attn_output.weight").block, GgufType::q4_k);
    EXPECT_EQ(gemma->get("blk.5.ffn_down.weight").block, GgufType::q8_0);  // for q6_k
}

TEST(Synth, TokenizersAreConsistent) {
    for (const char* shape : {"llama-tiny", "qwen3-tiny", "gemma3-tiny"}) {
        const TestFolder folder;
        synthesise(options(shape, "f16", folder / "m.gguf"));
        synthesise(options(shape, "f16", folder / "hf", "hf"));
        const auto gguf = open_model_file(folder / "m.gguf"), hf = open_model_file(folder / "hf");
        const auto& tokens = *gguf->metadata.strings("tokenizer.ggml.tokens");
        const auto& types = *gguf->metadata.integer_array("tokenizer.ggml.token_type");
        EXPECT_EQ(tokens.size(), types.size());
        EXPECT_EQ(static_cast<std::int64_t>(tokens.size()), gguf->get("token_embd.weight").rows());
        EXPECT_EQ(std::set<std::string>(tokens.begin(), tokens.end()).size(), tokens.size());

        const auto json = nlohmann::json::parse(read_file(folder / "hf/tokenizer.json"));
        std::map<std::string, std::size_t> ids;
        for (const auto& [token, id] : json.at("model").at("vocab").items()) ids[token] = id;
        for (const auto& added : json.at("added_tokens")) ids[added.at("content")] = added.at("id");
        ASSERT_EQ(ids.size(), tokens.size());
        for (std::size_t id = 0; id < tokens.size(); ++id) ASSERT_EQ(ids.at(tokens[id]), id);
        const auto& merges = *gguf->metadata.strings("tokenizer.ggml.merges");
        ASSERT_EQ(json.at("model").at("merges").size(), merges.size());
        for (std::size_t i = 0; i < merges.size(); ++i) {
            const auto& merge = json.at("model").at("merges").at(i);
            EXPECT_EQ(merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>(), merges[i]);
            EXPECT_TRUE(ids.contains(merge.at(0).get<std::string>() + merge.at(1).get<std::string>()));
        }
        const auto eos = static_cast<std::size_t>(gguf->metadata.integer("tokenizer.ggml.eos_token_id"));
        EXPECT_EQ(types[eos], 3);
        EXPECT_EQ(hf->config.at("eos_token_id"), eos);
        EXPECT_EQ(hf->generation_config.at("eos_token_id").at(0), eos);
        const auto tokenizer_config = nlohmann::json::parse(read_file(folder / "hf/tokenizer_config.json"));
        EXPECT_EQ(tokenizer_config.at("eos_token"), tokens[eos]);
        EXPECT_EQ(tokenizer_config.at("chat_template"), gguf->metadata.string("tokenizer.chat_template"));
    }
}

// Chunks are quantised as the same values in a folder are.
TEST(Synth, MlxFolderIsTheQuantisedFolder) {
    for (const char* shape : {"qwen3-tiny", "qwen3-moe-tiny", "qwen3.5-tiny", "qwen3.5-moe-tiny", "gemma4-tiny"})
        for (const char* type : {"q4", "q8g32", "mxfp4"}) {
            const TestFolder folder;
            synthesise(options(shape, "bf16", folder / "hf", "hf"));
            synthesise(options(shape, type, folder / "mlx", "mlx"));
            QuantizeOptions quantising;
            quantising.source = folder / "hf";
            quantising.output = folder / "quantised";
            quantising.recipes = {type};
            quantize(quantising);
            const auto found = open_model_file(folder / "mlx"), expected = open_model_file(folder / "quantised");
            ASSERT_EQ(found->format, ModelFormat::mlx);
            EXPECT_EQ(found->tensors.size(), expected->tensors.size()) << shape << " " << type;
            EXPECT_EQ(nlohmann::json(found->config["quantization"]), nlohmann::json(expected->config["quantization"])) << shape << " " << type;
            for (const Tensor& tensor : expected->tensors) {
                const Tensor* same = found->find(tensor.name);
                ASSERT_TRUE(same) << shape << " " << type << " " << tensor.name;
                EXPECT_EQ(same->shape, tensor.shape) << tensor.name;
                EXPECT_EQ(same->dtype, tensor.dtype) << tensor.name;
                ASSERT_EQ(same->data.size(), tensor.data.size()) << tensor.name;
                EXPECT_EQ(std::memcmp(same->data.data(), tensor.data.data(), tensor.data.size()), 0) << shape << " " << type << " " << tensor.name;
            }
            ThreadPool pool(2);
            bind_model(*found, pool);
        }
}

TEST(Synth, RefusesBadOptions) {
    const TestFolder folder;
    const std::string path = folder / "m";
    EXPECT_ERROR(synthesise(options("qwen9", "f32", path)), invalid_input,
                 "there is no shape 'qwen9' to synthesise; known are qwen3-0.6b");
    EXPECT_ERROR(synthesise(options("qwen3-tiny", "q9", path)), invalid_input,
                 "there is no type 'q9' to synthesise; known are q4_0");
    EXPECT_ERROR(synthesise(options("qwen3-tiny", "f32", path, "onnx")), invalid_input,
                 "there is no format 'onnx' to synthesise");
    EXPECT_ERROR(synthesise(options("qwen3-tiny", "q4_0", path, "mlx")), invalid_input, "q4_0");
    EXPECT_ERROR(synthesise(options("qwen3-tiny", "q4_0", path, "hf")), invalid_input,
                 "holds bf16, f16 or f32, not q4_0");
    EXPECT_ERROR(synthesise(options("qwen3-tiny", "f32", "")), invalid_input,
                 "no output file or folder is given");
    EXPECT_ERROR(synthesise(options("qwen3-tiny", "f32", folder / "none/m")), io, "cannot create");
    EXPECT_TRUE(fs::is_empty(folder.path()));
    write_file_atomically(path, "precious");
    EXPECT_ERROR(synthesise(options("qwen3-tiny", "f32", path)), invalid_input, path + " exists already");
    EXPECT_EQ(read_file(path), "precious");
}

}  // namespace
}  // namespace forge
