// The delta rule with the norm and gate that follow it, so that a decode step's heads never leave the cache.
#include "plan/passes/fusions.h"

namespace forge {

void fuse_delta_norm(Plan& plan) {
    for (Op& op : plan.ops) {
        const auto* norm = std::get_if<GatedNormOp>(&op.attributes);
        if (!norm || plan.uses(op.inputs[0]) != 1) continue;
        const int p = producer(plan, op.inputs[0]);
        if (p < 0) continue;
        const Op& made = plan.ops[p];
        const auto* delta = std::get_if<DeltaOp>(&made.attributes);
        if (!delta || norm->heads != delta->delta.n_v_heads) continue;
        DeltaOp fused = *delta;
        fused.norm_weight = norm->weight;
        fused.eps = norm->eps;
        op.inputs = {made.inputs[0], made.inputs[1], made.inputs[2], op.inputs[1]};
        op.attributes = fused;
        plan.ops.erase(plan.ops.begin() + p);   // drop_dead_ops would keep it for the state that it writes
        return fuse_delta_norm(plan);
    }
}

}  // namespace forge
