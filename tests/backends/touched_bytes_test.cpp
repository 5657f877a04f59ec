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

class TouchedBytes : public testing::TestWithParam<TinyModel> {};

TEST_P(TouchedBytes, OfATokenAreThoseThatTheProgramClaims) {
    setenv("METAL_EMU_COUNT", "1", 1);   // before the first use of the device
    std::string reason;
    const std::string device = test_device(&reason);
    if (device.empty()) GTEST_SKIP() << reason;
    LoadOptions options;
    options.device = device;
    options.dtype = DType::bf16;
    options.ctx = 160;
    options.chunk = 8;
    options.max_outputs = 1;
    const auto engine = Engine::load(GetParam().model.string(), options);
    std::vector<std::int32_t> ids;
    for (const ReferenceRecord& r : read_reference(GetParam().folder / "reference.jsonl"))
        if (!r.greedy) ids = r.ids;
    ids.resize(std::min<std::size_t>(ids.size(), 24));
    Session session(engine);
    session.feed(ids);
    metal_emu::count_touched(true);
    session.append(ids[0]);
    metal_emu::count_touched(false);
    const Moved found = moved();
    std::uint64_t claimed = 0;
    for (const LaunchProfile& launch : engine->predict(1, static_cast<int>(ids.size()))) claimed += launch.work.bytes;
    const auto all = static_cast<double>(found.weights + found.cache);
    std::printf("%s: %llu bytes of weights and %llu of cache and states touched, %llu claimed\n", GetParam().name.c_str(), static_cast<unsigned long long>(found.weights),
                static_cast<unsigned long long>(found.cache), static_cast<unsigned long long>(claimed));
    EXPECT_GT(found.weights, 0u);
    EXPECT_GT(found.cache, 0u);
    // A norm's weights are claimed by each of q, k and v, and come from memory once: much where all is small.
    EXPECT_LE(all, 1.0001 * static_cast<double>(claimed));
    EXPECT_GE(all, (claimed < 64 * 1024 ? 0.97 : 0.98) * static_cast<double>(claimed));
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
