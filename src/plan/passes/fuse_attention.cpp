// What stands around attention, in attention: a decode step's queries and its one new key are prepared by whoever reads
// them, gates are applied where the parts of the cache are merged, and these where they are made.
#include "plan/passes/fusions.h"

namespace forge {

void fuse_prepare(Plan& plan) {
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
        auto* attention = std::get_if<AttentionOp>(&plan.ops[i].attributes);
        if (!attention || attention->prepare) continue;
        const int p = sole_producer<QkPrepareOp>(plan, plan.ops[i].inputs[0]);
        if (p < 0) continue;
        // Nothing between them may read the cache that would now be written later.
        bool moved = true;
        for (std::size_t between = static_cast<std::size_t>(p) + 1; between < i; ++between) moved = moved && !std::holds_alternative<AttentionOp>(plan.ops[between].attributes);
        if (!moved) continue;
        const Op made = plan.ops[static_cast<std::size_t>(p)];
        attention->prepare = std::get<QkPrepareOp>(made.attributes);
        std::vector<ValueId> inputs = made.inputs;
        inputs.insert(inputs.end(), plan.ops[i].inputs.begin() + 1, plan.ops[i].inputs.end());
        plan.ops[i].inputs = std::move(inputs);
        plan.ops.erase(plan.ops.begin() + p);   // drop_dead_ops would keep it for the cache that it writes
        --i;
    }
}

void fuse_head_gate(Plan& plan) {
    for (Op& op : plan.ops) {
        const auto* gate = std::get_if<HeadGateOp>(&op.attributes);
        if (!gate) continue;
        const int p = sole_producer<AttentionOp>(plan, op.inputs[0]);
        if (p < 0) continue;
        const Op& made = plan.ops[static_cast<std::size_t>(p)];
        if (plan.values[static_cast<std::size_t>(op.output)].rows != plan.values[static_cast<std::size_t>(made.output)].rows) continue;
        AttentionOp fused = std::get<AttentionOp>(made.attributes);
        if (fused.gate || fused.attention.n_heads != gate->n_heads || fused.attention.head_dim != gate->head_dim) continue;
        fused.gate = true;
        std::vector<ValueId> inputs = made.inputs;
        inputs.push_back(op.inputs[1]);
        op.attributes = fused;
        op.inputs = std::move(inputs);
        plan.ops.erase(plan.ops.begin() + p);   // it may write the cache, so drop_dead_ops would keep it
        return fuse_head_gate(plan);
    }
}

void fuse_merge(Plan& plan) {
    for (Op& op : plan.ops)
        if (auto* attention = std::get_if<AttentionOp>(&op.attributes)) attention->merge = true;
}

}  // namespace forge
