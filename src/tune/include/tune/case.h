// The data that a part is run on: inputs, the step's rows, what the cache holds before.
#pragma once

#include <vector>

#include "backends/backend.h"
#include "tune/part.h"
#include "tune/subject.h"

namespace forge::tune {

inline constexpr int kSlots = 2;

struct Case {
    int rows = 0;                            // of the result; the step has as many or more
    std::vector<std::int32_t> tokens, slots, positions, output_rows;
    // Of the part's inputs: a row of the step, or of its outputs, after the other. Routes are words, bit for bit.
    std::vector<std::vector<float>> inputs;
    int filled[kSlots] = {};                 // positions that the cache knows of each slot, the step's own included
    unsigned seed = 0;

    StepRows step(std::uint64_t serial) const;
    // The same for some of the result's rows.
    Case some(const Part& part, std::span<const int> rows) const;
};

// rows: of the result. depth: positions before the step's, as far as the capacity allows.
Case make_case(const Part& part, const Subject& subject, int max_rows, int rows, unsigned seed, int depth = 97);

// A cache for the layers that a part uses, the others empty; and what a case begins with in it.
std::shared_ptr<Cache> make_cache(Backend& backend, const Part& part, const Subject& subject);
void fill_cache(Cache& cache, const Part& part, const Subject& subject, const Case& c);

}  // namespace forge::tune
