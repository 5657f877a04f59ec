// Floats -> GGUF blocks, for synthetic models, tests and `forge quantize`.
// Scales come from a least-squares search, so that the error is about that of
// other encoders of the format; the bits need not be theirs. The result does
// not depend on the machine: correctly rounded operations in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/gguf_blocks.h"

namespace forge {

// f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl mxfp4
bool gguf_encodable(GgufType type);

// cols elements (a multiple of the block) -> row. Values that are not finite,
// or too large for the format's scale, give unspecified finite codes.
// Error(unsupported) for types that cannot be encoded.
void encode_gguf_row(GgufType type, const float* in, std::int64_t cols, std::byte* row);

}  // namespace forge
