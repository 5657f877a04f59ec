// MLX's Metal kernels, from the headers of its Python package. The texts here only name their templates.
#pragma once

#include "foreign/harness.h"

namespace metal_emu::foreign {

void mlx_quantised(Harness& h);
void mlx_rows(Harness& h);
void mlx_products(Harness& h);    // steel gemm on 8x8 matrices
void mlx_attention(Harness& h);   // one query, and steel attention on 8x8 matrices
void mlx_tensors(Harness& h);            // Metal 4: steel gemm on matmul2d
void mlx_tensor_attention(Harness& h);   // and attention

// #include lines of kernel headers.
std::string mlx_includes(std::initializer_list<const char*> headers);

}  // namespace metal_emu::foreign
