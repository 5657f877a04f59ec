#define FORGE_TARGET_AVX2 1
#include <algorithm>

#include "experts/simd_body.h"

namespace forge {
using namespace simd_avx2;

const ExpertFunctions experts_avx2 = FORGE_EXPERT_FUNCTIONS;

}  // namespace forge
