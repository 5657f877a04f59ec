#define FORGE_TARGET_NEON 1
#include <algorithm>

#include "delta/simd_body.h"

namespace forge {
using namespace simd_neon;

const DeltaFunctions delta_neon = FORGE_DELTA_FUNCTIONS;

}  // namespace forge
