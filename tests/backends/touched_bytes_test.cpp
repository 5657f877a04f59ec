// The bytes that a token moves, counted by the emulator, against those that the program says it moves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "../runtime/reference_file.h"
#include "metal_emu/touched.h"
#include "runtime/session.h"
#include "test_device.h"

namespace forge::test {
namespace {

struct Moved {
    std::uint64_t weights = 0, cache = 0;
};

// Unique bytes that were read, and those that were written.
Moved moved() {
    Moved sum;
    for (const metal_emu::BufferUse& use : metal_emu::buffer_use()) {
        if (use.label == "weights") sum.weights += use.touched.read + use.touched.written;
        if (use.label == "cache") sum.cache += use.touched.read + use.touched.written;
    }
    return sum;
}

// A token after `ids`: the unique bytes of weights, cache and states that it touches are within 2 % of those claimed.
void expect_claimed_bytes(const std::string& name, const std::string& model, const std::string& device, const std::vector<std::int32_t>& ids) {
    LoadOptions options;
    options.device = device;
    options.dtype = DType::bf16;
    options.ctx = 160;
    options.chunk = 8;
    options.max_outputs = 1;
    const auto engine = Engine::load(model, options);
    Session session(engine);
    session.feed(ids);
    metal_emu::count_touched(true);
    session.append(ids[0]);
    metal_emu::count_touched(false);
    const Moved found = moved();
    const int position = static_cast<int>(ids.size());
    std::uint64_t claimed = 0;
    for (const LaunchProfile& launch : engine->predict(1, position)) claimed += launch.work.bytes;
    // A layer that reads another one's cache reads it again, and may have to from memory; here bytes count once.
    for (int i = 0; const LayerSpec& layer : engine->spec().layers) {
        const AttentionSpec& a = layer.attention;
        if (layer.mixer == MixerKind::attention && a.kv_layer != i)
            claimed -= 2 * static_cast<std::uint64_t>((a.window > 0 ? std::min(a.window, position + 1) : position + 1) * a.n_kv_heads * a.head_dim) * size_of(options.dtype);
        ++i;
    }
    const auto all = static_cast<double>(found.weights + found.cache);
    std::printf("%s: %llu bytes of weights and %llu of cache and states touched, %llu claimed, %.2f %% apart\n", name.c_str(), static_cast<unsigned long long>(found.weights),
                static_cast<unsigned long long>(found.cache), static_cast<unsigned long long>(claimed), 100 * (all / static_cast<double>(claimed) - 1));
    EXPECT_GT(found.weights, 0u);
    EXPECT_GT(found.cache, 0u);
    EXPECT_LE(all, 1.0001 * static_cast<double>(claimed));
    EXPECT_GE(all, 0.98 * static_cast<double>(claimed));
}

// The device counts, which it must know before its first use.
std::string counting_device(std::string* reason) {
    setenv("METAL_EMU_COUNT", "1", 1);
    return test_device(reason);
}

class TouchedBytes : public testing::TestWithParam<TinyModel> {};

TEST_P(TouchedBytes, OfATokenAreThoseThatTheProgramClaims) {
    std::string reason;
    const std::string device = counting_device(&reason);
    if (device.empty()) GTEST_SKIP() << reason;
    std::vector<std::int32_t> ids;
    for (const ReferenceRecord& r : read_reference(GetParam().folder / "reference.jsonl"))
        if (!r.greedy) ids = r.ids;
    ids.resize(std::min<std::size_t>(ids.size(), 24));
    expect_claimed_bytes(GetParam().name, GetParam().model.string(), device, ids);
}

// Of a model of real size: FORGE_LONG=1 and FORGE_TEST_MODELS=FOLDER with smollm2-135m*.gguf.
TEST(TouchedBytesOfARealModel, AreThoseThatTheProgramClaims) {
    const std::string file = smollm2_file();
    if (quick() || file.empty()) GTEST_SKIP() << "with FORGE_LONG=1 and FORGE_TEST_MODELS naming a folder with smollm2-135m*.gguf";
    std::string reason;
    const std::string device = counting_device(&reason);
    if (device.empty()) GTEST_SKIP() << reason;
    expect_claimed_bytes("SmolLM2-135M", file, device, {504, 3575, 282, 4649, 314, 7042, 28, 284});
}

std::vector<TinyModel> sample() {
    std::vector<TinyModel> models = tiny_models();
    std::erase_if(models, [](const TinyModel& m) { return !in_sample(m.name); });
    return models;
}

INSTANTIATE_TEST_SUITE_P(All, TouchedBytes, testing::ValuesIn(sample()), [](const auto& info) {
    std::string name = info.param.name;
    std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
    return name;
});

}  // namespace
}  // namespace forge::test
