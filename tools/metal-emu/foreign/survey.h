#pragma once

#include <string>
#include <vector>

namespace metal_emu::foreign {

struct SurveyOptions {
    std::vector<std::string> files, folders, defines;
    bool cxx17 = false, each = false;   // each: kernels that fail together, one by one
};
// Compiles every kernel of the files, without and with address spaces, and prints what did not. True when all
// compile and nothing but our own limit stops one with address spaces.
bool survey(const SurveyOptions& options);

}  // namespace metal_emu::foreign
