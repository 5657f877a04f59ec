// GPU backends without a GPU: a program is bound to the kernels that it would run there, and counted. Nothing is
// compiled, no memory is taken, no step can be run.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace forge {

enum class OutlineTarget : std::uint8_t { metal, cuda };

// metal: any of Apple's. cuda: compute capability 9.0.
std::unique_ptr<Backend> make_outline_backend(OutlineTarget target);

}  // namespace forge
