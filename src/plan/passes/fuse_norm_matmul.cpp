// A norm that only matmuls read becomes their prologue: each thread computes
// the normalised row itself while the weights stream in, and the barrier
// between norm and matmul disappears.
#include "plan/passes/fusions.h"

namespace forge {

void fuse_norm_matmul(Plan& plan) {
    for (std::size_t n = 0; n < plan.ops.size(); ++n) {
        const auto* norm = std::get_if<NormOp>(&plan.ops[n].attributes);
        if (!norm || plan.ops[n].inputs.size() != 1 || norm->groups != 1 || norm->weight < 0) continue;
        const ValueId value = plan.ops[n].output;
        bool all = plan.uses(value) > 0 && value != plan.logits;
        for (const Op& op : plan.ops) {
            for (std::size_t i = 0; i < op.inputs.size(); ++i) {
                if (op.inputs[i] != value) continue;
                const auto* matmul = std::get_if<MatmulOp>(&op.attributes);
                all = all && matmul && i == 0 && matmul->norm_weight < 0;
            }
        }
        if (!all) continue;
        for (Op& op : plan.ops) {
            if (op.inputs.empty() || op.inputs[0] != value) continue;
            auto& matmul = std::get<MatmulOp>(op.attributes);
            matmul.norm_weight = norm->weight;
            matmul.norm = norm->norm;
            op.inputs[0] = plan.ops[n].inputs[0];
        }
    }
    drop_dead_ops(plan);
}

}  // namespace forge
