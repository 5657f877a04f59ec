#define FORGE_TARGET_AVX2 1
#include "rows/simd_body.h"

namespace forge {
using namespace simd_avx2;

const RowsFunctions rows_avx2 = {{embed<float>, embed<f16>, embed<bf16>},
                               {norm<float>, norm<f16>, norm<bf16>},
                               {add<float>, add<f16>, add<bf16>},
                               {act_mul<float>, act_mul<f16>, act_mul<bf16>},
                               {scale<float>, scale<f16>, scale<bf16>},
                               arg_max};

}  // namespace forge
