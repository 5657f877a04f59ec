// Passes over the plan: a named list, each can be switched off, the verifier
// runs after every one. A fusion gives the same bits as the ops it replaces.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace forge {

struct Pass {
    std::string_view name;
    std::string_view summary;
    void (*run)(Plan&);
};

// In the order they run.
std::span<const Pass> all_passes();

struct PassReport { std::string_view name; double seconds; int ops_before, ops_after; bool skipped; };

// off: names to leave out; "all" leaves out every pass. An unknown name is an Error listing the known ones.
std::vector<PassReport> run_passes(Plan& plan, std::span<const std::string> off);

}  // namespace forge
