// CUDA C++ text -> machine code, through NVIDIA's run-time compiler, loaded when it is needed.
#pragma once

#include <string>
#include <vector>

namespace forge::cuda {

// False with a sentence when NVRTC is not there.
bool nvrtc_available(std::string* reason);
// "13.0"
std::string nvrtc_version();

// Machine code for a compute capability (90 = sm_90). Throws with the compiler's log.
std::vector<char> compile(const std::string& source, int capability);

}  // namespace forge::cuda
