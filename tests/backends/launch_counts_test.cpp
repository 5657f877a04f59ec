// Launches and stages of a token on GPUs, from a model's configuration alone: its weights are an outline, and nothing
// runs. The figures are the engine's own (`forge inspect --memory --as metal`); more of them is a regression.
#include <gtest/gtest.h>

#include "../support/expect_error.h"
#include "backends/outline.h"
#include "backends/registry.h"
#include "gpu_program.h"
#include "pack/synth.h"
#include "runtime/engine.h"

namespace forge::test {
namespace {

std::shared_ptr<Engine> outline_of(const std::string& folder, const std::string& device, const std::vector<std::string>& passes_off = {}) {
    const auto always = [](std::string*) { return true; };
    register_device({"metal-outline", -1, always, [](ThreadPool&, int) { return make_outline_backend(OutlineTarget::metal); }});
    register_device({"cuda-outline", -1, always, [](ThreadPool&, int) { return make_outline_backend(OutlineTarget::cuda); }});
    LoadOptions options;
    options.device = device;
    options.threads = 1;
    options.passes_off = passes_off;
    return Engine::load(folder, options);
}

std::string synthesised(const TestFolder& folder, const std::string& shape) {
    SynthOptions options;
    options.shape = shape;
    options.format = "hf";
    options.outline = true;
    options.output = folder / shape;
    options.threads = 1;
    synthesise(options);
    return options.output;
}

struct Expected {
    const char* shape;
    int launches, stages, longer, unfused;   // longer: more from position 1024 on; unfused: launches without any pass, at least
};

class LaunchCounts : public testing::TestWithParam<Expected> {};

TEST_P(LaunchCounts, OfATokenAreKnownFromTheConfiguration) {
    const TestFolder folder;
    const std::string model = synthesised(folder, GetParam().shape);
    for (const char* device : {"metal-outline", "cuda-outline"}) {
        const StepCounts fused = outline_of(model, device)->step_counts(), plain = outline_of(model, device, {"all"})->step_counts();
        std::printf("%s, %s: %d launches, %d stages, %d more from position %d on, %d that pick; %d launches without passes\n", GetParam().shape, device, fused.launches, fused.stages,
                    fused.longer, fused.short_context, fused.picks, plain.launches);
        // CUDA always merges attention's parts in launches of their own.
        const bool metal = device == std::string_view("metal-outline");
        EXPECT_EQ(fused.launches, GetParam().launches + (metal ? 0 : GetParam().longer)) << device;
        EXPECT_EQ(fused.stages, GetParam().stages + (metal ? 0 : GetParam().longer)) << device;
        EXPECT_EQ(fused.longer, metal ? GetParam().longer : 0) << device;
        EXPECT_TRUE(!metal || fused.short_context == 1024) << fused.short_context;
        EXPECT_EQ(fused.picks, 2);
        EXPECT_GE(plain.launches, GetParam().unfused);
    }
}

INSTANTIATE_TEST_SUITE_P(All, LaunchCounts,
                         testing::Values(Expected{"qwen3.5-0.8b", 122, 122, 6, 263}, Expected{"qwen3.6-35b-a3b", 402, 362, 10, 600}, Expected{"qwen3-0.6b", 142, 142, 28, 300},
                                         Expected{"llama-3.1-8b", 162, 162, 32, 300}),
                         [](const auto& info) {
                             std::string name = info.param.shape;
                             for (char& c : name)
                                 if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                             return name;
                         });

TEST(Variants, AreChosenByRowsPositionsAndSteps) {
    const std::vector<gpu::Variant> v{{1, {}, 1024, true}, {1, {}, 1024}, {8, {}, 1024}, {1, {}}, {8, {}}};
    const auto chosen = [&](int rows, int longest, int m) { return &gpu::variant_for(v, rows, longest, m) - v.data(); };
    EXPECT_EQ(chosen(1, 0, 1), 0);
    EXPECT_EQ(chosen(1, 1023, 1), 0);
    EXPECT_EQ(chosen(1, 0, 2), 1);   // one output of two rows
    EXPECT_EQ(chosen(3, 5, 3), 2);
    EXPECT_EQ(chosen(1, 1024, 1), 3);
    EXPECT_EQ(chosen(8, 1024, 8), 4);
    EXPECT_EQ(chosen(9, 0, 9), 4);
}

TEST(Outlines, AreCountedAndNotRun) {
    const TestFolder folder;
    const auto engine = outline_of(synthesised(folder, "qwen3.5-tiny"), "metal-outline");
    EXPECT_GT(engine->predict(1, 0).size(), 0u);
    const StepInput row{1, 0, 0, true};
    EXPECT_THROW(engine->step({&row, 1}), Error);
}

}  // namespace
}  // namespace forge::test
