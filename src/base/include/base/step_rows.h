// The step record: what changes from one step to the next. Everything else is
// fixed when a program is compiled.
#pragma once

#include <cstdint>

namespace forge {

// Rows of one sequence are neighbours and their positions rise by one.
struct StepRows {
    int m = 0;                                // rows
    const std::int32_t* tokens = nullptr;     // [m]
    const std::int32_t* slots = nullptr;      // [m] sequence slot of each row
    const std::int32_t* positions = nullptr;  // [m]
    int outputs = 0;                          // rows whose logits are wanted
    const std::int32_t* output_rows = nullptr;  // [outputs] indices into 0..m-1, rising
    std::uint64_t serial = 0;                 // different for every step
};

// What a step of one row takes on the device: launches, and groups of launches that nothing separates. More of them, each
// a stage: `longer` from position `short_context` on, and `picks` where the device picks the token of the next step.
struct StepCounts { int launches = 0, stages = 0, longer = 0, short_context = 0, picks = 0; };

}  // namespace forge
