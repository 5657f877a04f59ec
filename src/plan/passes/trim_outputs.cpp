// Only rows whose logits are wanted go on after the last attention: take_rows
// moves up through row-wise ops. In prefill the last layer's projections then
// run for one row instead of a chunk.
#include "plan/passes/fusions.h"

namespace forge {
namespace {

template <typename... Kinds>
bool is_any(const Op& op) { return (std::holds_alternative<Kinds>(op.attributes) || ...); }

// A row of the output depends on the same row of the inputs and on nothing else.
bool row_wise(const Op& op) {
    return is_any<NormOp, MatmulOp, AddOp, ActMulOp, ScaleOp, HeadGateOp, GatedNormOp, RouteOp, ExpertMatmulOp, CombineOp>(op);
}

// Readers of a value that are not take_rows.
bool only_taken(const Plan& plan, ValueId value) {
    for (const Op& op : plan.ops)
        for (ValueId in : op.inputs)
            if (in == value && !std::holds_alternative<TakeRowsOp>(op.attributes)) return false;
    return true;
}

}  // namespace

void trim_outputs(Plan& plan) {
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t t = 0; t < plan.ops.size() && !moved; ++t) {
            if (!std::holds_alternative<TakeRowsOp>(plan.ops[t].attributes)) continue;
            const ValueId value = plan.ops[t].inputs[0];
            const int p = producer(plan, value);
            if (p < 0 || !row_wise(plan.ops[p]) || !only_taken(plan, value)) continue;
            // take(op(a, b)) becomes op(take(a), take(b)); one take per value.
            Op op = plan.ops[p];
            std::vector<Op> takes;
            for (ValueId& in : op.inputs) {
                ValueId taken = -1;
                for (const Op& other : plan.ops)
                    if (std::holds_alternative<TakeRowsOp>(other.attributes) && other.inputs[0] == in) taken = other.output;
                for (const Op& other : takes)
                    if (other.inputs[0] == in) taken = other.output;
                if (taken < 0) {
                    const Value source = plan.values[in];
                    taken = plan.add_value(source.name + ".out", source.type, RowSpace::outputs, source.cols);
                    takes.push_back({TakeRowsOp{}, {in}, taken, op.layer});
                }
                in = taken;
            }
            // The moved op now makes what take_rows made.
            const ValueId result = plan.ops[t].output;
            plan.values[result].name = plan.values[value].name + ".out";
            op.output = result;
            plan.ops[t] = op;
            // An existing take may stand later than this op: keep order by inserting new takes before
            // it and moving older ones (they only depend on token rows) to just after their input.
            plan.ops.insert(plan.ops.begin() + static_cast<long>(t), takes.begin(), takes.end());
            drop_dead_ops(plan);
            for (std::size_t i = 0; i < plan.ops.size(); ++i) {
                if (!std::holds_alternative<TakeRowsOp>(plan.ops[i].attributes)) continue;
                const std::size_t after = static_cast<std::size_t>(producer(plan, plan.ops[i].inputs[0]) + 1);
                if (after >= i) continue;
                Op take = plan.ops[i];
                plan.ops.erase(plan.ops.begin() + static_cast<long>(i));
                plan.ops.insert(plan.ops.begin() + static_cast<long>(after), take);
            }
            moved = true;
        }
    }
}

void skip_take(Plan& plan) {
    for (Op& op : plan.ops) {
        auto* matmul = std::get_if<MatmulOp>(&op.attributes);
        if (!matmul) continue;
        const int p = sole_producer<TakeRowsOp>(plan, op.inputs[0]);
        if (p >= 0) matmul->untaken = plan.ops[static_cast<std::size_t>(p)].inputs[0];
    }
}

}  // namespace forge
