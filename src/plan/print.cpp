#include <fmt/format.h>

#include "plan/plan.h"

namespace forge {
namespace {

std::string weight(const Plan& plan, WeightId id) {
    return id < 0 ? "-" : fmt::format("{}<{}>", plan.weights[id].name, describe(plan.weights[id].format));
}

std::string norm(const Plan& plan, WeightId id, const NormSpec& spec) {
    constexpr std::string_view names[] = {"two_rounding", "one_plus", "one_rounding"};
    return fmt::format("{}({}, eps {})", names[static_cast<int>(spec.kind)], id < 0 ? "-" : plan.weights[id].name, spec.eps);
}

std::string attention(const AttentionSpec& a) {
    std::string s = fmt::format("heads {}/{}x{} scale {:.6g} kv {}", a.n_heads, a.n_kv_heads, a.head_dim, a.scale, a.kv_layer);
    if (a.window) s += fmt::format(" window {}", a.window);
    if (a.softcap != 0) s += fmt::format(" softcap {}", a.softcap);
    if (a.gated) s += " gated";
    if (a.v_norm) s += " v_norm";
    if (a.v_from_k) s += " v_from_k";
    return s;
}

std::string_view act(Activation a) { return a == Activation::silu ? "silu" : "gelu_tanh"; }

struct Details {
    const Plan& plan;
    std::string operator()(const EmbedOp& o) const { return fmt::format("{} scale {:.6g}", weight(plan, o.table), o.scale); }
    std::string operator()(const RopeTableOp& o) const { return plan.ropes[o.rope]; }
    std::string operator()(const NormOp& o) const {
        return norm(plan, o.weight, o.norm) + (o.groups > 1 ? fmt::format(" groups {}", o.groups) : "");
    }
    std::string operator()(const MatmulOp& o) const {
        std::string s = weight(plan, o.weight);
        if (o.bias >= 0) s += " bias " + plan.weights[o.bias].name;
        if (o.weight2 >= 0) s += fmt::format(" {} * {}", act(o.activation), weight(plan, o.weight2));
        if (o.bias2 >= 0) s += " bias " + plan.weights[o.bias2].name;
        if (o.gated_heads > 0) s += fmt::format(" of gated norm {} heads {} eps {}", plan.weights[o.norm_weight].name, o.gated_heads, o.norm.eps);
        else if (o.norm_weight >= 0) s += " of " + norm(plan, o.norm_weight, o.norm);
        if (o.epilogue == MatmulEpilogue::add) s += " + residual";
        if (o.softcap != 0) s += fmt::format(" softcap {}", o.softcap);
        if (o.untaken >= 0) s += fmt::format(" (one row: of %{})", plan.values[o.untaken].name);
        if (o.conv_weight >= 0) s += fmt::format(" conv {} state {}", weight(plan, o.conv_weight), o.state_layer);
        return s;
    }
    std::string operator()(const AddOp&) const { return ""; }
    std::string operator()(const QkPrepareOp& o) const {
        std::string s = attention(o.attention);
        if (o.q_norm >= 0) s += " q " + norm(plan, o.q_norm, o.norm);
        if (o.k_norm >= 0) s += " k " + norm(plan, o.k_norm, o.norm);
        if (!o.writes_cache) s += " q only";
        return s;
    }
    std::string operator()(const AttentionOp& o) const {
        return attention(o.attention) + (o.prepare ? " prepares " + (*this)(*o.prepare) : "") + (o.gate ? " * gate" : "") + (o.merge ? " merges" : "");
    }
    std::string operator()(const ActMulOp& o) const {
        return std::string(act(o.activation)) + (o.up_offset ? fmt::format(" up from column {}", o.up_offset) : "");
    }
    std::string operator()(const TakeRowsOp&) const { return ""; }
    std::string operator()(const ScaleOp& o) const {
        return o.weight >= 0 ? plan.weights[o.weight].name : fmt::format("{:.6g}", o.factor);
    }
    std::string operator()(const HeadGateOp& o) const { return fmt::format("heads {}x{}", o.n_heads, o.head_dim); }
    std::string operator()(const ConvOp& o) const { return fmt::format("{} state {}", weight(plan, o.weight), o.state_layer); }
    std::string operator()(const DeltaOp& o) const {
        return fmt::format("heads {}x{} of {}x{}{} state {}{}", o.delta.n_v_heads, o.delta.v_dim, o.delta.n_k_heads, o.delta.k_dim,
                           o.delta.tiled_heads ? " tiled" : "", o.state_layer,
                           o.norm_weight >= 0 ? fmt::format(" gated norm {} eps {}", weight(plan, o.norm_weight), o.eps) : "");
    }
    std::string operator()(const GatedNormOp& o) const { return fmt::format("{} heads {} eps {}", weight(plan, o.weight), o.heads, o.eps); }
    std::string operator()(const RouteOp& o) const {
        return fmt::format("{} of {}{}", o.moe.per_token, o.moe.experts, o.moe.normalise ? " normalised" : "");
    }
    std::string operator()(const ExpertMatmulOp& o) const {
        std::string s = weight(plan, o.weight);
        if (o.weight2 >= 0) s += fmt::format(" {} * {}", act(o.activation), weight(plan, o.weight2));
        return s + fmt::format(" {} of {}", o.per_token, o.experts);
    }
    std::string operator()(const CombineOp& o) const { return fmt::format("of {}{}", o.per_token, o.residual ? " + residual" : ""); }
};

}  // namespace

std::string print(const Plan& plan, const Op& op) {
    const Value& out = plan.values[op.output];
    std::string s = fmt::format("%{} {}[{}, {}] = {}(", out.name, out.type == ValueType::f32 ? "f32" : "act",
                                out.rows == RowSpace::tokens ? "M" : "R", out.cols, name_of(op));
    for (std::size_t i = 0; i < op.inputs.size(); ++i) s += fmt::format("{}%{}", i ? ", " : "", plan.values[op.inputs[i]].name);
    s += ")";
    const std::string details = std::visit(Details{plan}, op.attributes);
    if (!details.empty()) s += " " + details;
    return s;
}

std::string print(const Plan& plan) {
    std::string s;
    for (const Op& op : plan.ops) s += print(plan, op) + "\n";
    return s;
}

}  // namespace forge
