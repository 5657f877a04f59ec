#include <algorithm>

#include "plan/passes/fusions.h"

namespace forge {

int producer(const Plan& plan, ValueId value) {
    for (std::size_t i = 0; i < plan.ops.size(); ++i)
        if (plan.ops[i].output == value) return static_cast<int>(i);
    return -1;
}

void drop_dead_ops(Plan& plan) {
    std::vector<int> uses(plan.values.size(), 0);
    uses[plan.logits] = 1;
    for (const Op& op : plan.ops)
        for (ValueId in : op.inputs) ++uses[in];
    for (int i = static_cast<int>(plan.ops.size()) - 1; i >= 0; --i) {
        const Op& op = plan.ops[i];
        const auto* prepare = std::get_if<QkPrepareOp>(&op.attributes);
        const auto* attention = std::get_if<AttentionOp>(&op.attributes);
        const auto* matmul = std::get_if<MatmulOp>(&op.attributes);
        const bool writes_state = std::holds_alternative<ConvOp>(op.attributes) || std::holds_alternative<DeltaOp>(op.attributes) || (matmul && matmul->conv_weight >= 0);
        const bool writes_cache = (prepare && prepare->writes_cache) || (attention && attention->prepare && attention->prepare->writes_cache);
        if (uses[op.output] > 0 || writes_state || writes_cache) continue;
        for (ValueId in : op.inputs) --uses[in];
        plan.ops.erase(plan.ops.begin() + i);
    }
}

}  // namespace forge
