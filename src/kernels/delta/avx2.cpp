#define FORGE_TARGET_AVX2 1
#include <algorithm>

#include "delta/simd_body.h"

namespace forge {
using namespace simd_avx2;

const DeltaFunctions delta_avx2 = FORGE_DELTA_FUNCTIONS;

}  // namespace forge
