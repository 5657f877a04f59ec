#define FORGE_TARGET_AVX512 1
#include "matmul/bf16_path.h"
#include "matmul/matvec.h"
#include "matmul/tile_words.h"

namespace forge {
using namespace FORGE_SIMD;

const MatvecFunctions matvec_avx512 = {{matvec<float>, matvec<f16>, matvec<bf16>}, matvec_scratch};

}  // namespace forge
