// The k largest of a row's probabilities, written as the row's route.
#pragma once

#include <cstring>

#include "base/float16.h"
#include "kernels/experts/experts.h"

namespace forge {

// probability: [experts], not yet divided by `sum`; it is used up. The lower id of equals wins.
template <typename T>
void take_top(const RouteParams& p, float* probability, float sum, std::int64_t row) {
    std::uint32_t* ids = p.route + row * 2 * p.k;
    float* weights = reinterpret_cast<float*>(ids + p.k);
    float chosen = 0;
    for (int i = 0; i < p.k; ++i) {
        int best = 0;
        for (int e = 1; e < p.experts; ++e)
            if (probability[e] > probability[best]) best = e;
        ids[i] = static_cast<std::uint32_t>(best);
        weights[i] = probability[best] / sum;
        chosen += weights[i];
        probability[best] = -1;   // also keeps NaN rows inside the table: ids stay below `experts`
    }
    for (int i = 0; i < p.k; ++i) {
        if (p.normalise) weights[i] /= chosen;
        if (p.expert_scale) weights[i] *= p.expert_scale[ids[i]];
        if (p.round_weights) weights[i] = round_to<T>(weights[i]);
    }
}

}  // namespace forge
