// GGUF block types: names, sizes and the reference decoding of a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace forge {

// Types with a formula (docs/formats.md). Values are GGUF's type ids.
enum class GgufType : std::uint32_t {
    f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8, q2_k = 10, q3_k = 11, q4_k = 12,
    q5_k = 13, q6_k = 14, iq4_nl = 20, iq4_xs = 23, bf16 = 30, tq2_0 = 35, mxfp4 = 39, nvfp4 = 40,
};

struct BlockSize { int elements; int bytes; };

// "q4_k"; also names types that have no formula here ("iq2_xxs"), else "type 99".
std::string_view gguf_type_name(std::uint32_t type);
// Size of any type that GGUF defines, decodable or not; nullopt for withdrawn and unknown ids.
std::optional<BlockSize> gguf_block_size(std::uint32_t type);
bool gguf_decodable(std::uint32_t type);

// cols elements (a multiple of the block) as floats, bit-equal with the published definition.
void decode_gguf_row(GgufType type, const std::byte* row, std::int64_t cols, float* out);

}  // namespace forge
