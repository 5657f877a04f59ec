#include "binder.h"

#include <algorithm>

#include "base/error.h"
#include "join_launches.h"
#include "kernels/gpu/ways.h"

namespace forge::gpu {
namespace {

constexpr std::string_view kPlaneNames[] = {"codes", "high", "scales", "offsets", "super_scales", "super_mins"};

}  // namespace

GpuProgram Binder::run() {
    reserve_arrivals();
    for (std::size_t i = 0; i < program_.launches.size(); ++i) {
        launch_ = &program_.launches[i];
        if (launch_->kernel == "rope_table") {   // angles are precomputed; users look the table up by its place
            remember_rope();
            continue;
        }
        GpuLaunch out;
        out.source = i;
        // What a skipped launch separated stays separated: its successor's barrier covers the same memory.
        out.barrier = launch_->barrier || pending_barrier_;
        pending_barrier_ = false;
        out.output_rows = launch_->output_rows;
        fill(out);
        out_.launches.push_back(std::move(out));
    }
    if (common_.limits.join) join_matvecs(out_.launches);
    if (program_.max_rows <= 8 && program_.vocab > 0 && program_.logits_type == DType::f32) add_pick();
    return std::move(out_);
}

// Words for the launches that merge parts; one layer's are free again when the next one's begin.
void Binder::reserve_arrivals() {
    std::int64_t heads = 0;
    for (const Launch& l : program_.launches)
        if (l.number("merges", 0) != 0) heads = std::max(heads, l.integer("n_heads"));
    if (heads == 0) return;
    arrivals_ = out_.scratch_bytes;
    out_.scratch_bytes += (4 * static_cast<std::uint64_t>(heads) * static_cast<std::uint64_t>(program_.max_rows) + 255) / 256 * 256;
}

// The one that the launch names for a bucket of rows, or the default.
Kernel Binder::chosen(const std::vector<Way>& ways, int rows) const {
    if (const std::string* name = launch_->variant(rows))
        for (const Way& w : ways)
            if (w.name == *name) return w.make();
    return ways.front().make();
}

void Binder::add_pick() {
    const std::uint64_t parts = out_.scratch_bytes;
    out_.picked_offset = parts + pick_parts_bytes();
    out_.scratch_bytes = out_.picked_offset + 4 * most_picks;
    for (Kernel& k : pick(common_, program_.vocab)) {
        BoundKernel b{std::move(k), {}};
        for (const Param& p : b.kernel.params)
            b.buffers.push_back(p.name == "step"     ? Buffer{}
                                : p.name == "logits" ? Buffer{Place::arena, 0, 0, program_.logits.offset}
                                                     : Buffer{Place::scratch, 0, 0, p.name == "parts" ? parts : out_.picked_offset});
        out_.pick.push_back(std::move(b));
    }
}

void Binder::fill(GpuLaunch& out) {
    static const std::map<std::string_view, Fill> table = {
        {"embed", &Binder::embed_}, {"norm", &Binder::norm_}, {"matvec", &Binder::matvec_}, {"pack", &Binder::pack_}, {"gemm", &Binder::gemm_},
        {"add", &Binder::add_}, {"qk_prepare", &Binder::qk_prepare_}, {"attention_decode", &Binder::attention_}, {"attention_combine", &Binder::attention_},
        {"attention_prefill", &Binder::attention_}, {"act_mul", &Binder::act_mul_}, {"take_rows", &Binder::take_rows_}, {"scale", &Binder::scale_},
        {"head_gate", &Binder::head_gate_}, {"conv", &Binder::conv_}, {"delta", &Binder::delta_}, {"gated_norm", &Binder::gated_norm_}, {"route", &Binder::route_},
        {"group", &Binder::group_}, {"expert_matvec", &Binder::experts_}, {"expert_gemm", &Binder::experts_}, {"combine", &Binder::combine_}};
    const auto it = table.find(launch_->kernel);
    if (it == table.end())
        fail(ErrorKind::unsupported, "the operation '{}' of this model has no GPU kernel yet; run it with --device cpu", launch_->kernel);
    (this->*it->second)(out);
}

Buffer Binder::buffer_of(const std::string& name) const {
    if (name == "step") return {};
    if (name == "y" && !launch_->find("y")) return {Place::arena, 0, 0, launch_->operand("query").buffer.offset};   // of a preparation inside attention
    if (name == "arrivals") return {Place::scratch, 0, 0, *arrivals_};
    if (name == "globals") return {Place::constants, static_cast<int>(out_.constants.size()) - 1};
    if (name == "rope_angles") return {Place::rope, rope_at_.at(launch_->operand("rope").buffer.offset)};
    const auto dot = name.find('.');
    const Operand& o = launch_->operand(std::string_view(name).substr(0, dot));
    switch (o.buffer.space) {
        case Space::arena: return {Place::arena, 0, 0, o.buffer.offset};
        case Space::keys: return {Place::cache, 0, 0, cache_.keys(o.buffer.index)};
        case Space::values: return {Place::cache, 0, 0, cache_.values(o.buffer.index)};
        case Space::conv_state: return {Place::cache, 0, 0, cache_.conv(o.buffer.index)};
        case Space::delta_state: return {Place::cache, 0, 0, cache_.delta(o.buffer.index)};
        case Space::weight: {
            const auto plane = std::find(std::begin(kPlaneNames), std::end(kPlaneNames), std::string_view(name).substr(dot + 1));
            const bool experts = launch_->kernel.rfind("expert_", 0) == 0;
            return {Place::plane, o.buffer.index, static_cast<int>(plane - std::begin(kPlaneNames)), 0, experts ? integer("experts") : 1};
        }
        case Space::table: break;
    }
    fail(ErrorKind::internal, "kernel parameter {} of launch {} cannot be bound", name, launch_->kernel);
}

// A kernel that knows only of a step's rows takes its outputs for them, where these are what there is: it gets the
// step's record from their number on. (It may read nothing else of the record.)
BoundKernel Binder::bound(Kernel kernel) const {
    BoundKernel b{std::move(kernel), {}};
    const bool outputs_for_rows = launch_->output_rows && !b.kernel.grid.output_rows;
    if (outputs_for_rows) b.kernel.grid.output_rows = true;
    for (const Param& p : b.kernel.params) {
        b.buffers.push_back(buffer_of(p.name));
        if (outputs_for_rows && b.buffers.back().place == Place::step) b.buffers.back().offset = outputs_word * sizeof(std::int32_t);
    }
    return b;
}

// Parameters that are other operands of the launch than their names say.
BoundKernel Binder::bound_as(Kernel kernel, std::initializer_list<std::pair<std::string_view, std::string>> names) const {
    std::vector<Param> params = kernel.params;
    for (Param& p : kernel.params)
        for (const auto& [from, to] : names)
            if (p.name == from) {
                p.name = to;
                break;
            }
    BoundKernel b = bound(std::move(kernel));
    b.kernel.params = std::move(params);   // as the kernel's text spells them
    return b;
}

void Binder::one(GpuLaunch& out, Kernel kernel) const { out.variants.push_back({program_.max_rows, {bound(std::move(kernel))}}); }

void Binder::remember_rope() {
    pending_barrier_ = pending_barrier_ || launch_->barrier;
    const RopeAngles rope{program_.tables[static_cast<std::size_t>(launch_->operand("inv_freq").buffer.index)], integer("half"), number("scale")};
    rope_at_[launch_->operand("table").buffer.offset] = static_cast<int>(out_.ropes.size());
    out_.ropes.push_back(rope);
}

void Binder::embed_(GpuLaunch& out) { one(out, embed(common_, *weight("table"), number("scale"))); }

void Binder::norm_(GpuLaunch& out) {
    NormShape s;
    s.width = integer("width");
    s.groups = integer("groups");
    s.weight = has("weight");
    s.residual = has("residual");
    s.output_rows = launch_->output_rows;
    s.formula = formula();
    s.eps = number("eps");
    one(out, norm(common_, s));
}

void Binder::add_(GpuLaunch& out) { one(out, add(common_, integer("width"))); }
void Binder::scale_(GpuLaunch& out) { one(out, scale(common_, integer("width"), number("factor"), has("weight"))); }

void Binder::act_mul_(GpuLaunch& out) {
    one(out, act_mul(common_, integer("width"), integer("up_stride"), integer("up_offset"), static_cast<ActKind>(integer("activation"))));
}

void Binder::head_gate_(GpuLaunch& out) { one(out, head_gate(common_, integer("heads"), integer("head_dim"))); }

DeltaShape Binder::delta_shape() const {
    const CacheLayer& l = cache_.layer(integer("state_layer"));
    DeltaShape s;
    s.n_k_heads = l.n_k_heads;
    s.n_v_heads = l.n_v_heads;
    s.k_dim = l.k_dim;
    s.v_dim = l.v_dim;
    s.conv_kernel = l.conv_kernel;
    return s;
}

void Binder::conv_(GpuLaunch& out) { one(out, conv(common_, delta_shape())); }

void Binder::delta_(GpuLaunch& out) {
    DeltaShape s = delta_shape();
    s.negative_exp = integer("negative_exp") != 0;
    s.tiled_heads = integer("tiled_heads") != 0;
    one(out, delta(common_, s));
}

void Binder::gated_norm_(GpuLaunch& out) { one(out, gated_norm(common_, integer("heads"), integer("width"), number("eps"))); }

}  // namespace forge::gpu
