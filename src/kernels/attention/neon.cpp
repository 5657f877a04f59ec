// NEON (armv8-a): 16-bit types are unpacked to floats in the loop.
#define FORGE_TARGET_NEON 1
#include "attention/prepare.h"
#include "attention/simd_body.h"

namespace forge {
using namespace simd_neon;

const AttentionFunctions attention_neon = {
    {rope_table<float>, rope_table<f16>, rope_table<bf16>},
    {qk_prepare<float>, qk_prepare<f16>, qk_prepare<bf16>},
    {decode<Wide<float>, float>, decode<Wide<f16>, f16>, decode<Wide<bf16>, bf16>},
    {combine<float>, combine<f16>, combine<bf16>},
    {prefill<Wide<float>, float>, prefill<Wide<f16>, f16>, prefill<Wide<bf16>, bf16>},
    {4, 4, 4}};

}  // namespace forge
