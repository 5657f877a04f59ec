// Passes over the plan: a named list, each can be switched off, the verifier
// runs after every one. A fusion gives the same bits as the ops it replaces.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace forge {

// Where a pass is run: fusions pay on one kind of device and not on the other.
enum class PassTarget : std::uint8_t { any, cpu, gpu };

struct Pass {
    std::string_view name;
    std::string_view summary;
    void (*run)(Plan&);
    PassTarget target = PassTarget::any;
};

// In the order they run.
std::span<const Pass> all_passes();

struct PassReport { std::string_view name; double seconds; int ops_before, ops_after; bool skipped; };

// Those of one kind of device (any: all of them). off: names to leave out; "all" leaves out every pass. An unknown name
// is an Error listing the known ones.
std::vector<PassReport> run_passes(Plan& plan, std::span<const std::string> off, PassTarget target = PassTarget::cpu);

}  // namespace forge
