#define FORGE_TARGET_AVX2 1
#include "matmul/gemm.h"

namespace forge {
using namespace FORGE_SIMD;

const GemmFunctions gemm_avx2 = {{pack<float>, pack<f16>, pack<bf16>},
                                 {gemm<float>, gemm<f16>, gemm<bf16>},
                                 pack_scratch,
                                 gemm_scratch,
                                 packed_bytes,
                                 kLanes};

}  // namespace forge
