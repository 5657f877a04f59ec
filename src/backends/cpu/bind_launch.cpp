#include "bind_launch.h"

#include <map>

#include "base/error.h"
#include "cpu_variants.h"
#include "kernels/attention/attention.h"
#include "kernels/delta/delta.h"
#include "kernels/experts/experts.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rows/rows.h"

namespace forge {
namespace {

struct Reader {
    const Launch& launch;
    const BindContext& context;

    void* memory(std::string_view name) const {
        const BufferRef& ref = launch.operand(name).buffer;
        return context.arena + ref.offset;
    }
    void* memory_or_null(std::string_view name) const { return launch.find(name) ? memory(name) : nullptr; }
    const Weight* weight(std::string_view name) const {
        const Operand* operand = launch.find(name);
        return operand ? &context.weights[static_cast<std::size_t>(operand->buffer.index)] : nullptr;
    }
    // Vectors are bound as dense f32.
    const float* vector(std::string_view name) const {
        const Weight* w = weight(name);
        return w ? reinterpret_cast<const float*>(w->codes.data) : nullptr;
    }
    const KvCache& cache() const { return context.cache.layer(integer("kv_layer")); }
    int integer(std::string_view name) const { return static_cast<int>(launch.integer(name)); }
    float number(std::string_view name) const { return static_cast<float>(launch.number(name)); }
    NormFormula norm() const { return static_cast<NormFormula>(integer("norm")); }
};

template <typename Params>
BoundLaunch bound(Params params, CpuKernel (*choose)(const Params&, Isa), Isa isa) {
    auto owned = std::make_shared<Params>(params);
    return {owned, choose(*owned, isa)};
}

MatmulParams matmul(const Reader& r) {
    MatmulParams p;
    p.type = r.context.program.type;
    p.w = r.weight("weight");
    p.x = r.memory_or_null("x");
    p.packed = r.memory_or_null("packed");
    p.norm_weight = r.vector("norm_weight");
    p.norm = r.norm();
    p.eps = r.number("eps");
    p.input_tag = static_cast<std::uint32_t>(r.integer("input_tag"));
    p.max_rows = r.integer("max_rows");
    if (r.launch.kernel == "pack") return p;
    p.w2 = r.weight("weight2");
    p.bias = r.vector("bias");
    p.bias2 = r.vector("bias2");
    p.y = r.memory("y");
    p.residual = r.memory_or_null("residual");
    p.epilogue = static_cast<Epilogue>(r.integer("epilogue"));
    p.act = static_cast<ActKind>(r.integer("activation"));
    p.f32_out = r.integer("f32_out") != 0;
    p.softcap = r.number("softcap");
    if (r.launch.kernel == "matvec") p.item_rows = cpu_variant_value(r.launch, r.context.program.max_rows);
    return p;
}

AttentionParams attention(const Reader& r) {
    AttentionParams p;
    p.type = r.context.program.type;
    p.n_heads = r.integer("n_heads");
    p.n_kv_heads = r.integer("n_kv_heads");
    p.head_dim = r.integer("head_dim");
    p.q = r.memory_or_null("q");   // the combination of parts has none
    p.out = r.memory_or_null("y");
    p.scale = r.number("scale");
    p.softcap = r.number("softcap");
    p.window = r.integer("window");
    p.cache = r.cache();
    p.partial = static_cast<float*>(r.memory_or_null("partial"));
    p.max_rows = r.context.program.max_rows;
    return p;
}

ExpertMatmulParams experts(const Reader& r) {
    ExpertMatmulParams p;
    p.type = r.context.program.type;
    p.w = r.weight("weight");
    p.w2 = r.weight("weight2");
    p.isa = r.context.isa;
    p.experts = r.integer("experts");
    p.k = r.integer("k");
    p.route = static_cast<const std::uint32_t*>(r.memory("route"));
    p.x = r.memory_or_null("x");
    p.x_per_pair = r.integer("x_per_pair") != 0;
    p.epilogue = p.w2 ? Epilogue::act_mul : Epilogue::none;
    p.act = static_cast<ActKind>(r.integer("activation"));
    p.y = r.memory_or_null("y");
    p.table = static_cast<const std::int32_t*>(r.memory_or_null("table"));
    p.packed = r.memory_or_null("packed");
    p.max_rows = r.integer("max_rows");
    p.input_tag = static_cast<std::uint32_t>(r.launch.number("input_tag", 0));
    return p;
}

using Binder = BoundLaunch (*)(const Reader&);

const std::map<std::string, Binder, std::less<>>& binders() {
    static const std::map<std::string, Binder, std::less<>> table{
        {"embed", [](const Reader& r) {
             EmbedParams p;
             p.type = r.context.program.type;
             p.table = r.weight("table");
             p.scale = r.number("scale");
             p.y = r.memory("y");
             return bound(p, embed_kernel, r.context.isa);
         }},
        {"rope_table", [](const Reader& r) {
             RopeTableParams p;
             p.type = r.context.program.type;
             p.inv_freq = r.context.tables[static_cast<std::size_t>(r.launch.operand("inv_freq").buffer.index)].data();
             p.half = r.integer("half");
             p.scale = r.number("scale");
             p.table = static_cast<float*>(r.memory("table"));
             return bound(p, rope_table_kernel, r.context.isa);
         }},
        {"norm", [](const Reader& r) {
             NormParams p;
             p.type = r.context.program.type;
             p.x = r.memory("x");
             p.weight = r.vector("weight");
             p.norm = r.norm();
             p.eps = r.number("eps");
             p.width = r.integer("width");
             p.groups = r.integer("groups");
             p.residual = r.memory_or_null("residual");
             p.y = r.memory("y");
             return bound(p, norm_kernel, r.context.isa);
         }},
        {"matvec", [](const Reader& r) { return bound(matmul(r), matvec_kernel, r.context.isa); }},
        {"pack", [](const Reader& r) { return bound(matmul(r), pack_kernel, r.context.isa); }},
        {"gemm", [](const Reader& r) { return bound(matmul(r), gemm_kernel, r.context.isa); }},
        {"add", [](const Reader& r) {
             AddParams p;
             p.type = r.context.program.type;
             p.a = r.memory("a");
             p.b = r.memory("b");
             p.y = r.memory("y");
             p.width = r.integer("width");
             return bound(p, add_kernel, r.context.isa);
         }},
        {"qk_prepare", [](const Reader& r) {
             QkPrepareParams p;
             p.type = r.context.program.type;
             p.n_heads = r.integer("n_heads");
             p.n_kv_heads = r.integer("n_kv_heads");
             p.head_dim = r.integer("head_dim");
             p.q = r.memory("q");
             p.k = r.memory_or_null("k");
             p.v = r.memory_or_null("v");
             p.q_out = r.memory("y");
             p.q_norm = r.vector("q_norm");
             p.k_norm = r.vector("k_norm");
             p.norm = r.norm();
             p.eps = r.number("eps");
             p.rope = static_cast<const float*>(r.memory("rope"));
             p.rope_half = r.integer("rope_half");
             p.q_gated = r.integer("gated") != 0;
             p.v_norm = r.integer("v_norm") != 0;
             p.v_from_k = p.k != nullptr && p.v == nullptr;
             p.cache = r.cache();
             p.max_rows = r.context.program.max_rows;
             return bound(p, qk_prepare_kernel, r.context.isa);
         }},
        {"attention_decode", [](const Reader& r) { return bound(attention(r), attention_decode_kernel, r.context.isa); }},
        {"attention_combine", [](const Reader& r) { return bound(attention(r), attention_combine_kernel, r.context.isa); }},
        {"attention_prefill", [](const Reader& r) { return bound(attention(r), attention_prefill_kernel, r.context.isa); }},
        {"act_mul", [](const Reader& r) {
             ActMulParams p;
             p.type = r.context.program.type;
             p.gate = r.memory("gate");
             p.up_stride = r.integer("up_stride");
             p.up = static_cast<const std::byte*>(r.memory("up")) + r.launch.integer("up_offset") * static_cast<std::int64_t>(size_of(p.type));
             p.y = r.memory("y");
             p.width = r.integer("width");
             p.act = static_cast<ActKind>(r.integer("activation"));
             return bound(p, act_mul_kernel, r.context.isa);
         }},
        {"take_rows", [](const Reader& r) {
             TakeRowsParams p;
             p.type = r.context.program.type;
             p.x = r.memory("x");
             p.y = r.memory("y");
             p.width = r.integer("width");
             return bound(p, take_rows_kernel, r.context.isa);
         }},
        {"scale", [](const Reader& r) {
             ScaleParams p;
             p.type = r.context.program.type;
             p.x = r.memory("x");
             p.y = r.memory("y");
             p.width = r.integer("width");
             p.factor = r.vector("weight") ? r.vector("weight")[0] : r.number("factor");
             return bound(p, scale_kernel, r.context.isa);
         }},
        {"head_gate", [](const Reader& r) {
             HeadGateParams p;
             p.type = r.context.program.type;
             p.x = r.memory("x");
             p.q = r.memory("q");
             p.heads = r.integer("heads");
             p.head_dim = r.integer("head_dim");
             p.y = r.memory("y");
             return bound(p, head_gate_kernel, r.context.isa);
         }},
        {"conv", [](const Reader& r) {
             ConvParams p;
             p.type = r.context.program.type;
             p.u = r.memory("u");
             p.weight = r.vector("weight");
             p.c = r.memory("y");
             p.state = r.context.cache.state(r.integer("state_layer"));
             return bound(p, conv_kernel, r.context.isa);
         }},
        {"delta", [](const Reader& r) {
             DeltaParams p;
             p.type = r.context.program.type;
             p.c = r.memory("c");
             p.b = r.memory("b");
             p.a = r.memory("a");
             p.a_log = r.vector("a_log");
             p.dt_bias = r.vector("dt_bias");
             p.negative_exp = r.integer("negative_exp") != 0;
             p.tiled_heads = r.integer("tiled_heads") != 0;
             p.out = r.memory("y");
             if (r.launch.find("z")) {
                 p.z = r.memory("z");
                 p.norm_weight = r.vector("norm_weight");
                 p.norm_eps = r.number("eps");
             }
             p.state = r.context.cache.state(r.integer("state_layer"));
             p.max_rows = r.context.program.max_rows;
             return bound(p, delta_kernel, r.context.isa);
         }},
        {"gated_norm", [](const Reader& r) {
             GatedNormParams p;
             p.type = r.context.program.type;
             p.x = r.memory("x");
             p.z = r.memory("z");
             p.weight = r.vector("weight");
             p.eps = r.number("eps");
             p.heads = r.integer("heads");
             p.width = r.integer("width");
             p.y = r.memory("y");
             return bound(p, gated_norm_kernel, r.context.isa);
         }},
        {"route", [](const Reader& r) {
             RouteParams p;
             p.type = r.context.program.type;
             p.logits = r.memory("logits");
             p.logit_scale = r.number("logit_scale");
             p.experts = r.integer("experts");
             p.k = r.integer("k");
             p.normalise = r.integer("normalise") != 0;
             p.round_weights = r.integer("round_weights") != 0;
             p.expert_scale = r.vector("expert_scale");
             p.route = static_cast<std::uint32_t*>(r.memory("route"));
             return bound(p, route_kernel, r.context.isa);
         }},
        {"group", [](const Reader& r) {
             GroupParams p;
             p.route = static_cast<const std::uint32_t*>(r.memory("route"));
             p.experts = r.integer("experts");
             p.k = r.integer("k");
             p.panel = expert_panel(r.context.isa);
             p.max_rows = r.integer("max_rows");
             p.table = static_cast<std::int32_t*>(r.memory("table"));
             return bound(p, group_kernel, r.context.isa);
         }},
        {"expert_matvec", [](const Reader& r) { return bound(experts(r), expert_matvec_kernel, r.context.isa); }},
        {"expert_pack", [](const Reader& r) { return bound(experts(r), expert_pack_kernel, r.context.isa); }},
        {"expert_gemm", [](const Reader& r) { return bound(experts(r), expert_gemm_kernel, r.context.isa); }},
        {"combine", [](const Reader& r) {
             CombineParams p;
             p.type = r.context.program.type;
             p.x = r.memory("x");
             p.route = static_cast<const std::uint32_t*>(r.memory("route"));
             p.table = static_cast<const std::int32_t*>(r.memory_or_null("table"));
             p.experts = r.integer("experts");
             p.max_rows = r.integer("max_rows");
             p.k = r.integer("k");
             p.width = r.integer("width");
             p.shared = r.memory_or_null("shared");
             p.shared_gate = r.memory_or_null("shared_gate");
             p.y = r.memory("y");
             return bound(p, combine_kernel, r.context.isa);
         }},
    };
    return table;
}

}  // namespace

BoundLaunch bind_launch(const Launch& launch, const BindContext& context) {
    auto it = binders().find(launch.kernel);
    if (it == binders().end()) fail(ErrorKind::internal, "the CPU backend has no kernel '{}'", launch.kernel);
    BoundLaunch bound = it->second(Reader{launch, context});
    if (const std::int64_t items = cpu_variant_value(launch, context.program.max_rows); items > 0 && launch.kernel != "matvec") bound.kernel.grain = items;
    return bound;
}

}  // namespace forge
