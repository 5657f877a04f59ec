// Routes, and products with the weights of experts.
#include "binder.h"
#include "kernels/gpu/ways.h"

namespace forge::gpu {

void Binder::route_(GpuLaunch& out) {
    RouteShape s;
    s.experts = integer("experts");
    s.per_token = integer("k");
    s.normalise = integer("normalise") != 0;
    s.round_weights = integer("round_weights") != 0;
    s.scaled = has("expert_scale");
    s.logit_scale = number("logit_scale");
    one(out, route(common_, s));
}

void Binder::group_(GpuLaunch& out) { one(out, group(common_, integer("experts"), integer("k"))); }

ExpertShape Binder::expert_shape() const {
    ExpertShape s;
    s.w = weight("weight");
    s.w2 = weight("weight2");
    s.experts = integer("experts");
    s.per_token = integer("k");
    s.per_choice = integer("x_per_pair") != 0;
    s.act = static_cast<ActKind>(integer("activation"));
    for (const Weight* w : {s.w, s.w2})
        for (int e = 0; w && e < s.experts; ++e) s.scaled = s.scaled || w[e].global_scale != w->global_scale;
    return s;
}

void Binder::experts_(GpuLaunch& out) {
    const ExpertShape s = expert_shape();
    if (s.scaled) {
        std::vector<float> globals;
        for (const Weight* w : {s.w, s.w2})
            for (int e = 0; w && e < s.experts; ++e) globals.push_back(w[e].global_scale);
        out_.constants.push_back(std::move(globals));
    }
    one(out, launch_->kernel == "expert_matvec" ? expert_matvec(common_, s) : chosen(expert_gemm_ways(common_, s), program_.max_rows));
}

void Binder::combine_(GpuLaunch& out) {
    CombineShape s;
    s.per_token = integer("k");
    s.width = integer("width");
    s.experts = integer("experts");
    s.table = has("table");
    s.shared = has("shared");
    s.residual = has("residual");
    one(out, combine(common_, s));
}

}  // namespace forge::gpu
