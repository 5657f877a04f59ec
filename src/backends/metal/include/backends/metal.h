// Runs programs on Apple's GPUs.
#pragma once

#include <memory>
#include <string>

#include "backends/backend.h"

namespace forge {

// Whether there is a device that the kernels run on; a sentence otherwise.
bool metal_available(std::string* reason);
std::unique_ptr<Backend> make_metal_backend();

}  // namespace forge
