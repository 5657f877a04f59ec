// residual + matmul, and residual + norm (sandwich norms), without a launch of
// its own for the addition.
#include "plan/passes/fusions.h"

namespace forge {
namespace {

// Index of the add's input that a fusable op of kind T makes and nobody else reads; -1 when none.
template <typename T>
int fusable_input(const Plan& plan, const Op& add) {
    for (int i : {1, 0}) {
        if (plan.uses(add.inputs[i]) != 1 || add.inputs[0] == add.inputs[1]) continue;
        const int p = producer(plan, add.inputs[i]);
        if (p < 0 || !std::holds_alternative<T>(plan.ops[p].attributes)) continue;
        if constexpr (std::is_same_v<T, MatmulOp>) {
            if (std::get<MatmulOp>(plan.ops[p].attributes).epilogue != MatmulEpilogue::none) continue;
        }
        if constexpr (std::is_same_v<T, NormOp>) {
            const NormOp& norm = std::get<NormOp>(plan.ops[p].attributes);
            if (norm.groups != 1 || norm.weight < 0) continue;
        }
        if (plan.ops[p].inputs.size() != 1) continue;
        return i;
    }
    return -1;
}

}  // namespace

void fuse_residual(Plan& plan) {
    for (Op& op : plan.ops) {
        if (!std::holds_alternative<AddOp>(op.attributes)) continue;
        const int i = fusable_input<MatmulOp>(plan, op);
        if (i < 0) continue;
        const Op& made = plan.ops[producer(plan, op.inputs[i])];
        MatmulOp fused = std::get<MatmulOp>(made.attributes);
        fused.epilogue = MatmulEpilogue::add;
        op.inputs = {made.inputs[0], op.inputs[1 - i]};
        op.attributes = fused;
    }
    drop_dead_ops(plan);
}

void fuse_norm_residual(Plan& plan) {
    for (Op& op : plan.ops) {
        if (!std::holds_alternative<AddOp>(op.attributes)) continue;
        const int i = fusable_input<NormOp>(plan, op);
        if (i < 0) continue;
        const Op& made = plan.ops[producer(plan, op.inputs[i])];
        const NormOp norm = std::get<NormOp>(made.attributes);
        op.inputs = {made.inputs[0], op.inputs[1 - i]};
        op.attributes = norm;
    }
    drop_dead_ops(plan);
}

}  // namespace forge
