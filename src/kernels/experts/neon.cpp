#define FORGE_TARGET_NEON 1
#include <algorithm>

#include "experts/simd_body.h"

namespace forge {
using namespace simd_neon;

const ExpertFunctions experts_neon = FORGE_EXPERT_FUNCTIONS;

}  // namespace forge
