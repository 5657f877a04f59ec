// The embedded body texts (generated from text/*.h by cmake/EmbedTexts.cmake).
#pragma once

#include <string_view>

namespace forge::gpu::text {

extern const std::string_view prelude_metal, prelude_cuda, types, rows, formats, matvec, gemm, attention_prepare, attention, attention_merge, delta, experts, pick, tensor, tensor_rows, tensor_decode, flash, group_flash, tensor_delta, simd_gemm, simd_flash, matmul2d_gemm;

}  // namespace forge::gpu::text
