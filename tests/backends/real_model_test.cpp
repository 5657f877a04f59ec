// A real model through the Metal backend under emulation: FORGE_LONG=1 and FORGE_TEST_MODELS=FOLDER with
// smollm2-135m*.gguf. Minutes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "runtime/session.h"
#include "test_device.h"

namespace forge::test {
namespace {

// "The capital of France is Paris, and the river that runs through it is the Seine. The largest cities of Italy are
// Rome, Milan and Naples; the"
constexpr std::int32_t kPrompt[] = {504, 3575, 282, 4649, 314, 7042, 28, 284, 260, 4626, 338, 7313, 738, 357, 314, 260,
                                    1268, 462, 30, 378, 3995, 4199, 282, 7158, 359, 7268, 28, 28676, 284, 35940, 43, 260};
constexpr std::size_t kGenerated = 16;

std::shared_ptr<Engine> load(const std::string& file, const std::string& device, DType dtype) {
    LoadOptions options;
    options.device = device;
    options.dtype = dtype;
    options.threads = 2;
    options.ctx = 64;
    options.chunk = static_cast<int>(std::size(kPrompt));
    options.max_outputs = 1;
    return Engine::load(file, options);
}

std::size_t arg_max(std::span<const float> row) { return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin()); }

class RealModel : public testing::TestWithParam<DType> {};

// The CPU leads: where the GPU would take another token, the two must be near in the CPU's logits.
TEST_P(RealModel, GreedyTokensEqualTheCpus) {
    if (quick()) GTEST_SKIP() << "with FORGE_LONG=1";
    const std::string file = smollm2_file();
    if (file.empty()) GTEST_SKIP() << "FORGE_TEST_MODELS names no folder with smollm2-135m*.gguf";
    std::string reason;
    const std::string device = test_device(&reason);
    if (device.empty()) GTEST_SKIP() << reason;
    Session cpu(load(file, "cpu", GetParam())), gpu(load(file, device, GetParam()));
    const std::vector<std::int32_t> prompt(std::begin(kPrompt), std::end(kPrompt));
    cpu.feed(prompt);
    gpu.feed(prompt);
    int ties = 0;
    for (std::size_t i = 0; i < kGenerated; ++i) {
        const std::span<const float> wanted = cpu.logits(), found = gpu.logits();
        const std::size_t theirs = arg_max(wanted), ours = arg_max(found);
        double worst = 0, largest = 0;
        for (std::size_t k = 0; k < wanted.size(); ++k) {
            ASSERT_FALSE(std::isnan(found[k]));
            worst = std::max(worst, std::fabs(static_cast<double>(found[k]) - static_cast<double>(wanted[k])));
            largest = std::max(largest, std::fabs(static_cast<double>(wanted[k])));
        }
        EXPECT_LE(worst, 0.05 * largest) << "token " << i;
        std::printf("token %zu: %zu, logits differ by %.4f of %.2f at most\n", i, theirs, worst, largest);
        if (ours != theirs) {
            const double gap = static_cast<double>(wanted[theirs]) - static_cast<double>(wanted[ours]);
            std::printf("near tie: token %zu: %zu instead of %zu, %.4f apart\n", i, ours, theirs, gap);
            EXPECT_LE(gap, 2 * worst);
            ++ties;
        }
        cpu.append(static_cast<std::int32_t>(theirs));
        gpu.append(static_cast<std::int32_t>(theirs));
    }
    EXPECT_LE(ties, 2);
}

INSTANTIATE_TEST_SUITE_P(All, RealModel, testing::Values(DType::bf16, DType::f16), [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace forge::test
