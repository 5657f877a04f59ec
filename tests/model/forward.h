// A forward pass in double precision, straight from the descriptor and the
// bound weights, as slow and plain as it can be: what the descriptor says is
// then checked without any other part of the engine.
#pragma once

#include <vector>

#include "model/spec.h"

namespace forge::test {

// Logits of every position, (ids.size(), spec.vocab) row by row.
std::vector<double> forward(const BoundModel& model, const std::vector<int>& ids);

}  // namespace forge::test
