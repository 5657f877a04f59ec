// Names of launches by what they compute: launches of one name run the same kernels on the same shapes, whatever layer
// they are of. "matvec 3072x1024 q4/32 f16 z8 norm | bf16, ...": people read what is before the bar.
#pragma once

#include <span>
#include <string>

#include "backends/program.h"
#include "quant/weight.h"

namespace forge::tune {

std::string site_name(const Program& program, const Launch& launch, std::span<const Weight> weights);
// Before the bar; without the kernel.
std::string short_name(const std::string& site);
std::string shape_name(const std::string& site);

}  // namespace forge::tune
