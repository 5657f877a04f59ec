// Runs programs on an NVIDIA GPU.
#pragma once

#include <memory>
#include <string>

#include "backends/backend.h"

namespace forge {

// Whether the driver, a GPU and NVRTC are here; a sentence otherwise.
bool cuda_available(std::string* reason);
std::unique_ptr<Backend> make_cuda_backend(int ordinal);

}  // namespace forge
