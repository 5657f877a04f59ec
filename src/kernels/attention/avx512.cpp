// AVX-512 with BF16: bf16 goes through the machine's own product of pairs.
#define FORGE_TARGET_AVX512 1
#include "attention/prepare.h"
#include "attention/simd_body.h"

namespace forge {
using namespace simd_avx512;

const AttentionFunctions attention_avx512 = {
    {rope_table<float>, rope_table<f16>, rope_table<bf16>},
    {qk_prepare<float>, qk_prepare<f16>, qk_prepare<bf16>},
    {decode<Wide<float>, float>, decode<Wide<f16>, f16>, decode<Dot<bf16>, bf16>},
    {combine<float>, combine<f16>, combine<bf16>},
    {prefill<Wide<float>, float>, prefill<Wide<f16>, f16>, prefill<Dot<bf16>, bf16>},
    {4, 4, 2}};

}  // namespace forge
