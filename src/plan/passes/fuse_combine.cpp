// residual + the sum over experts, without a launch of its own for the addition.
#include "plan/passes/fusions.h"

namespace forge {

void fuse_combine(Plan& plan) {
    for (Op& op : plan.ops) {
        if (!std::holds_alternative<AddOp>(op.attributes) || op.inputs[0] == op.inputs[1]) continue;
        for (const int i : {1, 0}) {
            const int p = sole_producer<CombineOp>(plan, op.inputs[static_cast<std::size_t>(i)]);
            if (p < 0) continue;
            CombineOp fused = std::get<CombineOp>(plan.ops[static_cast<std::size_t>(p)].attributes);
            if (fused.residual) continue;
            fused.residual = true;
            std::vector<ValueId> inputs = plan.ops[static_cast<std::size_t>(p)].inputs;
            inputs.push_back(op.inputs[static_cast<std::size_t>(1 - i)]);
            op.inputs = std::move(inputs);
            op.attributes = fused;
            break;
        }
    }
    drop_dead_ops(plan);
}

}  // namespace forge
