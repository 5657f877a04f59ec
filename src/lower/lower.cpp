#include "lower/lower.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace forge {
namespace {

// Emits launches over virtual arena buffers (each at an address of its own),
// then finds lifetimes in barrier segments, lays the arena out and moves every
// reference to its place.
class Lowering {
  public:
    Lowering(const Plan& plan, std::span<const RopeSpec> ropes, const LowerOptions& options, const LowerTarget& target)
        : plan_(plan), options_(options), target_(target), value_buffer_(plan.values.size(), -1) {
        program_.type = options.type;
        program_.max_rows = options.max_rows;
        program_.max_outputs = options.max_outputs;
        for (const RopeSpec& rope : ropes) program_.tables.push_back(rope.inv_freq);
        ropes_ = ropes;
    }

    Program run() {
        for (const Op& op : plan_.ops) {
            op_ = &op;
            std::visit(*this, op.attributes);
        }
        program_.vocab = plan_.values[plan_.logits].cols;
        program_.logits = value(plan_.logits);
        program_.logits_type = plan_.values[plan_.logits].type == ValueType::f32 ? DType::f32 : options_.type;
        finish();
        return std::move(program_);
    }
    // Where each value lies.
    std::vector<BufferRef> places() const {
        std::vector<BufferRef> all;
        for (const int b : value_buffer_) all.push_back(b < 0 ? BufferRef{} : BufferRef{Space::arena, 0, buffers_[static_cast<std::size_t>(b)].offset, buffers_[static_cast<std::size_t>(b)].bytes});
        return all;
    }

    void operator()(const EmbedOp& o) {
        Launch l = launch("embed");
        add(l, "table", weight(o.table));
        add(l, "y", value(op_->output), Access::write);
        l.constants = {{"scale", o.scale}};
        emit(std::move(l));
    }
    void operator()(const RopeTableOp& o) {
        Launch l = launch("rope_table");
        add(l, "inv_freq", {Space::table, o.rope, 0, 0});
        add(l, "table", value(op_->output), Access::write);
        l.constants = {{"half", static_cast<double>(plan_.rope_pairs[o.rope])}, {"scale", ropes_[o.rope].scale}};
        emit(std::move(l));
    }
    void operator()(const NormOp& o) {
        Launch l = launch("norm");
        add(l, "x", value(op_->inputs[0]));
        if (o.weight >= 0) add(l, "weight", weight(o.weight));
        if (op_->inputs.size() == 2) add(l, "residual", value(op_->inputs[1]));
        add(l, "y", value(op_->output), Access::write);
        l.constants = {{"width", width() / o.groups}, {"groups", static_cast<double>(o.groups)}, {"eps", o.norm.eps},
                       {"norm", static_cast<double>(o.norm.kind)}};
        emit(std::move(l));
    }
    void operator()(const MatmulOp& fused) {
        const Value& out = plan_.values[op_->output];
        const bool matrix = rows() > matvec_rows, together = target_.wide_fusions && !matrix;
        MatmulOp o = fused;
        BufferRef x = value(op_->inputs[0]), y = value(op_->output);
        if (o.gated_heads > 0 && !together) {
            const BufferRef normed = buffer(x.bytes);
            gated_norm(x, value(op_->inputs[1]), o.norm_weight, o.gated_heads, plan_.values[op_->inputs[0]].cols, o.norm.eps, normed);
            x = normed;
            o.norm_weight = -1;
        }
        const bool conv = o.conv_weight >= 0;
        const BufferRef result = conv && !together ? buffer(y.bytes) : y;
        Launch l = launch(matrix ? "gemm" : "matvec");
        if (matrix) add(l, "packed", packed(o, x, rows()));
        else add(l, "x", x);
        if (o.untaken >= 0 && together && options_.max_rows <= matvec_rows) add(l, "untaken", value(o.untaken));
        add(l, "weight", weight(o.weight));
        if (o.bias >= 0) add(l, "bias", weight(o.bias));
        if (o.weight2 >= 0) add(l, "weight2", weight(o.weight2));
        if (o.bias2 >= 0) add(l, "bias2", weight(o.bias2));
        if (o.norm_weight >= 0) add(l, "norm_weight", weight(o.norm_weight));
        if (o.gated_heads > 0 && together) {
            add(l, "z", value(op_->inputs[1]));
            l.constants.push_back({"gated_heads", static_cast<double>(o.gated_heads)});
        }
        if (o.epilogue == MatmulEpilogue::add) add(l, "residual", value(op_->inputs.back()));
        if (conv && together) {
            add(l, "conv_weight", weight(o.conv_weight));
            add(l, "conv_state", {Space::conv_state, o.state_layer, 0, 0}, Access::read_write);
            l.constants.push_back({"state_layer", static_cast<double>(o.state_layer)});
        }
        add(l, "y", result, Access::write);
        matmul_constants(l, o, rows());
        l.constants.push_back({"epilogue", static_cast<double>(o.epilogue)});
        l.constants.push_back({"activation", static_cast<double>(o.activation)});
        l.constants.push_back({"f32_out", out.type == ValueType::f32 ? 1.0 : 0.0});
        l.constants.push_back({"softcap", o.softcap});
        emit(std::move(l));
        if (conv && !together) convolve(result, o.conv_weight, o.state_layer, y);
    }
    void operator()(const AddOp&) { sum(value(op_->inputs[0]), value(op_->inputs[1]), value(op_->output)); }
    void operator()(const QkPrepareOp& o) {
        Launch l = launch("qk_prepare");
        prepare(l, o);
        add(l, "y", value(op_->output), Access::write);
        emit(std::move(l));
    }
    // The operands and constants of qk_prepare but for its result.
    void prepare(Launch& l, const QkPrepareOp& o) {
        const std::size_t inputs = !o.writes_cache ? 2 : o.attention.v_from_k ? 3 : 4;
        add(l, "q", value(op_->inputs[0]));
        if (o.writes_cache) {
            add(l, "k", value(op_->inputs[1]));
            if (!o.attention.v_from_k) add(l, "v", value(op_->inputs[2]));
            add(l, "keys", {Space::keys, o.attention.kv_layer, 0, 0}, Access::write);
            add(l, "values", {Space::values, o.attention.kv_layer, 0, 0}, Access::write);
        }
        add(l, "rope", value(op_->inputs[inputs - 1]));
        if (o.q_norm >= 0) add(l, "q_norm", weight(o.q_norm));
        if (o.k_norm >= 0) add(l, "k_norm", weight(o.k_norm));
        heads(l, o.attention);
        l.constants.push_back({"eps", o.norm.eps});
        l.constants.push_back({"norm", static_cast<double>(o.norm.kind)});
        l.constants.push_back({"rope_half", static_cast<double>(plan_.rope_pairs[o.attention.rope])});
        l.constants.push_back({"gated", o.attention.gated ? 1.0 : 0.0});
        l.constants.push_back({"v_norm", o.attention.v_norm ? 1.0 : 0.0});
    }
    // A fused one's query: made by qk_prepare in a launch before, or (up to eight rows, where the target can) in the same
    // launch, which prepares a single row where it is read.
    void operator()(const AttentionOp& o) {
        const bool matrix = options_.max_rows > matvec_rows, together = target_.wide_fusions && !matrix;
        const BufferRef y = value(op_->output);
        const BufferRef query = o.prepare ? buffer(y.bytes) : value(op_->inputs[0]), ungated = o.gate && !together ? buffer(y.bytes) : y;
        if (o.prepare && !together) {
            Launch l = launch("qk_prepare");
            prepare(l, *o.prepare);
            add(l, "y", query, Access::write);
            emit(std::move(l));
        }
        Launch l = launch(matrix ? "attention_prefill" : "attention_decode");
        if (o.prepare && together) {
            prepare(l, *o.prepare);
            add(l, "query", query, Access::read_write);
            l.constants.push_back({"prepares", 1.0});
            if (o.prepare->writes_cache) {
                for (Operand& operand : l.operands)
                    if (operand.name == "keys" || operand.name == "values") operand.access = Access::read_write;
            }
        } else {
            add(l, "q", query);
            heads(l, o.attention);
        }
        if (!l.find("keys")) {
            add(l, "keys", {Space::keys, o.attention.kv_layer, 0, 0});
            add(l, "values", {Space::values, o.attention.kv_layer, 0, 0});
        }
        l.constants.push_back({"scale", o.attention.scale});
        l.constants.push_back({"softcap", o.attention.softcap});
        l.constants.push_back({"window", static_cast<double>(o.attention.window)});
        if (matrix) {
            add(l, "y", ungated, Access::write);
            emit(std::move(l));
        } else {
            const BufferRef partial = buffer(target_.attention_partial_bytes(options_.max_rows, o.attention.n_heads, o.attention.head_dim));
            add(l, "partial", partial, Access::write);
            if (o.merge && together && target_.merges_parts) {
                l.constants.push_back({"merges", 1.0});
                if (o.gate) add(l, "gates", value(op_->inputs.back()));
                add(l, "out", y, Access::write);
                return emit(std::move(l));
            }
            Launch combine = launch("attention_combine");
            combine.constants = l.constants;
            if (o.gate && together) {
                add(combine, "q", value(op_->inputs.back()));
                combine.constants.push_back({"gates", 1.0});
            }
            add(combine, "partial", partial);
            add(combine, "y", ungated, Access::write);
            emit(std::move(l));
            emit(std::move(combine));
        }
        if (o.gate && !together) gate_heads(ungated, value(op_->inputs.back()), o.attention.n_heads, o.attention.head_dim, y);
    }
    void operator()(const ActMulOp& o) {
        Launch l = launch("act_mul");
        add(l, "gate", value(op_->inputs[0]));
        add(l, "up", value(op_->inputs[1]));
        add(l, "y", value(op_->output), Access::write);
        l.constants = {{"width", width()}, {"activation", static_cast<double>(o.activation)},
                       {"up_offset", static_cast<double>(o.up_offset)},
                       {"up_stride", static_cast<double>(plan_.values[op_->inputs[1]].cols)}};
        emit(std::move(l));
    }
    void operator()(const TakeRowsOp&) {
        Launch l = launch("take_rows");
        add(l, "x", value(op_->inputs[0]));
        add(l, "y", value(op_->output), Access::write);
        l.constants = {{"width", width()}};
        emit(std::move(l));
    }

    void operator()(const ScaleOp& o) {
        Launch l = launch("scale");
        add(l, "x", value(op_->inputs[0]));
        if (o.weight >= 0) add(l, "weight", weight(o.weight));
        add(l, "y", value(op_->output), Access::write);
        l.constants = {{"width", width()}, {"factor", o.factor}};
        emit(std::move(l));
    }
    void operator()(const HeadGateOp& o) { gate_heads(value(op_->inputs[0]), value(op_->inputs[1]), o.n_heads, o.head_dim, value(op_->output)); }
    void operator()(const ConvOp& o) { convolve(value(op_->inputs[0]), o.weight, o.state_layer, value(op_->output)); }
    void operator()(const DeltaOp& o) {
        Launch l = launch("delta");
        add(l, "c", value(op_->inputs[0]));
        add(l, "b", value(op_->inputs[1]));
        add(l, "a", value(op_->inputs[2]));
        add(l, "a_log", weight(o.a_log));
        add(l, "dt_bias", weight(o.dt_bias));
        add(l, "state", {Space::delta_state, o.state_layer, 0, 0}, Access::read_write);
        l.constants = {{"state_layer", static_cast<double>(o.state_layer)},
                       {"negative_exp", o.delta.a_is_negative_exp ? 1.0 : 0.0},
                       {"tiled_heads", o.delta.tiled_heads ? 1.0 : 0.0}};
        const bool norm = o.norm_weight >= 0, together = norm && target_.delta_norm && options_.max_rows <= matvec_rows;
        if (together) {
            add(l, "z", value(op_->inputs[3]));
            add(l, "norm_weight", weight(o.norm_weight));
            l.constants.push_back({"eps", o.eps});
        }
        const BufferRef y = value(op_->output);
        const BufferRef read = norm && !together ? buffer(y.bytes) : y;
        add(l, "y", read, Access::write);
        emit(std::move(l));
        if (norm && !together) gated_norm(read, value(op_->inputs[3]), o.norm_weight, o.delta.n_v_heads, plan_.values[op_->output].cols, o.eps, y);
    }
    void operator()(const GatedNormOp& o) {
        gated_norm(value(op_->inputs[0]), value(op_->inputs[1]), o.weight, o.heads, plan_.values[op_->output].cols, o.eps, value(op_->output));
    }
    void operator()(const RouteOp& o) {
        Launch l = launch("route");
        add(l, "logits", value(op_->inputs[0]));
        if (o.expert_scale >= 0) add(l, "expert_scale", weight(o.expert_scale));
        add(l, "route", value(op_->output), Access::write);
        l.constants = {{"experts", static_cast<double>(o.moe.experts)}, {"k", static_cast<double>(o.moe.per_token)},
                       {"normalise", o.moe.normalise ? 1.0 : 0.0}, {"round_weights", o.moe.round_weights ? 1.0 : 0.0},
                       {"logit_scale", o.logit_scale}};
        emit(std::move(l));
    }
    void operator()(const ExpertMatmulOp& o) {
        const bool matrix = rows() > matvec_rows;
        Launch l = launch(matrix ? "expert_gemm" : "expert_matvec");
        add(l, "route", value(op_->inputs[1]));
        l.constants = {{"experts", static_cast<double>(o.experts)}, {"k", static_cast<double>(o.per_token)},
                       {"x_per_pair", o.per_choice ? 1.0 : 0.0}, {"activation", static_cast<double>(o.activation)},
                       {"max_rows", static_cast<double>(rows())}};
        Launch pack = l;
        add(l, "weight", weight(o.weight));
        if (o.weight2 >= 0) add(l, "weight2", weight(o.weight2));
        if (matrix) {
            const BufferRef table = group_table(o);
            add(l, "table", table);
        }
        if (matrix && !target_.plain_rows) {
            const BufferRef table = l.operand("table").buffer;
            const BufferRef packed_rows = buffer(target_.expert_packed_bytes(o.weight, o.experts, o.per_token, rows()));
            pack.kernel = "expert_pack";
            pack.label = plan_.values[op_->inputs[0]].name + " packed";
            add(pack, "x", value(op_->inputs[0]));
            add(pack, "weight", weight(o.weight));
            add(pack, "table", table);
            add(pack, "packed", packed_rows, Access::write);
            emit(std::move(pack));
            add(l, "packed", packed_rows);
        } else {
            add(l, "x", value(op_->inputs[0]));   // the kernel gathers the rows of a table itself
            l.constants.push_back({"input_tag", static_cast<double>(next_tag_)});   // one for each row of x
            next_tag_ += rows() * (o.per_choice ? o.per_token : 1);
        }
        add(l, "y", value(op_->output), Access::write);
        emit(std::move(l));
    }
    void operator()(const CombineOp& o) {
        Launch l = launch("combine");
        add(l, "x", value(op_->inputs[0]));
        add(l, "route", value(op_->inputs[1]));
        if (op_->inputs.size() >= 4) {
            add(l, "shared", value(op_->inputs[2]));
            add(l, "shared_gate", value(op_->inputs[3]));
        }
        // Matrix kernels leave the choices' rows in the table's order.
        if (auto it = groups_.find(op_->inputs[1]); it != groups_.end()) add(l, "table", it->second);
        const BufferRef y = value(op_->output), residual = o.residual ? value(op_->inputs.back()) : y, total = o.residual && !target_.wide_fusions ? buffer(y.bytes) : y;
        if (o.residual && target_.wide_fusions) add(l, "residual", residual);
        add(l, "y", total, Access::write);
        l.constants = {{"k", static_cast<double>(o.per_token)}, {"width", width()}, {"experts", static_cast<double>(o.experts)},
                       {"max_rows", static_cast<double>(rows())}};
        emit(std::move(l));
        if (o.residual && !target_.wide_fusions) sum(residual, total, y);
    }

  private:
    void sum(BufferRef a, BufferRef b, BufferRef y) {
        Launch l = launch("add");
        add(l, "a", a);
        add(l, "b", b);
        add(l, "y", y, Access::write);
        l.constants = {{"width", width()}};
        emit(std::move(l));
    }
    void convolve(BufferRef u, WeightId taps, int state_layer, BufferRef y) {
        Launch l = launch("conv");
        add(l, "u", u);
        add(l, "weight", weight(taps));
        add(l, "state", {Space::conv_state, state_layer, 0, 0}, Access::read_write);
        add(l, "y", y, Access::write);
        l.constants = {{"state_layer", static_cast<double>(state_layer)}};
        emit(std::move(l));
    }
    void gate_heads(BufferRef x, BufferRef q, int n_heads, int head_dim, BufferRef y) {
        Launch l = launch("head_gate");
        add(l, "x", x);
        add(l, "q", q);
        add(l, "y", y, Access::write);
        l.constants = {{"heads", static_cast<double>(n_heads)}, {"head_dim", static_cast<double>(head_dim)}};
        emit(std::move(l));
    }
    void gated_norm(BufferRef x, BufferRef z, WeightId norm_weight, int heads, std::int64_t columns, float eps, BufferRef y) {
        Launch l = launch("gated_norm");
        add(l, "x", x);
        add(l, "z", z);
        add(l, "weight", weight(norm_weight));
        add(l, "y", y, Access::write);
        l.constants = {{"heads", static_cast<double>(heads)}, {"width", static_cast<double>(columns / heads)}, {"eps", eps}};
        emit(std::move(l));
    }

    // Most rows that the current op's output can have.
    int rows() const {
        return plan_.values[op_->output].rows == RowSpace::tokens ? options_.max_rows : options_.max_outputs;
    }

    // Rows sorted by expert, made once for the projections of one route.
    BufferRef group_table(const ExpertMatmulOp& o) {
        const ValueId route = op_->inputs[1];
        if (auto it = groups_.find(route); it != groups_.end()) return it->second;
        const BufferRef table = buffer(target_.group_bytes(o.experts, o.per_token, rows()));
        Launch l = launch("group");
        l.label = plan_.values[route].name + " grouped";
        add(l, "route", value(route));
        add(l, "table", table, Access::write);
        l.constants = {{"experts", static_cast<double>(o.experts)}, {"k", static_cast<double>(o.per_token)},
                       {"max_rows", static_cast<double>(rows())}};
        emit(std::move(l));
        return groups_[route] = table;
    }

    Launch launch(std::string kernel) const {
        Launch l;
        l.kernel = std::move(kernel);
        l.layer = op_->layer;
        l.op = static_cast<std::int32_t>(op_ - plan_.ops.data());
        l.output_rows = plan_.values[op_->output].rows == RowSpace::outputs;
        l.label = plan_.values[op_->output].name;
        return l;
    }
    static void add(Launch& l, std::string name, BufferRef ref, Access access = Access::read) {
        l.operands.push_back({std::move(name), ref, access});
    }
    void emit(Launch l) { program_.launches.push_back(std::move(l)); }
    double width() const { return static_cast<double>(plan_.values[op_->output].cols); }
    static BufferRef weight(WeightId id) { return {Space::weight, id, 0, 0}; }

    static void heads(Launch& l, const AttentionSpec& a) {
        l.constants.push_back({"n_heads", static_cast<double>(a.n_heads)});
        l.constants.push_back({"n_kv_heads", static_cast<double>(a.n_kv_heads)});
        l.constants.push_back({"head_dim", static_cast<double>(a.head_dim)});
        l.constants.push_back({"kv_layer", static_cast<double>(a.kv_layer)});
    }

    // Same value and norm -> same tag: kernels may share what they prepared of it.
    void matmul_constants(Launch& l, const MatmulOp& o, int rows) {
        const auto key = std::make_pair(op_->inputs[0], o.norm_weight);
        const auto [found, fresh] = tags_.try_emplace(key, next_tag_);
        if (fresh) ++next_tag_;
        const int tag = found->second;
        l.constants.push_back({"input_tag", static_cast<double>(tag)});
        l.constants.push_back({"max_rows", static_cast<double>(rows)});
        l.constants.push_back({"eps", o.norm.eps});
        l.constants.push_back({"norm", static_cast<double>(o.norm.kind)});
    }

    // The packed rows that a gemm reads: made once for all matmuls of the same input whose weights agree.
    BufferRef packed(const MatmulOp& o, BufferRef x, int rows) {
        if (target_.plain_rows && o.norm_weight < 0) return x;
        for (const Packed& p : packed_)
            if (p.input == op_->inputs[0] && p.norm_weight == o.norm_weight && target_.same_packing(p.weight, o.weight)) return p.buffer;
        const BufferRef ref = buffer(target_.packed_bytes(o.weight, rows));
        Launch l = launch("pack");
        l.label = plan_.values[op_->inputs[0]].name + " packed";
        add(l, "x", x);
        add(l, "weight", weight(o.weight));
        if (o.norm_weight >= 0) add(l, "norm_weight", weight(o.norm_weight));
        add(l, "packed", ref, Access::write);
        matmul_constants(l, o, rows);
        emit(std::move(l));
        packed_.push_back({op_->inputs[0], o.norm_weight, o.weight, ref});
        return ref;
    }

    BufferRef value(ValueId id) {
        if (value_buffer_[id] < 0) {
            const Value& v = plan_.values[id];
            const std::uint64_t rows = static_cast<std::uint64_t>(v.rows == RowSpace::tokens ? options_.max_rows : options_.max_outputs);
            const std::uint64_t element = v.type == ValueType::f32 ? 4 : size_of(options_.type);
            value_buffer_[id] = static_cast<int>(buffers_.size());
            buffer(rows * static_cast<std::uint64_t>(v.cols) * element);
        }
        const ArenaBuffer& b = buffers_[value_buffer_[id]];
        return {Space::arena, 0, b.offset, b.bytes};
    }

    // A virtual buffer; its offset is unique until the layout.
    BufferRef buffer(std::uint64_t bytes) {
        bytes = std::max<std::uint64_t>(64, (bytes + 63) / 64 * 64);
        buffers_.push_back({bytes, 1 << 30, -1, next_});
        next_ += bytes;
        return {Space::arena, 0, buffers_.back().offset, bytes};
    }

    void finish() {
        place_barriers(program_.launches);
        const int barriers = program_.barriers();
        std::map<std::uint64_t, std::size_t> by_offset;
        for (std::size_t i = 0; i < buffers_.size(); ++i) by_offset[buffers_[i].offset] = i;
        int segment = 0;
        for (const Launch& l : program_.launches) {
            segment += l.barrier ? 1 : 0;
            for (const Operand& o : l.operands) {
                if (o.buffer.space != Space::arena) continue;
                ArenaBuffer& b = buffers_[by_offset.at(o.buffer.offset)];
                b.first = std::min(b.first, segment);
                b.last = std::max(b.last, segment);
            }
        }
        buffers_[by_offset.at(program_.logits.offset)].last = segment + 1;   // read after the step
        if (options_.apart) {
            program_.arena_bytes = next_;
            return;
        }
        std::vector<ArenaBuffer> laid_out = buffers_;
        program_.arena_bytes = layout_arena(laid_out);
        auto move = [&](BufferRef& ref) {
            if (ref.space == Space::arena) ref.offset = laid_out[by_offset.at(ref.offset)].offset;
        };
        for (Launch& l : program_.launches)
            for (Operand& o : l.operands) move(o.buffer);
        move(program_.logits);
        place_barriers(program_.launches);
        if (program_.barriers() != barriers)
            fail(ErrorKind::internal, "the arena's layout made {} barriers of {}", program_.barriers(), barriers);
    }

    struct Packed { ValueId input; WeightId norm_weight, weight; BufferRef buffer; };

    const Plan& plan_;
    std::span<const RopeSpec> ropes_;
    LowerOptions options_;
    const LowerTarget& target_;
    const Op* op_ = nullptr;
    Program program_;
    std::vector<int> value_buffer_;
    std::vector<ArenaBuffer> buffers_;
    std::uint64_t next_ = 0;
    std::map<std::pair<ValueId, WeightId>, int> tags_;
    int next_tag_ = 1;
    std::vector<Packed> packed_;
    std::map<ValueId, BufferRef> groups_;
};

}  // namespace

Program lower(const Plan& plan, std::span<const RopeSpec> ropes, const LowerOptions& options, const LowerTarget& target, std::vector<BufferRef>* places) {
    Lowering lowering(plan, ropes, options, target);
    Program program = lowering.run();
    if (places) *places = lowering.places();
    return program;
}

}  // namespace forge
