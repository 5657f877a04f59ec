// act(gate) * up in the matmul that makes both: neither is written to memory.
#include "plan/passes/fusions.h"

namespace forge {

void fuse_gate_up(Plan& plan) {
    for (Op& op : plan.ops) {
        const auto* act = std::get_if<ActMulOp>(&op.attributes);
        if (!act || act->up_offset != 0 || plan.values[op.inputs[1]].cols != plan.values[op.output].cols || plan.uses(op.inputs[0]) != 1 || plan.uses(op.inputs[1]) != 1) continue;
        const int g = producer(plan, op.inputs[0]), u = producer(plan, op.inputs[1]);
        if (g < 0 || u < 0) continue;
        const auto* gate = std::get_if<MatmulOp>(&plan.ops[g].attributes);
        const auto* up = std::get_if<MatmulOp>(&plan.ops[u].attributes);
        if (!gate || !up || gate->epilogue != MatmulEpilogue::none || up->epilogue != MatmulEpilogue::none) continue;
        if (plan.ops[g].inputs != plan.ops[u].inputs || gate->norm_weight != up->norm_weight) continue;
        // One inner loop reads both weights, so their planes must be of one kind.
        if (plan.weights[gate->weight].format != plan.weights[up->weight].format) continue;
        MatmulOp fused = *gate;
        fused.epilogue = MatmulEpilogue::act_mul;
        fused.weight2 = up->weight;
        fused.bias2 = up->bias;
        fused.activation = act->activation;
        op.attributes = fused;
        op.inputs = plan.ops[g].inputs;
    }
    drop_dead_ops(plan);
}

}  // namespace forge
