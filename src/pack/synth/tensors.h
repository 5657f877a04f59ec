// The tensors of a shape, with their names in both formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shapes.h"

namespace forge::synth {

enum class Kind : std::uint8_t {
    matrix,        // rows x cols of chunks
    norm,          // cols values around 1
    rope_factors,  // GGUF only: divisors of the rope frequencies (llama3 scaling)
};

// What decides a matrix's type in a mix.
enum class Use : std::uint8_t { embedding, head, attn_v, ffn_down, other };

struct TensorPlan {
    std::string hf;  // empty: not in a Hugging Face folder
    std::string gguf;
    Kind kind = Kind::matrix;
    Use use = Use::other;
    int layer = -1;
    std::int64_t rows = 1, cols = 0;  // a norm is one row
    int interleaved_heads = 0;        // GGUF stores the two halves of each of so many heads' rows interleaved
    bool one_plus = false;            // a norm that Hugging Face stores less 1
};

// In the order of the forward pass: embedding, layers, final norm, head.
std::vector<TensorPlan> tensors_of(const Shape& shape);

// The value of element i of a norm as GGUF stores it: 1 + k/64 with k in
// [-8, 8], exact in bf16 (so is k/64). key tells the tensors apart.
float norm_value(std::uint64_t key, std::int64_t i);

std::vector<float> rope_factors(const Shape& shape);

// Hash of seed and tensor; the same for both formats.
std::uint64_t tensor_key(std::uint64_t seed, const TensorPlan& tensor);

}  // namespace forge::synth
