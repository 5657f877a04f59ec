// Encoders of the 256-element blocks: 256 floats -> one block.
#pragma once

#include <cstdint>

namespace forge {

void encode_q2_k(const float* x, std::uint8_t* block);
void encode_q3_k(const float* x, std::uint8_t* block);
void encode_q4_k(const float* x, std::uint8_t* block);
void encode_q5_k(const float* x, std::uint8_t* block);
void encode_q6_k(const float* x, std::uint8_t* block);

}  // namespace forge
