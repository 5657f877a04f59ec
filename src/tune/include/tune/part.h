// A few operations of a plan as a plan of their own: what is checked and timed by itself.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace forge::tune {

enum class InputKind : std::uint8_t {
    activation,   // of the activation type
    residual,     // likewise, but added to the result: small, so that it hides no error
    route,        // ids of experts and their weights
};
struct PartInput { ValueId value; InputKind kind; };

struct Part {
    Plan plan;
    std::vector<PartInput> inputs;
    // Layers whose keys and values, or recurrent state, the operations use; -1: none.
    int kv_layer = -1, state_layer = -1;
    bool writes_keys = false, reads_keys = false;   // of the step's own positions; of all positions up to them
    std::vector<int> layers = {};          // all that are used: a part that is only timed may be of several

    ValueId output() const { return plan.logits; }
    bool of_outputs() const { return plan.values[static_cast<std::size_t>(output())].rows == RowSpace::outputs; }
    const MatmulOp* matmul() const;        // the only operation, if it is a product
    const RouteOp* route() const;          // likewise
    int experts() const;                   // that routes among the inputs choose from; 0: none
    int per_token() const;
};

// A plan for steps of many rows, in which what lowering makes launches of their own of (lower/lower.h, wide_fusions) is
// operations of their own: they are checked on fewer rows and columns by themselves. The same launches come of it.
Plan take_apart(const Plan& fused);

// Operations that cannot be told apart from outside run together: experts' products up to where their rows are back in
// order, a rope table with who reads it. Indices into the plan's ops, in order; every op that computes is in one.
std::vector<std::vector<std::size_t>> units(const Plan& plan);

// Any ops of a plan, in order. The last one's output is the part's.
Part part_of(const Plan& plan, const std::vector<std::size_t>& ops);

}  // namespace forge::tune
