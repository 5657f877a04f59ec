// A model on a backend, as far as its single operations are concerned. Everything must outlive it.
#pragma once

#include <span>

#include "backends/backend.h"
#include "tune/part.h"

namespace forge::tune {

struct Subject {
    Backend& backend;
    Backend& reference;                  // the plain kernels
    Plan few_plan, many_plan;            // fused, for steps of few rows; for prompts, as take_apart() leaves it
    std::span<const RopeSpec> ropes;
    std::span<const Weight> weights;
    std::span<const CacheLayer> layers;  // what each layer keeps
    DType type = DType::bf16;
    int capacity = 4096;
    int few_rows = 8, few_outputs = 1;     // of the program of few rows
    int many_rows = 0, many_outputs = 1;   // of that for prompts; 0 rows: there is none

    const Plan& plan(bool many) const { return many ? many_plan : few_plan; }
    int rows(bool many) const { return many ? many_rows : few_rows; }
    int outputs(bool many) const { return many ? many_outputs : few_outputs; }
};

}  // namespace forge::tune
