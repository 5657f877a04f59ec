#include "tune/part.h"

#include <algorithm>
#include <map>
#include <set>

namespace forge::tune {
namespace {

template <typename T>
const T* only(const Plan& plan) {
    return plan.ops.size() == 1 ? std::get_if<T>(&plan.ops[0].attributes) : nullptr;
}

// The op that makes a value.
std::map<ValueId, std::size_t> producers(const Plan& plan) {
    std::map<ValueId, std::size_t> made;
    for (std::size_t i = 0; i < plan.ops.size(); ++i) made[plan.ops[i].output] = i;
    return made;
}

// From an expert product of a route to where the choices of a row are added.
std::vector<std::size_t> expert_unit(const Plan& plan, std::size_t first) {
    const ValueId route = plan.ops[first].inputs[1];
    std::vector<std::size_t> unit;
    std::set<ValueId> choices;   // values with a row a choice, in an order of the backend's
    for (std::size_t i = first; i < plan.ops.size(); ++i) {
        const Op& op = plan.ops[i];
        const bool product = std::holds_alternative<ExpertMatmulOp>(op.attributes) && op.inputs[1] == route;
        const bool reads = std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId v) { return choices.count(v) > 0; });
        if (!product && !reads) continue;
        unit.push_back(i);
        if (std::holds_alternative<CombineOp>(op.attributes)) break;
        choices.insert(op.output);
    }
    return unit;
}

void note_memory(Part& part, const Op& op) {
    int kv = -1, state = -1;
    const auto prepares = [&](const QkPrepareOp& o) {
        kv = o.attention.kv_layer;
        part.writes_keys = part.writes_keys || o.writes_cache;
    };
    if (const auto* o = std::get_if<QkPrepareOp>(&op.attributes)) prepares(*o);
    if (const auto* o = std::get_if<AttentionOp>(&op.attributes)) {
        kv = o->attention.kv_layer;
        part.reads_keys = true;
        if (o->prepare) prepares(*o->prepare);
    }
    if (const auto* o = std::get_if<ConvOp>(&op.attributes)) state = o->state_layer;
    if (const auto* o = std::get_if<DeltaOp>(&op.attributes)) state = o->state_layer;
    if (const auto* o = std::get_if<MatmulOp>(&op.attributes); o && o->conv_weight >= 0) state = o->state_layer;
    if (kv >= 0) part.layers.push_back(part.kv_layer = kv);
    if (state >= 0) part.layers.push_back(part.state_layer = state);
}

InputKind kind_of(const Op& reader, std::size_t index, const Op* producer) {
    if (producer && std::holds_alternative<RouteOp>(producer->attributes)) return InputKind::route;
    const auto* matmul = std::get_if<MatmulOp>(&reader.attributes);
    const auto* combine = std::get_if<CombineOp>(&reader.attributes);
    const bool adds = (matmul && matmul->epilogue == MatmulEpilogue::add) || (combine && combine->residual);
    if (adds && index + 1 == reader.inputs.size()) return InputKind::residual;
    return InputKind::activation;
}

}  // namespace

const MatmulOp* Part::matmul() const { return only<MatmulOp>(plan); }
const RouteOp* Part::route() const { return only<RouteOp>(plan); }

int Part::experts() const {
    for (const Op& op : plan.ops) {
        if (const auto* o = std::get_if<ExpertMatmulOp>(&op.attributes)) return o->experts;
        if (const auto* o = std::get_if<CombineOp>(&op.attributes)) return o->experts;
    }
    return 0;
}

int Part::per_token() const {
    for (const Op& op : plan.ops) {
        if (const auto* o = std::get_if<ExpertMatmulOp>(&op.attributes)) return o->per_token;
        if (const auto* o = std::get_if<CombineOp>(&op.attributes)) return o->per_token;
    }
    return 0;
}

Plan take_apart(const Plan& fused) {
    Plan plan = fused;
    plan.ops.clear();
    for (Op op : fused.ops) {
        // An operation before it that makes `value`, which the fused one then reads.
        const auto first = [&](OpAttributes attributes, std::vector<ValueId> inputs, const Value& like) {
            const ValueId made = plan.add_value(like.name + ".apart", like.type, like.rows, like.cols);
            plan.ops.push_back({std::move(attributes), std::move(inputs), made, op.layer});
            return made;
        };
        if (auto* matmul = std::get_if<MatmulOp>(&op.attributes); matmul && matmul->conv_weight >= 0) {
            MatmulOp product = *matmul;
            product.conv_weight = product.state_layer = -1;
            ConvOp conv{matmul->conv_weight, {}, matmul->state_layer};
            conv.delta.conv_kernel = matmul->conv_kernel;
            const ValueId made = first(product, op.inputs, plan.values[static_cast<std::size_t>(op.output)]);
            plan.ops.push_back({conv, {made}, op.output, op.layer});
            continue;
        }
        if (auto* attention = std::get_if<AttentionOp>(&op.attributes); attention && attention->prepare) {
            const QkPrepareOp prepare = *attention->prepare;
            attention->prepare.reset();
            std::vector<ValueId> inputs = op.inputs, left;
            if (attention->gate) {
                left.push_back(inputs.back());
                inputs.pop_back();
            }
            left.insert(left.begin(), first(prepare, std::move(inputs), plan.values[static_cast<std::size_t>(op.output)]));
            op.inputs = std::move(left);
        }
        plan.ops.push_back(std::move(op));
    }
    return plan;
}

std::vector<std::vector<std::size_t>> units(const Plan& plan) {
    const std::map<ValueId, std::size_t> made = producers(plan);
    std::vector<std::vector<std::size_t>> all;
    std::set<std::size_t> taken;
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
        const Op& op = plan.ops[i];
        if (taken.count(i) || std::holds_alternative<RopeTableOp>(op.attributes)) continue;
        std::vector<std::size_t> unit;
        if (std::holds_alternative<ExpertMatmulOp>(op.attributes)) {
            unit = expert_unit(plan, i);
        } else {
            for (const ValueId v : op.inputs)
                if (const auto it = made.find(v); it != made.end() && std::holds_alternative<RopeTableOp>(plan.ops[it->second].attributes))
                    unit.push_back(it->second);
            unit.push_back(i);
        }
        taken.insert(unit.begin(), unit.end());
        all.push_back(std::move(unit));
    }
    return all;
}

Part part_of(const Plan& plan, const std::vector<std::size_t>& ops) {
    const std::map<ValueId, std::size_t> made = producers(plan);
    Part part;
    part.plan.weights = plan.weights;
    part.plan.ropes = plan.ropes;
    part.plan.rope_pairs = plan.rope_pairs;
    std::map<ValueId, ValueId> renamed;
    const auto value = [&](ValueId old) {
        const auto [it, fresh] = renamed.try_emplace(old, static_cast<ValueId>(part.plan.values.size()));
        if (fresh) part.plan.values.push_back(plan.values[static_cast<std::size_t>(old)]);
        return it->second;
    };
    std::set<ValueId> inside;
    for (const std::size_t i : ops) inside.insert(plan.ops[i].output);
    std::set<ValueId> known;
    for (const std::size_t i : ops) {
        Op op = plan.ops[i];
        for (std::size_t k = 0; k < op.inputs.size(); ++k) {
            const ValueId old = op.inputs[k];
            op.inputs[k] = value(old);
            if (inside.count(old) || !known.insert(old).second) continue;
            const auto from = made.find(old);
            part.inputs.push_back({op.inputs[k], kind_of(op, k, from == made.end() ? nullptr : &plan.ops[from->second])});
        }
        op.output = value(op.output);
        if (auto* matmul = std::get_if<MatmulOp>(&op.attributes)) matmul->untaken = -1;
        note_memory(part, op);
        part.plan.ops.push_back(std::move(op));
    }
    part.plan.logits = part.plan.ops.back().output;
    return part;
}

}  // namespace forge::tune
