// Attention: with what prepares its queries and keys, and what merges its parts, in one launch or in several.
#include <climits>
#include <set>

#include "binder.h"
#include "kernels/gpu/ways.h"

namespace forge::gpu {

AttentionShape Binder::attention_shape() const {
    AttentionShape s;
    s.n_heads = integer("n_heads");
    s.n_kv_heads = integer("n_kv_heads");
    s.head_dim = integer("head_dim");
    s.capacity = cache_.capacity();
    s.gated = launch_->kernel == "attention_combine" && launch_->number("gates", 0) != 0;
    s.scale = static_cast<float>(launch_->number("scale", 1));
    s.softcap = static_cast<float>(launch_->number("softcap", 0));
    s.window = static_cast<int>(launch_->number("window", 0));
    return s;
}

void Binder::qk_prepare_(GpuLaunch& out) { one(out, qk_prepare(common_, prepare_shape())); }

AttentionShape Binder::prepare_shape() const {
    AttentionShape s = attention_shape();
    s.writes = has("k");
    s.q_norm = has("q_norm");
    s.k_norm = has("k_norm");
    s.gated = integer("gated") != 0;
    s.v_norm = integer("v_norm") != 0;
    s.v_from_k = has("k") && !has("v");
    s.formula = formula();
    s.eps = number("eps");
    s.rope_half = integer("rope_half");
    return s;
}

Kernel Binder::decode_of(const AttentionShape& s, int rows) const { return launch_->variant(rows) && !s.far ? chosen(attention_decode_ways(common_, s), rows) : attention_decode(common_, s); }

// A step of one row prepares what it reads; more rows see each other's keys, so these are made first.
void Binder::attention_and_prepare(GpuLaunch& out) {
    const bool one_fused = !wants(kPreparedBefore, 1);
    AttentionShape s = prepare_shape();
    s.fused = true;
    const int near = attention_near(common_, s);
    for (const int end : std::set{near, INT_MAX}) {
        s.far = end > near;
        if (one_fused) out.variants.push_back({1, {bound(decode_of(s, 1))}, end});
    }
    if (one_fused && program_.max_rows == 1) return;
    s.fused = s.far = false;
    out.variants.push_back({program_.max_rows, {bound(qk_prepare(common_, s)), bound_as(decode_of(s, program_.max_rows), {{"q", "query"}})}});
}

AttentionShape Binder::merged_shape() const {
    AttentionShape s = prepares() ? prepare_shape() : attention_shape();
    s.gates = has("gates");
    s.merges = true;
    return s;
}

// Steps of short contexts merge parts where these are made; longer ones in a launch of its own where parts are many.
void Binder::attention_and_merge(GpuLaunch& out) {
    AttentionShape s = merged_shape();
    const bool gates = s.gates, one_fused = prepares() && !wants(kPreparedBefore, 1);
    const int merged = attention_merged(common_, s), near = attention_near(common_, s);
    AttentionShape merging = s;
    merging.gated = gates;
    int end = INT_MAX;
    const auto add = [&](int rows, std::vector<BoundKernel> kernels) {
        if (!s.merges) kernels.push_back(bound_as(attention_combine(common_, merging), {{"y", "out"}, {"q", "gates"}}));
        out.variants.push_back({rows, std::move(kernels), end});
    };
    for (const int reach : std::set{merged, near, INT_MAX}) {
        end = reach;
        s.merges = reach <= merged;
        s.far = reach > near;
        s.fused = true;
        if (one_fused) add(1, {bound(decode_of(s, 1))});
        if (one_fused && program_.max_rows == 1) continue;
        s.fused = s.far = false;
        std::vector<BoundKernel> apart;
        if (prepares()) apart.push_back(bound(qk_prepare(common_, s)));
        apart.push_back(prepares() ? bound_as(decode_of(s, program_.max_rows), {{"q", "query"}}) : bound(decode_of(s, program_.max_rows)));
        add(program_.max_rows, std::move(apart));
    }
}

void Binder::attention_(GpuLaunch& out) {
    if (merges()) return attention_and_merge(out);
    if (prepares()) return attention_and_prepare(out);
    const AttentionShape s = attention_shape();
    one(out, launch_->kernel == "attention_combine"  ? attention_combine(common_, s)
             : launch_->kernel == "attention_decode" ? decode_of(s, program_.max_rows)
                                                     : chosen(attention_prefill_ways(common_, s), program_.max_rows));
}

}  // namespace forge::gpu
