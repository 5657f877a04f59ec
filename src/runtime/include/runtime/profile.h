// What each launch of a program does and takes: for profiles, benchmarks and predictions.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backends/program.h"
#include "base/step_rows.h"
#include "quant/weight.h"

namespace forge {

// Of one step. `bytes` are those that must come from memory or go there: weights, the cache's keys and values,
// recurrent states; what launches hand to each other stays in caches and is left out. `flops` counts a
// multiplication and an addition each as one, of matrix products, attention, convolution and the delta rule.
struct LaunchWork { std::uint64_t bytes = 0, flops = 0; };

// weights: by WeightId; layers: what each layer keeps. read: the vectors that launches before it in the step have read,
// which then are in a cache (a norm's weights, read by q, k and v); null: none. Which experts a step of several rows chooses is not known
// here: every choice counts as another expert until all are counted.
LaunchWork work_of(const Launch& launch, std::span<const Weight> weights, std::span<const CacheLayer> layers,
                   DType type, const StepRows& step, std::set<std::int32_t>* read = nullptr);

// "122 launches with 121 barriers, 122 stages; 6 launches more from position 1024 on"
std::string describe(const StepCounts& counts);

// A launch over many steps; sums.
struct LaunchProfile {
    std::string kernel, label;
    int layer = -1;
    bool barrier = false;          // it waits for those before it
    bool matrix = false;           // of the program for steps of more than eight rows
    std::uint64_t steps = 0;
    double seconds = 0;            // 0 in a prediction
    LaunchWork work;
};

}  // namespace forge
