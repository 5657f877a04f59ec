// How far a result is from the reference, and whether that is too far.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/dtype.h"

namespace forge::tune {

struct Difference {
    double max_error = 0, largest = 0;   // of an element; of the reference's elements
    double rms = 0;                      // of the errors, relative to the reference's
    std::size_t compared = 0;            // elements of which there was a wanted one
    std::size_t not_numbers = 0;         // elements that are no number, as what nobody wrote
    double rms_bound = 0;
    int rows = 0;                        // of the step

    // Something was compared, no element is off by more than 1/64 of the largest, the RMS is within its bound, and all are
    // numbers.
    bool ok() const { return compared > 0 && not_numbers == 0 && max_error <= max_bound() && rms <= rms_bound; }
    double max_bound() const { return largest / 64; }
    // "max err 7.790e-2 of 9.082e-2"
    std::string text() const;
};

// Of results of a type: a few of its roundings, or sums of f32 in another order.
double rms_bound(DType type);

// `got` against `wanted` where there is a wanted one (NaN: not asked for); `got` must be a number everywhere.
Difference compare(std::span<const float> got, std::span<const float> wanted, DType type, int rows);
// The worse of two.
Difference worse(const Difference& a, const Difference& b);

}  // namespace forge::tune
