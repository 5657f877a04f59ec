// forge inspect --chip: what a chip's data sheet allows a model at most. A bound, never a measurement.
#pragma once

#include <string>

#include "runtime/engine.h"

namespace forge::cli {

// "m1", "m4-pro", ..., one after the other, for help and errors.
std::string chip_names();
// Error naming the known chips when there is none of this name.
std::string roofline(const Engine& engine, const std::string& chip);

}  // namespace forge::cli
