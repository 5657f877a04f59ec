// Every GPU kernel against the plain one: outputs poisoned, memory checked, in several orders of lanes.
#include "cases.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace forge::test {
namespace {

constexpr std::size_t kBatch = 32;   // cases of a long run that are compiled together: a compiler takes too long for thousands of kernels at once

// FORGE_PART=2/14: every fourteenth case from the second on, for cores or machines that share the long grid.
std::vector<GpuCase> part_of(std::vector<GpuCase> cases) {
    const char* value = std::getenv("FORGE_PART");
    std::size_t part = 1, parts = 1;
    if (value && (std::sscanf(value, "%zu/%zu", &part, &parts) != 2 || part == 0 || part > parts)) {
        ADD_FAILURE() << "FORGE_PART=" << value << " is not a part like 2/14";
        return {};
    }
    std::vector<GpuCase> taken;
    for (std::size_t i = part - 1; i < cases.size(); i += parts) taken.push_back(std::move(cases[i]));
    return taken;
}

class GpuKernels : public testing::TestWithParam<std::pair<const char*, std::vector<GpuCase> (*)(bool)>> {};

TEST_P(GpuKernels, MatchThePlainKernels) {
    std::string reason;
    const std::unique_ptr<GpuDevice> device = make_gpu_device(&reason);
    if (!device) GTEST_SKIP() << reason;
    const std::string_view family = GetParam().first;
    constexpr std::string_view tensor_families[] = {"tensor", "flash", "codes", "decode", "expert_tensor", "delta_tensor"};
    if (!device->tensor() && std::find(std::begin(tensor_families), std::end(tensor_families), family) != std::end(tensor_families)) GTEST_SKIP() << "for NVIDIA's tensor cores";
    const bool matrices = family.substr(0, 4) == "simd" || family == "matmul2d";
    if (matrices && device->matrix_profiles() == 0) GTEST_SKIP() << "for Metal's matrices";
    if (family == "matmul2d" && !device->matmul2d()) GTEST_SKIP() << "for GPUs with Metal 4's tensor operations";
    const std::vector<GpuCase> cases = part_of(GetParam().second(long_tests()));
    const std::size_t batch = long_tests() ? kBatch : cases.size();
    std::size_t compiled = 0;
    int failed = 0;
    for (std::size_t begin = 0; begin < cases.size(); begin += batch) {
        const std::size_t end = std::min(begin + batch, cases.size());
        std::vector<gpu::Kernel> kernels;
        for (std::size_t i = begin; i < end; ++i) kernels.insert(kernels.end(), cases[i].kernels.begin(), cases[i].kernels.end());
        compiled += kernels.size();
        for (int profile = 0; profile < (matrices ? device->matrix_profiles() : 1); ++profile) {
            if (matrices) device->choose_profile(profile);
            device->compile(kernels);
            if (HasFatalFailure()) return;
            for (std::size_t i = begin; i < end; ++i) {
                const GpuCase& c = cases[i];
                SCOPED_TRACE(c.name + (matrices ? ", profile " + std::to_string(profile) : ""));
                for (int order = 0; order < device->orders(); ++order)
                    if (!matrices || long_tests() || order == profile) c.run(*device, order);   // an order for each profile, or all
                failed += HasFailure();
                if (failed > 20) return;
            }
        }
        if (long_tests()) {
            std::printf("%s: %zu of %zu cases\n", GetParam().first, end, cases.size());
            std::fflush(stdout);
        }
    }
    RecordProperty("cases", static_cast<int>(cases.size()));
    std::printf("%zu cases, %zu kernels\n", cases.size(), compiled);
}

INSTANTIATE_TEST_SUITE_P(All, GpuKernels,
                         testing::Values(std::make_pair("rows", &row_cases), std::make_pair("matvec", &matvec_cases), std::make_pair("codes", &codes_cases), std::make_pair("gemm", &gemm_cases),
                                         std::make_pair("tensor", &tensor_cases),
                                         std::make_pair("attention", &attention_cases), std::make_pair("decode", &decode_cases), std::make_pair("flash", &flash_cases), std::make_pair("delta", &delta_cases), std::make_pair("delta_tensor", &delta_tensor_cases), std::make_pair("experts", &expert_cases),
                                         std::make_pair("expert_tensor", &expert_tensor_cases), std::make_pair("simd", &simd_cases),
                                         std::make_pair("simd_flash", &simd_flash_cases), std::make_pair("simd_experts", &simd_expert_cases), std::make_pair("matmul2d", &matmul2d_cases), std::make_pair("fusions", &fusion_cases)),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace forge::test
