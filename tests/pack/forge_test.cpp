// Models packed: the same weights to the bit without a copy, the same bytes a second time, shards shared
// and resumed, damage named.
#include <gtest/gtest.h>
#include <chrono>
#include <thread>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>

#include "../support/expect_error.h"
#include "base/float16.h"
#include "base/paths.h"
#include "formats/forge_model.h"
#include "model/bind.h"
#include "pack/gguf_writer.h"
#include "pack/mlx_encode.h"
#include "pack/pack.h"
#include "pack/proof.h"
#include "pack/safetensors_writer.h"
#include "quant/tiles.h"
#include "runtime/session.h"
#include "store/store.h"
#include "store/verify.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

const std::string data = FORGE_TEST_DATA "/";

std::string source_path(const std::string& fixture) {
    const std::string folder = data + fixture;
    return fs::exists(folder + "/model.gguf") ? folder + "/model.gguf" : folder;
}

PackOptions pack_options(const std::string& source, const std::string& output, WeightLayout layout) {
    PackOptions o;
    o.source = source;
    o.output = output;
    o.layout = layout;
    o.version = "test";
    o.threads = 2;
    return o;
}

// All weights of two bound models, element by element, bit by bit.
void expect_equal_weights(const BoundModel& a, const BoundModel& b) {
    ASSERT_EQ(a.weights.size(), b.weights.size());
    for (std::size_t i = 0; i < a.weights.size(); ++i) {
        const Weight &x = a.weights[i], &y = b.weights[i];
        ASSERT_EQ(x.rows, y.rows) << x.name;
        ASSERT_EQ(x.cols, y.cols) << x.name;
        std::vector<float> u(static_cast<std::size_t>(x.cols)), v(u.size());
        for (std::int64_t r = 0; r < x.rows; ++r) {
            decode_row(x, r, u.data());
            decode_row(y, r, v.data());
            ASSERT_EQ(std::memcmp(u.data(), v.data(), u.size() * 4), 0) << x.name << " row " << r;
        }
        ASSERT_EQ(x.global_scale, y.global_scale) << x.name;
    }
}

std::vector<std::int32_t> greedy(const std::string& path, int count) {
    LoadOptions options;
    options.device = "cpu";
    options.threads = 1;
    options.ctx = 32;
    Session session(Engine::load(path, options));
    const std::vector<std::int32_t> prompt{1, 5, 9, 2, 7};
    session.feed(prompt);
    std::vector<std::int32_t> out;
    for (int i = 0; i < count; ++i) {
        const auto logits = session.logits();
        out.push_back(static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
        session.append(out.back());
    }
    return out;
}

class Packed : public testing::TestWithParam<const char*> {};

TEST_P(Packed, HasTheSameWeightsAndTokensInEitherLayout) {
    const std::string source = source_path(GetParam());
    const auto file = open_model_file(source);
    ThreadPool pool(2);
    const auto tokens = greedy(source, 6);
    for (const WeightLayout layout : {WeightLayout::rows, WeightLayout::tiles}) {
        const TestFolder folder;
        const PackSummary made = pack_model(pack_options(source, folder / "m.forge", layout));
        const auto packed = open_model_file(made.path);
        ASSERT_TRUE(packed->packed);
        EXPECT_EQ(packed->format, file->format);
        const auto a = bind_model(*file, pool, layout), b = bind_model(*packed, pool, layout);
        expect_equal_weights(*a, *b);
        EXPECT_EQ(b->mapped, b->bytes()) << "all weights stay in the file";
        for (std::size_t i = 0; i < a->weights.size(); ++i) EXPECT_EQ(a->weights[i].format, b->weights[i].format);
        EXPECT_EQ(made.parameters, b->spec.parameters);
        // The other layout, too: tiles become rows; rows stay rows.
        expect_equal_weights(*a, *bind_model(*packed, pool, WeightLayout::rows));
        EXPECT_EQ(greedy(made.path, 6), tokens);
        packed->packed->verify(pool);
        EXPECT_EQ(wrong_blobs(*packed, pool), std::vector<std::string>{});
    }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Packed,
                         testing::Values("models/gguf-llama-q4_0", "models/gguf-llama-q4_1", "models/gguf-llama-kquants", "models/gguf-qwen3-kquants",
                                         "models/gguf-gemma3-q8_0", "models/gguf-qwen3-fp4", "models/gguf-qwen3-mixed32", "models/gguf-qwen2-q5_1",
                                         "models/gguf-qwen3-bf16", "models/gguf-llama-yarn-q8_0", "models/gguf-llama-f32", "models/llama-gqa-tied", "models/gemma3-wrapper",
                                         "models/llama-sparse-sharded", "models/qwen3-bias-window-yarn", "models-mixed/qwen3-next", "models-mixed/gguf-qwen3next",
                                         "models-mixed/gguf-qwen3moe", "models-mixed/gguf-mixtral", "models-mixed/qwen3.5-moe", "models-mixed/gemma4-per-layer",
                                         "models-mixed/gguf-gemma4-experts", "models-mlx/llama-4bit-g64", "models-mlx/qwen3-every-format",
                                         "models-mlx/qwen3.5-moe-nvfp4", "models-mlx/qwen3-moe-mxfp4", "models-mlx/qwen3-next-4bit", "models-mlx/qwen3.5-mxfp8"),
                         [](const auto& info) {
                             std::string name = info.param;
                             for (char& c : name)
                                 if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                             return name;
                         });

class PackForge : public testing::Test {
  protected:
    void SetUp() override { ::setenv("FORGE_HOME", (folder / "home").c_str(), 1); }
    void TearDown() override { ::unsetenv("FORGE_HOME"); }
    TestFolder folder;
};

TEST_F(PackForge, MakesTheSameBytesASecondTime) {
    for (const char* fixture : {"models/gguf-llama-kquants", "models/llama-gqa-tied", "models-mlx/llama-4bit-g64"}) {
        PackOptions o = pack_options(source_path(fixture), folder / "a.forge", WeightLayout::tiles);
        o.overwrite = true;
        o.prove = [](const std::string& path) { return compute_proof(path, std::vector<std::int32_t>{1, 2, 3}, 1); };
        pack_model(o);
        o.output = folder / "b.forge";
        o.threads = 1;
        pack_model(o);
        EXPECT_EQ(read_file(folder / "a.forge"), read_file(folder / "b.forge")) << fixture;
        // The store holds the same blobs.
        o.output = "m:1";
        const auto in_store = open_model_file(pack_model(o).path), in_file = open_model_file(folder / "a.forge");
        EXPECT_EQ(in_store->packed->manifest().dump(), in_file->packed->manifest().dump()) << fixture;
    }
}

TEST_F(PackForge, ProofHoldsAndAnotherModelsDoesNot) {
    PackOptions o = pack_options(source_path("models/gguf-llama-q4_0"), folder / "a.forge", WeightLayout::rows);
    const std::vector<std::int32_t> prompt{1, 5, 9};
    o.prove = [&](const std::string& path) { return compute_proof(path, prompt, 1); };
    pack_model(o);
    const auto file = open_model_file(folder / "a.forge");
    const Manifest& manifest = file->packed->manifest();
    const ManifestBlob* entry = manifest.find("proof");
    ASSERT_TRUE(entry);
    const auto bytes = file->packed->blob(static_cast<std::size_t>(entry - manifest.blobs.data())).bytes;
    const std::string proof(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    LoadOptions load;
    load.device = "cpu";
    load.threads = 1;
    for (const ProofResult& r : check_proof(proof, folder / "a.forge", load)) {
        EXPECT_TRUE(r.holds());
        EXPECT_EQ(r.largest, 0) << "the same machine, the same bits";
        EXPECT_EQ(r.steps, 16);
    }
    bool holds = true;
    for (const ProofResult& r : check_proof(proof, source_path("models/gguf-llama-f32"), load)) holds = holds && r.holds();
    EXPECT_FALSE(holds);
    EXPECT_ERROR(check_proof("{}", folder / "a.forge", load), unsupported, "the proof is none");
}

// A copy of a folder whose tensors' bits may be changed.
void fine_tune(const std::string& from, const std::string& to, const std::function<bool(const std::string&)>& changed) {
    fs::copy(from, to, fs::copy_options::recursive);
    const auto model = open_huggingface(from);
    fs::remove(to + "/model.safetensors");
    SafetensorsWriter out(to + "/model.safetensors");
    for (const Tensor& t : model->tensors) out.add_tensor(t.name, t.shape, t.dtype);
    for (const std::size_t i : out.begin()) {
        const Tensor& t = model->tensors[i];
        std::vector<std::byte> bytes(t.data.begin(), t.data.end());
        if (changed(t.name)) bytes[0] ^= std::byte{1};
        out.write(bytes);
    }
    out.finish();
}

TEST_F(PackForge, FineTunesShareTheLayersThatAreEqual) {
    const std::string base = data + "models/qwen3-tied";
    fine_tune(base, folder / "tuned", [](const std::string& name) { return name.find("layers.1.mlp.down_proj") != std::string::npos; });
    pack_model(pack_options(base, "base", WeightLayout::rows));
    const PackSummary tuned = pack_model(pack_options(folder / "tuned", "tuned", WeightLayout::rows));
    const Store store = Store::open();
    const Manifest a = Manifest::parse(*store.read_manifest({"base", "latest"}), "a"), b = Manifest::parse(*store.read_manifest({"tuned", "latest"}), "b");
    ASSERT_EQ(a.blobs.size(), b.blobs.size());
    std::uint64_t equal = 0;
    for (std::size_t i = 0; i < a.blobs.size(); ++i) {
        if (a.blobs[i].role != "shard") continue;
        EXPECT_EQ(a.blobs[i].digest == b.blobs[i].digest, a.blobs[i].name != "layer.1") << a.blobs[i].name;
        if (a.blobs[i].digest == b.blobs[i].digest) equal += a.blobs[i].bytes;
    }
    EXPECT_EQ(tuned.shared, equal);
    EXPECT_GT(equal, 0u);
    store.remove_manifest({"base", "latest"});
    store.gc();
    ThreadPool pool(1);
    open_model_file(store.manifest_path({"tuned", "latest"}).string())->packed->verify(pool);
}

TEST_F(PackForge, ARunThatWasStoppedGoesOn) {
    for (const std::string& output : {std::string("m"), folder / "m.forge"}) {
        PackOptions o = pack_options(source_path("models/gguf-qwen3-kquants"), output, WeightLayout::tiles);
        o.prove = [](const std::string&) -> std::string { fail("stopped here"); };
        EXPECT_ERROR(pack_model(o), invalid_input, "stopped here");
        o.prove = {};
        const PackSummary made = pack_model(o);
        EXPECT_EQ(made.resumed, made.shards) << output;
        o.output = folder / "fresh.forge";
        o.overwrite = true;
        EXPECT_EQ(pack_model(o).resumed, 0u);
        EXPECT_EQ(open_model_file(made.path)->packed->manifest().dump(), open_model_file(folder / "fresh.forge")->packed->manifest().dump());
    }
    for (const auto& entry : fs::directory_iterator(folder.path())) EXPECT_TRUE(entry.path().string().find(".partial") == std::string::npos) << entry.path();
    EXPECT_EQ(Store::open().gc().blobs, 0u) << "a finished pack leaves nothing";
}

TEST_F(PackForge, RefusesNamesAndExistingOutputs) {
    const std::string source = source_path("models/gguf-llama-q4_0");
    EXPECT_ERROR(pack_model(pack_options(source, "a b", WeightLayout::rows)), invalid_input, "'a b' is no name for a model");
    pack_model(pack_options(source, "m", WeightLayout::rows));
    EXPECT_ERROR(pack_model(pack_options(source, "m", WeightLayout::rows)), invalid_input, "m:latest is in the store already");
    pack_model(pack_options(source, folder / "m.forge", WeightLayout::rows));
    EXPECT_ERROR(pack_model(pack_options(source, folder / "m.forge", WeightLayout::rows)), invalid_input, "exists already");
}

TEST_F(PackForge, QuantisesFirstWhenARecipeIsGiven) {
    PackOptions o = pack_options(data + "mlx-sources/llama-4bit-g64", "q", WeightLayout::rows);
    o.recipes = {"q4g64"};
    const auto packed = open_model_file(pack_model(o).path), mlx = open_model_file(data + "models-mlx/llama-4bit-g64");
    ThreadPool pool(1);
    expect_equal_weights(*bind_model(*mlx, pool), *bind_model(*packed, pool));
    const auto& provenance = packed->packed->manifest().provenance;
    EXPECT_EQ(provenance["recipe"], nlohmann::ordered_json::array({"q4g64"}));
    EXPECT_EQ(provenance["source_format"], "huggingface");
    EXPECT_EQ(Store::open().gc().partials, 0u);
}

// The same GGUF model with its matrices as plain floats.
std::string as_floats(const std::string& from, const std::string& to, GgufType type) {
    const auto model = open_gguf(from);
    GgufWriter out(to);
    for (const auto& [name, value] : model->metadata.all()) {
        const std::string& key = name;
        std::visit([&](const auto& v) {
            using T = std::decay_t<decltype(v)>;
            if constexpr (std::is_same_v<T, bool>) out.set_bool(key, v);
            if constexpr (std::is_same_v<T, std::int64_t>) out.set_i32(key, static_cast<std::int32_t>(v));
            if constexpr (std::is_same_v<T, std::uint64_t>) out.set_u32(key, static_cast<std::uint32_t>(v));
            if constexpr (std::is_same_v<T, double>) out.set_f32(key, static_cast<float>(v));
            if constexpr (std::is_same_v<T, std::string>) out.set_string(key, v);
            if constexpr (std::is_same_v<T, std::vector<std::string>>) out.set_strings(key, v);
            if constexpr (std::is_same_v<T, std::vector<bool>>) out.set_bools(key, v);
            if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) out.set_i32s(key, std::vector<std::int32_t>(v.begin(), v.end()));
            if constexpr (std::is_same_v<T, std::vector<double>>) out.set_f32s(key, std::vector<float>(v.begin(), v.end()));
        }, value);
    }
    const auto type_of = [&](const Tensor& t) { return t.is_block && t.shape.size() > 1 && t.block != GgufType::f32 ? type : t.block; };
    for (const Tensor& t : model->tensors) out.add_tensor(t.name, t.shape, type_of(t));
    out.begin();
    for (const Tensor& t : model->tensors) {
        if (type_of(t) == t.block) {
            out.write(t.data);
            continue;
        }
        std::vector<float> row(static_cast<std::size_t>(t.cols()));
        const std::size_t stride = t.data.size() / static_cast<std::size_t>(t.rows());
        for (std::int64_t r = 0; r < t.rows(); ++r) {
            decode_gguf_row(t.block, t.data.data() + static_cast<std::size_t>(r) * stride, t.cols(), row.data());
            std::vector<std::uint16_t> halves;
            for (const float x : row) halves.push_back(type == GgufType::bf16 ? f32_to_bf16(x) : f32_to_f16(x));
            out.write(type == GgufType::f32 ? std::as_bytes(std::span(row)) : std::as_bytes(std::span(halves)));
        }
    }
    out.finish();
    return to;
}

// What each weight of the packed model should be: the source's where its format is the same, else its rows encoded.
void expect_quantised(const BoundModel& source, const BoundModel& packed, const std::function<MlxFormat(const Weight&)>& format_of) {
    ASSERT_EQ(source.weights.size(), packed.weights.size());
    int quantised = 0;
    for (std::size_t i = 0; i < source.weights.size(); ++i) {
        const Weight &from = source.weights[i], &to = packed.weights[i];
        ASSERT_EQ(from.rows, to.rows) << from.name;
        const auto cols = static_cast<std::size_t>(from.cols);
        std::vector<float> a(cols), b(cols);
        const bool coded = from.rows > 1;
        const MlxFormat format = format_of(from);
        EXPECT_EQ(to.format.is_dense(), !coded) << from.name;
        quantised += coded ? 1 : 0;
        const DType type = from.format.dense_type;
        const MlxRowBytes sizes = mlx_row_bytes(format, from.cols, type);
        std::vector<std::byte> codes(sizes.codes), scales(sizes.scales), biases(sizes.biases);
        for (std::int64_t r = 0; r < from.rows; ++r) {
            decode_row(from, r, a.data());
            decode_row(to, r, b.data());
            if (coded) {
                encode_mlx_row(format, type, a, codes.data(), scales.data(), biases.data());
                Weight row;
                row.format = to.format;
                row.rows = 1;
                row.cols = from.cols;
                row.codes = {codes.data(), codes.size()};
                row.scales = {scales.data(), scales.size()};
                if (!biases.empty()) row.offsets = {biases.data(), biases.size()};
                decode_row(row, 0, a.data());
            }
            ASSERT_EQ(std::memcmp(a.data(), b.data(), cols * 4), 0) << from.name << " row " << r;
        }
    }
    EXPECT_GT(quantised, 3);
}

TEST_F(PackForge, QuantisesGgufOfFloats) {
    ThreadPool pool(2);
    for (const auto& [fixture, type] : {std::pair{"models/gguf-llama-q4_0", GgufType::bf16}, std::pair{"models/gguf-llama-q4_0", GgufType::f32},
                                        std::pair{"models-mixed/gguf-qwen3moe-q8_0", GgufType::f16}})
        for (const WeightLayout layout : {WeightLayout::rows, WeightLayout::tiles})
            for (const auto& [recipe, format] : {std::pair{"q4g32", MlxFormat{MlxMode::affine, 4, 32}}, std::pair{"q3g32", MlxFormat{MlxMode::affine, 3, 32}},
                                                 std::pair{"mxfp4", MlxFormat{MlxMode::mxfp4, 4, 32}}}) {
                const std::string source = as_floats(source_path(fixture), folder / "floats.gguf", type);
                PackOptions o = pack_options(source, folder / "q.forge", layout);
                o.overwrite = true;
                o.recipes = {recipe};
                pack_model(o);
                const auto packed = open_model_file(folder / "q.forge");
                const auto a = bind_model(*open_model_file(source), pool), b = bind_model(*packed, pool, layout);
                // Routers get more bits, as forge quantize gives them.
                expect_quantised(*a, *b, [&, usual = format](const Weight& w) { return w.name.ends_with("ffn_gate_inp.weight") ? MlxFormat{MlxMode::affine, 8, 64} : usual; });
                EXPECT_EQ(b->mapped, b->bytes()) << "all weights stay in the file";
                EXPECT_EQ(packed->packed->manifest().provenance["recipe"], nlohmann::ordered_json::array({recipe}));
                EXPECT_EQ(packed->packed->manifest().origin, "gguf");
                EXPECT_EQ(greedy(folder / "q.forge", 4).size(), 4u);
                EXPECT_EQ(wrong_blobs(*packed, pool), std::vector<std::string>{});
                const std::string bytes = read_file(folder / "q.forge");
                o.threads = 1;
                pack_model(o);
                EXPECT_EQ(read_file(folder / "q.forge"), bytes) << "the same bytes a second time";
            }
}

TEST_F(PackForge, PatternsNameModulesOrTheFilesOwnTensors) {
    ThreadPool pool(1);
    PackOptions o = pack_options(as_floats(source_path("models/gguf-llama-q4_0"), folder / "floats.gguf", GgufType::bf16), folder / "q.forge", WeightLayout::rows);
    o.recipes = {"q4g32", "blk.0.attn_v=q8g32", "*.layers.1.mlp.down_proj=plain", "lm_head=plain", "*embed_tokens=plain"};
    pack_model(o);
    std::map<std::string, std::string> formats;
    const auto packed = open_model_file(folder / "q.forge");
    const auto bound = bind_model(*packed, pool);
    for (const Weight& weight : bound->weights) formats[weight.name] = describe(weight.format);
    EXPECT_EQ(formats["blk.0.attn_v.weight"], "q8/32 bf16 +bias");
    EXPECT_EQ(formats["blk.1.attn_v.weight"], "q4/32 bf16 +bias");
    EXPECT_EQ(formats["blk.0.ffn_down.weight"], "q4/32 bf16 +bias");
    EXPECT_EQ(formats["blk.1.ffn_down.weight"], "bf16");
    EXPECT_EQ(formats["token_embd.weight"], "bf16");
    o.overwrite = true;
    o.recipes = {"plain"};
    EXPECT_ERROR(pack_model(o), invalid_input, "nothing would be quantised");
    o.recipes = {"q4g33"};
    EXPECT_ERROR(pack_model(o), invalid_input, "is no recipe");
}

// By way of a .forge model of floats the result is that of the folder, which is mlx-lm's.
TEST_F(PackForge, QuantisesAForgeModelOfFloatsAsItsFolder) {
    ThreadPool pool(2);
    for (const auto& [fixture, recipe] : {std::pair{"mlx-sources/llama-4bit-g64", "q4g64"}, std::pair{"mlx-sources/qwen3-moe-mxfp4", "mxfp4"},
                                          std::pair{"mlx-sources/llama-4bit-g64", "mixed_3_6g32"}}) {
        PackOptions o = pack_options(data + fixture, folder / "floats.forge", WeightLayout::rows);
        o.overwrite = true;
        pack_model(o);
        o.output = folder / "folder.forge";
        o.recipes = {recipe};
        pack_model(o);
        o.source = folder / "floats.forge";
        o.output = folder / "forge.forge";
        o.layout = WeightLayout::tiles;
        pack_model(o);
        const auto quantised = open_model_file(folder / "forge.forge");
        expect_equal_weights(*bind_model(*open_model_file(folder / "folder.forge"), pool), *bind_model(*quantised, pool));
        EXPECT_EQ(greedy(folder / "forge.forge", 4), greedy(folder / "folder.forge", 4)) << fixture;
        const auto& provenance = quantised->packed->manifest().provenance;
        EXPECT_EQ(provenance["source_format"], "forge");
        EXPECT_EQ(provenance["made_from"]["source_format"], "huggingface");
        EXPECT_EQ(provenance["made_from"], open_model_file(folder / "floats.forge")->packed->manifest().provenance);
    }
}

TEST_F(PackForge, RefusesToQuantiseTwice) {
    for (const char* fixture : {"models/gguf-llama-q4_0", "models/gguf-qwen3-kquants", "models/gguf-gemma3-q8_0"}) {
        PackOptions o = pack_options(source_path(fixture), folder / "m.forge", WeightLayout::tiles);
        o.overwrite = true;
        pack_model(o);
        for (const std::string& source : {source_path(fixture), folder / "m.forge"}) {
            PackOptions again = pack_options(source, "n", WeightLayout::rows);
            again.recipes = {"q4g32"};
            EXPECT_ERROR(pack_model(again), unsupported, "is quantised already");
            EXPECT_FALSE(Store::open().read_manifest({"n", "latest"}));
        }
    }
    PackOptions mlx = pack_options(data + "models-mlx/llama-4bit-g64", "n", WeightLayout::rows);
    mlx.recipes = {"q4"};
    EXPECT_ERROR(pack_model(mlx), invalid_input, "quantised already");
}

TEST_F(PackForge, TurnsAForgeModelIntoTheOtherLayoutAndBack) {
    ThreadPool pool(2);
    for (const char* fixture : {"models/gguf-qwen3-kquants", "models/gguf-qwen3-fp4", "models/llama-gqa-tied", "models-mlx/qwen3-every-format", "models-mixed/gguf-qwen3moe"}) {
        const std::string source = source_path(fixture);
        pack_model(pack_options(source, "rows:1", WeightLayout::rows));
        pack_model(pack_options(source, "tiles:1", WeightLayout::tiles));
        const Store store = Store::open();
        const auto path = [&](const char* name) { return store.manifest_path(*ModelName::parse(name)).string(); };
        PackOptions o = pack_options(path("rows:1"), folder / "tiles.forge", WeightLayout::tiles);
        o.overwrite = true;
        pack_model(o);
        // What the packer would have made of the source.
        EXPECT_EQ(open_model_file(folder / "tiles.forge")->packed->manifest().dump(), *store.read_manifest({"tiles", "1"})) << fixture;
        o = pack_options(folder / "tiles.forge", "back:1", WeightLayout::rows);
        const PackSummary back = pack_model(o);
        EXPECT_EQ(*store.read_manifest({"back", "1"}), *store.read_manifest({"rows", "1"})) << fixture;
        EXPECT_GT(back.shared, 0u);
        expect_equal_weights(*bind_model(*open_model_file(source), pool), *bind_model(*open_model_file(path("back:1")), pool));
        for (const char* name : {"rows", "tiles", "back"}) store.remove_manifest({name, "1"});
    }
}

// Changes one byte of a read-only file.
void damage(const fs::path& path, std::uint64_t at) {
    ::chmod(path.c_str(), 0644);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get() ^ 16);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
}

TEST_F(PackForge, DamagedShardsAreNamed) {
    const std::string path = pack_model(pack_options(source_path("models/gguf-qwen3-kquants"), "m", WeightLayout::rows)).path;
    const Store store = Store::open();
    const Manifest manifest = open_model_file(path)->packed->manifest();
    const ManifestBlob &first = *manifest.find("shard", "layer.0"), &second = *manifest.find("shard", "embedding");
    ThreadPool pool(2);
    {
        const auto file = open_model_file(path);
        const PackedWeight& weight = file->packed->shards()[1].index.weights[2];
        const std::uint64_t at = weight.planes[0].offset + 3;
        const std::string name = weight.key.name;
        damage(store.blob_path(first.digest), at);
        EXPECT_ERROR(open_model_file(path)->packed->verify(pool), invalid_input, "shard layer.0: the codes of '" + name + "'");
        const auto wrong = wrong_blobs(*open_model_file(path), pool);
        ASSERT_EQ(wrong.size(), 1u);
        EXPECT_THAT(wrong[0], testing::HasSubstr("shard layer.0"));
        LoadOptions load;
        load.device = "cpu";
        load.threads = 1;
        load.verify = true;
        EXPECT_ERROR(Engine::load(path, load), invalid_input, "shard layer.0");
        damage(store.blob_path(first.digest), at);  // back
        Engine::load(path, load);
    }
    // Swapped with another shard of the model.
    const std::string bytes = read_file(store.blob_path(first.digest)), other = read_file(store.blob_path(second.digest));
    fs::remove(store.blob_path(first.digest));
    write_file_atomically(store.blob_path(first.digest), other);
    EXPECT_ERROR(open_model_file(path), invalid_input, "layer.0");
    EXPECT_ERROR(open_model_file(path), invalid_input, "swapped");
    write_file_atomically(store.blob_path(first.digest), bytes.substr(0, bytes.size() / 2));
    EXPECT_ERROR(open_model_file(path), invalid_input, "layer.0");
    EXPECT_ERROR(open_model_file(path), invalid_input, "truncated");
    fs::remove(store.blob_path(first.digest));
    EXPECT_ERROR(open_model_file(path), not_found, "layer.0");
}

TEST_F(PackForge, PackingAgainMendsDamagedBlobs) {
    PackOptions o = pack_options(source_path("models/gguf-qwen3-kquants"), "m", WeightLayout::rows);
    const std::string path = pack_model(o).path;
    const Store store = Store::open();
    const Manifest manifest = open_model_file(path)->packed->manifest();
    ThreadPool pool(2);
    o.overwrite = true;
    for (const ManifestBlob& blob : manifest.blobs) {
        for (const std::uint64_t at : {std::uint64_t{0}, blob.bytes / 2, blob.bytes - 1}) {
            damage(store.blob_path(blob.digest), at);
            const auto wrong = wrong_blobs(path, pool);  // also where the model does not open any more
            ASSERT_EQ(wrong.size(), 1u) << blob.role << " " << at;
            EXPECT_THAT(wrong[0], testing::HasSubstr("the " + blob.role));
            pack_model(o);
            ASSERT_EQ(wrong_blobs(path, pool), std::vector<std::string>{}) << blob.role << " " << at;
        }
        fs::remove(store.blob_path(blob.digest));
        ASSERT_EQ(wrong_blobs(path, pool).size(), 1u);
        pack_model(o);
        ASSERT_EQ(wrong_blobs(path, pool), std::vector<std::string>{});
    }
}

TEST_F(PackForge, ShardsOfAStoppedRunAreNotBelieved) {
    for (const std::string& output : {std::string("m"), folder / "m.forge"}) {
        PackOptions o = pack_options(source_path("models/gguf-qwen3-kquants"), output, WeightLayout::tiles);
        std::string preview;
        o.prove = [&](const std::string& path) -> std::string {
            preview = path;
            fail("stopped here");
        };
        EXPECT_ERROR(pack_model(o), invalid_input, "stopped here");
        const ForgeBlobs blobs = find_forge_blobs(preview);
        const Manifest manifest = Manifest::parse(blobs.manifest, preview);
        const BlobBytes second = blobs.lookup(manifest.blobs[1]);
        damage(second.file->path(), second.offset + 20000);
        o.prove = {};
        const PackSummary made = pack_model(o);
        EXPECT_GT(made.resumed, 0u) << output;
        EXPECT_LT(made.resumed, made.shards) << output;
        ThreadPool pool(2);
        EXPECT_EQ(wrong_blobs(made.path, pool), std::vector<std::string>{});
    }
}

TEST_F(PackForge, StaysInMemoryWhenAsked) {
    const std::string path = pack_model(pack_options(source_path("models/gguf-llama-q4_0"), "m", WeightLayout::tiles)).path;
    LoadOptions load;
    load.device = "cpu";
    load.threads = 1;
    load.lock_memory = true;
    std::ifstream limits("/proc/self/limits");  // Linux says how much may be locked; elsewhere it is enough
    std::string line;
    while (std::getline(limits, line))
        if (line.starts_with("Max locked memory") && line.find("unlimited") == std::string::npos) GTEST_SKIP() << line;
    Engine::load(path, load);
}

TEST_F(PackForge, VerifyNeedsHashes) {
    LoadOptions load;
    load.device = "cpu";
    load.verify = true;
    EXPECT_ERROR(Engine::load(source_path("models/gguf-llama-q4_0"), load), invalid_input, "holds no hashes");
}

TEST_F(PackForge, KilledAtAnyMomentLeavesTheStoreValid) {
    const Store store = Store::open();
    const std::string source = source_path("models/gguf-qwen3-kquants"), other = source_path("models/gguf-llama-q4_0");
    pack_model(pack_options(other, "kept", WeightLayout::rows));
    std::mt19937 random(7);
    ThreadPool pool(1);
    int finished = 0;
    // The first round is left alone and timed; the others are killed somewhere in that time and a little after.
    using Clock = std::chrono::steady_clock;
    auto whole = std::chrono::microseconds(0);
    for (int round = 0; round < 200; ++round) {
        const auto start = Clock::now();
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            try {
                PackOptions o = pack_options(source, "m", WeightLayout::tiles);
                o.overwrite = true;
                o.threads = 1;
                if (round % 5 == 4) Store::open().gc();
                pack_model(o);
                Store::open().gc();
                ::_exit(0);
            } catch (...) {
                ::_exit(3);
            }
        }
        if (round > 0) {
            std::this_thread::sleep_for(whole * (random() % 1300) / 1000);
            ::kill(child, SIGKILL);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        if (round == 0) whole = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
        ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "round " << round;
        for (const ModelName& name : store.list()) {
            const auto file = open_model_file(store.manifest_path(name).string());
            ASSERT_EQ(wrong_blobs(*file, pool), std::vector<std::string>{}) << "round " << round;
            if (name.name == "m") ++finished;
        }
        ASSERT_TRUE(store.read_manifest({"kept", "latest"}));
        if (round % 7 == 6) store.remove_manifest({"m", "latest"});
    }
    EXPECT_GT(finished, 0) << "no run came to its end: the moments are too early";
    store.remove_manifest({"m", "latest"});
    store.gc();
    EXPECT_EQ(store.blobs().size(), open_model_file(store.manifest_path({"kept", "latest"}).string())->packed->manifest().blobs.size());
}

}  // namespace
}  // namespace forge
