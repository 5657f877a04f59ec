// What a legal plan is. Broken rules are bugs of a pass or the builder.
#include <set>

#include "base/error.h"
#include "plan/plan.h"

namespace forge {
namespace {

class Verifier {
  public:
    explicit Verifier(const Plan& plan) : plan_(plan), defined_(plan.values.size(), false) {}

    void run() {
        for (const Op& op : plan_.ops) {
            op_ = &op;
            for (ValueId in : op.inputs) {
                require(valid(in), "an input that exists");
                require(defined_[in], "inputs that earlier ops made");
            }
            require(valid(op.output), "an output that exists");
            require(!defined_[op.output], "an output that no other op makes");
            std::visit(*this, op.attributes);
            defined_[op.output] = true;
        }
        if (plan_.logits < 0 || !defined_[plan_.logits]) fail(ErrorKind::internal, "the plan does not make its logits");
    }

    void operator()(const EmbedOp& o) {
        inputs(0);
        const PlanWeight& table = weight(o.table);
        require(out().cols == table.cols && out().rows == RowSpace::tokens, "an output as wide as the embedding table");
    }
    void operator()(const RopeTableOp& o) {
        inputs(0);
        require(o.rope >= 0 && o.rope < static_cast<int>(plan_.ropes.size()), "a rope that exists");
        require(out().type == ValueType::f32 && out().cols == 2 * plan_.rope_pairs[o.rope], "a table of cos and sin pairs");
    }
    void operator()(const NormOp& o) {
        require(op_->inputs.size() == 1 || op_->inputs.size() == 2, "one input, or two with a residual");
        same_shape(op_->inputs.front());
        same_shape(op_->inputs.back());
        require(o.groups > 0 && out().cols % o.groups == 0, "groups that divide its width");
        if (o.weight >= 0) vector(o.weight, out().cols / o.groups);
    }
    void operator()(const MatmulOp& o) {
        inputs(1 + (o.gated_heads > 0 ? 1 : 0) + (o.epilogue == MatmulEpilogue::add ? 1 : 0));
        const PlanWeight& w = weight(o.weight);
        require(in(0).type == ValueType::activation, "an activation input");
        require(w.cols == in(0).cols, "a weight as wide as its input");
        require(w.rows == out().cols && out().rows == in(0).rows, "an output of the weight's rows");
        if (o.bias >= 0) vector(o.bias, w.rows);
        if (o.gated_heads > 0) {
            require(o.norm_weight >= 0 && w.cols % o.gated_heads == 0, "a norm of each head for its gates");
            require(in(1).cols == in(0).cols && in(1).rows == in(0).rows && in(1).type == in(0).type, "gates shaped like its input");
            vector(o.norm_weight, w.cols / o.gated_heads);
        } else if (o.norm_weight >= 0) {
            vector(o.norm_weight, w.cols);
        }
        if (o.epilogue == MatmulEpilogue::add) same_shape(op_->inputs.back());
        if (o.conv_weight >= 0) {
            require(o.epilogue == MatmulEpilogue::none && o.bias < 0 && out().type == ValueType::activation && out().rows == RowSpace::tokens, "a convolution of plain products of token rows");
            require(out().cols == o.conv_channels, "a row of its matrix for every channel");
            vector(o.conv_weight, out().cols * o.conv_kernel);
        }
        require((o.epilogue == MatmulEpilogue::act_mul) == (o.weight2 >= 0), "a second weight exactly when it multiplies");
        if (o.weight2 >= 0) {
            const PlanWeight& w2 = weight(o.weight2);
            require(w2.rows == w.rows && w2.cols == w.cols, "two weights of one shape");
            if (o.bias2 >= 0) vector(o.bias2, w.rows);
        }
        if (out().type == ValueType::f32) require(o.epilogue == MatmulEpilogue::none, "no epilogue on a float output");
        else require(o.softcap == 0, "a soft cap on float outputs only");
    }
    void operator()(const AddOp&) {
        inputs(2);
        same_shape(op_->inputs[0]);
        same_shape(op_->inputs[1]);
    }
    void operator()(const QkPrepareOp& o) {
        inputs(prepare_inputs(o));
        prepare(o);
        prepared_.insert(op_->output);
    }
    static std::size_t prepare_inputs(const QkPrepareOp& o) { return !o.writes_cache ? 2 : o.attention.v_from_k ? 3 : 4; }
    void prepare(const QkPrepareOp& o) {
        const AttentionSpec& a = o.attention;
        require(out().cols == std::int64_t{a.n_heads} * a.head_dim && in(0).cols == out().cols * (a.gated ? 2 : 1),
                "a query of heads times head_dim, twice that with gates");
        if (o.writes_cache)
            for (int i = 1; i < (a.v_from_k ? 2 : 3); ++i) require(in(i).cols == std::int64_t{a.n_kv_heads} * a.head_dim, "keys and values of KV heads times head_dim");
        require(a.n_kv_heads > 0 && a.n_heads % a.n_kv_heads == 0, "query heads that divide among KV heads");
        const Value& table = in(static_cast<int>(prepare_inputs(o)) - 1);
        require(table.type == ValueType::f32 && table.cols == 2 * plan_.rope_pairs[a.rope] && table.cols <= a.head_dim, "its rope's table");
        if (o.q_norm >= 0) vector(o.q_norm, a.head_dim);
        if (o.k_norm >= 0) vector(o.k_norm, a.head_dim);
        if (o.writes_cache) require(written_.insert(a.kv_layer).second, "a cache layer that is written once");
    }
    void operator()(const AttentionOp& o) {
        const std::size_t own = o.prepare ? prepare_inputs(*o.prepare) : 1;
        inputs(own + (o.gate ? 1 : 0));
        if (o.prepare) {
            prepare(*o.prepare);
        } else {
            same_shape(op_->inputs[0]);
            require(prepared_.count(op_->inputs[0]) > 0, "a query from qk_prepare");
        }
        if (o.gate) require(in(static_cast<int>(own)).cols == 2 * out().cols && in(static_cast<int>(own)).rows == out().rows, "gates beside its queries");
        require(written_.count(o.attention.kv_layer) > 0, "a cache layer that was written before");
    }
    void operator()(const ActMulOp& o) {
        inputs(2);
        same_shape(op_->inputs[0]);
        require(in(1).rows == out().rows && in(1).type == out().type && o.up_offset >= 0 && o.up_offset + out().cols <= in(1).cols,
                "columns of `up` that exist");
    }
    void operator()(const ScaleOp& o) {
        inputs(1);
        same_shape(op_->inputs[0]);
        if (o.weight >= 0) vector(o.weight, 1);
    }
    void operator()(const HeadGateOp& o) {
        inputs(2);
        same_shape(op_->inputs[0]);
        require(out().cols == std::int64_t{o.n_heads} * o.head_dim && in(1).cols == 2 * out().cols && in(1).rows == out().rows,
                "gates beside its queries");
    }
    void operator()(const ConvOp& o) {
        inputs(1);
        same_shape(op_->inputs[0]);
        require(out().cols == o.delta.conv_channels(), "the channels of q, k and v");
        vector(o.weight, out().cols * o.delta.conv_kernel);
    }
    void operator()(const DeltaOp& o) {
        inputs(o.norm_weight >= 0 ? 4 : 3);
        if (o.norm_weight >= 0) {
            same_shape(op_->inputs[3]);
            vector(o.norm_weight, o.delta.v_dim);
        }
        require(in(0).cols == o.delta.conv_channels() && in(1).cols == o.delta.n_v_heads && in(2).cols == o.delta.n_v_heads &&
                out().cols == std::int64_t{o.delta.n_v_heads} * o.delta.v_dim, "q, k, v and one beta and alpha a value head");
        require(o.delta.n_v_heads % o.delta.n_k_heads == 0, "value heads that divide among key heads");
        vector(o.a_log, o.delta.n_v_heads);
        vector(o.dt_bias, o.delta.n_v_heads);
    }
    void operator()(const GatedNormOp& o) {
        inputs(2);
        same_shape(op_->inputs[0]);
        same_shape(op_->inputs[1]);
        require(o.heads > 0 && out().cols % o.heads == 0, "heads that divide its width");
        vector(o.weight, out().cols / o.heads);
    }
    void operator()(const RouteOp& o) {
        inputs(1);
        require(in(0).cols == o.moe.experts && o.moe.per_token > 0 && o.moe.per_token <= o.moe.experts, "a logit for every expert");
        require(out().type == ValueType::f32 && out().cols == 2 * o.moe.per_token && out().rows == in(0).rows, "an id and a weight a choice");
        if (o.expert_scale >= 0) vector(o.expert_scale, o.moe.experts);
    }
    void operator()(const ExpertMatmulOp& o) {
        inputs(2);
        const PlanWeight& w = weight(o.weight);
        require(in(1).type == ValueType::f32 && in(1).cols == 2 * o.per_token && in(1).rows == out().rows, "a route of its choices");
        require(in(0).rows == out().rows && in(0).cols == w.cols * (o.per_choice ? o.per_token : 1), "a weight as wide as its input");
        require(out().cols == w.rows * o.per_token, "an output of the weight's rows for every choice");
        for (int e = 0; e < o.experts; ++e) {
            for (WeightId first : {o.weight, o.weight2}) {
                if (first < 0) continue;
                const PlanWeight& other = weight(first + e);
                require(other.rows == w.rows && other.cols == w.cols && other.format == w.format, "experts of one shape and format");
            }
        }
    }
    void operator()(const CombineOp& o) {
        const std::size_t own = op_->inputs.size() - (o.residual ? 1 : 0);
        require(own == 2 || own == 4, "choices and route, or these and a shared expert with its gate");
        if (o.residual) same_shape(op_->inputs.back());
        require(in(0).cols == out().cols * o.per_token && in(0).rows == out().rows, "an output for every choice");
        require(in(1).type == ValueType::f32 && in(1).cols == 2 * o.per_token, "a route of its choices");
        if (own == 4) {
            same_shape(op_->inputs[2]);
            require(in(3).cols == 1 && in(3).rows == out().rows, "one gate a row");
        }
    }
    void operator()(const TakeRowsOp&) {
        inputs(1);
        require(in(0).rows == RowSpace::tokens && out().rows == RowSpace::outputs && in(0).cols == out().cols &&
                in(0).type == out().type, "token rows in, output rows out");
    }

  private:
    bool valid(ValueId v) const { return v >= 0 && v < static_cast<ValueId>(plan_.values.size()); }
    const Value& in(int i) const { return plan_.values[op_->inputs[i]]; }
    const Value& out() const { return plan_.values[op_->output]; }
    void inputs(std::size_t n) const { require(op_->inputs.size() == n, "another number of inputs"); }
    void same_shape(ValueId v) const {
        const Value& value = plan_.values[v];
        require(value.cols == out().cols && value.rows == out().rows && value.type == out().type, "inputs shaped like its output");
    }
    const PlanWeight& weight(WeightId id) const {
        require(id >= 0 && id < static_cast<WeightId>(plan_.weights.size()), "a weight that exists");
        return plan_.weights[id];
    }
    void vector(WeightId id, std::int64_t size) const {
        const PlanWeight& w = weight(id);
        require(w.dense_f32() && w.rows * w.cols == size, "a float vector of the right length");
    }
    void require(bool ok, const char* wanted) const {
        if (!ok) fail(ErrorKind::internal, "plan: op '{}' wants {}", name_of(*op_), wanted);
    }

    const Plan& plan_;
    const Op* op_ = nullptr;
    std::vector<bool> defined_;
    std::set<int> written_;
    std::set<ValueId> prepared_;
};

}  // namespace

void verify(const Plan& plan) { Verifier(plan).run(); }

}  // namespace forge
