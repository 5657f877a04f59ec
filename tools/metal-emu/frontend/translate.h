// The whole front end: MSL -> C++ with one entry per kernel.
#pragma once

#include <string>
#include <vector>

#include "metal_emu/compile.h"

namespace metal_emu {

// Entries are named entry_name(0), entry_name(1), ... in the order of `functions`.
std::string translate(const Library& library, const std::vector<const Function*>& functions,
                      const std::vector<FunctionConstant>& constants, bool address_spaces);
std::string entry_name(std::size_t index);

}  // namespace metal_emu
