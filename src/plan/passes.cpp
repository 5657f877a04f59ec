#include "plan/passes.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "plan/passes/fusions.h"

namespace forge {
namespace {

constexpr Pass passes[] = {
    {"trim_outputs", "after the last attention only rows whose logits are wanted", trim_outputs},
    {"fuse_norm_matmul", "norm as the prologue of the matmuls that read it", fuse_norm_matmul},
    {"fuse_gate_up", "gate, up and activation in one matmul", fuse_gate_up},
    {"fuse_residual", "residual addition as a matmul's epilogue", fuse_residual},
    {"fuse_norm_residual", "norm and residual addition in one op", fuse_norm_residual},
    {"fuse_delta_norm", "the delta rule with the norm and gate after it", fuse_delta_norm, PassTarget::cpu},
    {"fuse_conv", "convolution as the epilogue of the matmul before it", fuse_conv, PassTarget::gpu},
    {"fuse_gated_norm", "norm and gate of the delta rule as the prologue of the matmul after it", fuse_gated_norm, PassTarget::gpu},
    {"fuse_prepare", "norm, rope and cache write of queries and keys in attention", fuse_prepare, PassTarget::gpu},
    {"fuse_head_gate", "attention's gate in attention", fuse_head_gate, PassTarget::gpu},
    {"fuse_merge", "the merging of a short cache's parts in attention", fuse_merge, PassTarget::gpu},
    {"fuse_combine", "residual addition in the sum over experts", fuse_combine, PassTarget::gpu},
    {"skip_take", "in steps of one row its product reads what take_rows would copy", skip_take, PassTarget::gpu},
    {"order_products", "matmuls of one input next to each other, to be one launch", order_products, PassTarget::gpu},
};

}  // namespace

std::span<const Pass> all_passes() { return passes; }

std::vector<PassReport> run_passes(Plan& plan, std::span<const std::string> off, PassTarget target) {
    for (const std::string& name : off) {
        const bool known = name == "all" || std::any_of(std::begin(passes), std::end(passes), [&](const Pass& p) { return p.name == name; });
        if (known) continue;
        std::string names;
        for (const Pass& p : passes) names += fmt::format("{}{}", names.empty() ? "" : ", ", p.name);
        fail("there is no pass '{}'; the passes are {}", name, names);
    }
    std::vector<PassReport> reports;
    for (const Pass& pass : passes) {
        if (pass.target != PassTarget::any && target != PassTarget::any && pass.target != target) continue;
        const bool skipped = std::any_of(off.begin(), off.end(), [&](const std::string& n) { return n == "all" || n == pass.name; });
        const int before = static_cast<int>(plan.ops.size());
        const auto start = std::chrono::steady_clock::now();
        if (!skipped) {
            pass.run(plan);
            verify(plan);
        }
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        reports.push_back({pass.name, seconds, before, static_cast<int>(plan.ops.size()), skipped});
    }
    return reports;
}

}  // namespace forge
