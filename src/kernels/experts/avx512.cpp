#define FORGE_TARGET_AVX512 1
#include <algorithm>

#include "experts/simd_body.h"

namespace forge {
using namespace simd_avx512;

const ExpertFunctions experts_avx512 = FORGE_EXPERT_FUNCTIONS;

}  // namespace forge
