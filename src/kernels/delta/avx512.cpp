#define FORGE_TARGET_AVX512 1
#include <algorithm>

#include "delta/simd_body.h"

namespace forge {
using namespace simd_avx512;

const DeltaFunctions delta_avx512 = FORGE_DELTA_FUNCTIONS;

}  // namespace forge
