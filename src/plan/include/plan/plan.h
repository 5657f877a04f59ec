// The plan: a model's forward pass as plain data. Every op takes M rows, each
// with its own sequence slot and position; decode is M = 1, a few users are
// M = 2..8, prefill is a chunk of rows. Values are assigned once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "model/spec.h"

namespace forge {

using ValueId = std::int32_t;

enum class RowSpace : std::uint8_t {
    tokens,   // one row per token of the step
    outputs,  // one row per token whose logits are wanted
};
enum class ValueType : std::uint8_t { activation, f32 };  // activation: bf16, f16 or f32 by --dtype

struct Value {
    std::string name;
    ValueType type = ValueType::activation;
    RowSpace rows = RowSpace::tokens;
    std::int64_t cols = 0;
};

// y[r] = table[token[r]] * scale
struct EmbedOp { WeightId table; float scale; };
// cos and sin of the rows' positions: [rows, 2 * pairs] f32
struct RopeTableOp { int rope; };
// y = norm(x), or residual + norm(x) when the op has a second input. A row is `groups` vectors
// that are normed apart with one weight; weight -1 = none.
struct NormOp { WeightId weight; NormSpec norm; int groups = 1; };
enum class MatmulEpilogue : std::uint8_t { none, add, act_mul };
// y = epilogue(W norm(x) + bias). Inputs: x, then the gate z of gated_heads, then the residual for `add`.
struct MatmulOp {
    WeightId weight = -1, bias = -1;
    WeightId norm_weight = -1;               // prologue, -1 = none
    NormSpec norm;
    MatmulEpilogue epilogue = MatmulEpilogue::none;
    WeightId weight2 = -1, bias2 = -1;       // act_mul: the up projection
    Activation activation = Activation::silu;
    float softcap = 0;                       // f32 outputs only
    int gated_heads = 0;                     // > 0: x goes through GatedNormOp's norm (norm_weight, norm.eps) and gate first
    WeightId conv_weight = -1;               // the result goes through ConvOp; reads and writes the layer's state
    int conv_channels = 0, conv_kernel = 0, state_layer = -1;
    ValueId untaken = -1;                    // what take_rows made x of, for steps of one row, where both are the same
};
// y = a + b
struct AddOp {};
// Inputs q, k, v (k and v absent when the layer reads another's cache), rope table. Output q.
// Writes the cache of `kv_layer`.
struct QkPrepareOp { AttentionSpec attention; NormSpec norm; WeightId q_norm, k_norm; bool writes_cache; };
// Input q; reads the cache of attention.kv_layer. With `prepare` its inputs are those of QkPrepareOp, which it does
// first. With `gate` one more: what HeadGateOp reads, whose gates the result is multiplied by. `merge`: parts of a short
// cache are merged in the launch that makes them, where the target can.
struct AttentionOp {
    AttentionSpec attention;
    std::optional<QkPrepareOp> prepare = std::nullopt;
    bool gate = false, merge = false;
};
// y = act(gate) * up[:, up_offset ...] (up may be wider than gate)
struct ActMulOp { Activation activation; std::int64_t up_offset = 0; };
// Rows whose logits are wanted.
struct TakeRowsOp {};
// y = r(x * factor), or times a scalar weight when there is one
struct ScaleOp { WeightId weight; float factor; };
// Inputs attention output and the projection with queries and gates: y = x * sigmoid(gate), head by head.
struct HeadGateOp { int n_heads, head_dim; };
// Causal convolution and SiLU over the q, k, v channels; reads and writes the layer's state.
struct ConvOp { WeightId weight; DeltaSpec delta; int state_layer; };
// Inputs c, b, a. The delta rule; reads and writes the layer's state. With a norm weight also z: its output goes
// through GatedNormOp's norm and gate.
struct DeltaOp { DeltaSpec delta; WeightId a_log, dt_bias; int state_layer; WeightId norm_weight = -1; float eps = 0; };
// Inputs o, z. Norm per value head, times silu(z).
struct GatedNormOp { WeightId weight; float eps; int heads; };
// Input router logits; output [rows, 2 * per_token] words: expert ids, then weights as f32.
struct RouteOp { MoeSpec moe; WeightId expert_scale; float logit_scale; };
// Inputs x and the route. One projection of the chosen experts: [rows, per_token * width].
struct ExpertMatmulOp {
    WeightId weight, weight2 = -1;           // of expert 0; the others follow
    int experts, per_token;
    bool per_choice;                         // x has a row per choice (down), else one for all (gate and up)
    Activation activation = Activation::silu;
};
// Inputs the choices' outputs, the route and, with a shared expert, its output and gate; then a residual to add.
struct CombineOp { int per_token, experts; bool residual = false; };

using OpAttributes = std::variant<EmbedOp, RopeTableOp, NormOp, MatmulOp, AddOp, QkPrepareOp, AttentionOp, ActMulOp, TakeRowsOp,
                                  ScaleOp, HeadGateOp, ConvOp, DeltaOp, GatedNormOp, RouteOp, ExpertMatmulOp, CombineOp>;

struct Op {
    OpAttributes attributes;
    std::vector<ValueId> inputs;
    ValueId output = -1;
    int layer = -1;                          // for people and profiles; -1 outside the layers
};
std::string_view name_of(const Op& op);

// What the plan needs to know of a weight.
struct PlanWeight {
    std::string name;
    std::int64_t rows, cols;
    WeightFormat format;
    bool dense_f32() const { return format.is_dense() && format.dense_type == DType::f32; }
};

struct Plan {
    std::vector<Value> values;
    std::vector<Op> ops;
    ValueId logits = -1;
    std::vector<PlanWeight> weights;         // by WeightId
    std::vector<std::string> ropes;          // descriptions, by index
    std::vector<int> rope_pairs;             // cos-sin pairs per rope

    ValueId add_value(std::string name, ValueType type, RowSpace rows, std::int64_t cols);
    // How many ops read a value.
    int uses(ValueId value) const;
};

// descriptor -> unfused plan.
Plan build_plan(const BoundModel& model);

// The same without the head: a step returns the hidden states after the last norm instead of logits.
Plan without_head(Plan unfused);

// One line an op. Equal plans print equally.
std::string print(const Plan& plan);
std::string print(const Plan& plan, const Op& op);

// Throws Error(internal) naming the op and the rule it breaks.
void verify(const Plan& plan);

}  // namespace forge
