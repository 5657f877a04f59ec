#define FORGE_TARGET_NEON 1
#include "matmul/matvec.h"

namespace forge {
using namespace FORGE_SIMD;

const MatvecFunctions matvec_neon = {{matvec<float>, matvec<f16>, matvec<bf16>}, matvec_scratch};

}  // namespace forge
