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
    rope_factors,  // GGUF only: divisors of the rope frequencies (llama3 scaling, Gemma 4's global layers)
    conv,          // rows x cols taps of a causal convolution
    decay,         // cols rates: A_log, which GGUF stores as -exp(A_log)
    decay_bias,    // cols values around -2
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
    std::int64_t experts = 0;         // matrices of so many experts, one after the other; in Hugging Face a tensor each
    bool f32 = false;                 // GGUF keeps this matrix in f32, whatever the type
    int interleaved_heads = 0;        // GGUF stores the two halves of each of so many heads' rows interleaved
    bool one_plus = false;            // a norm that Hugging Face stores less 1
};

// Dimensions as stored; `number` >= 0: one expert's own tensor.
std::vector<std::int64_t> dims_of(const TensorPlan& tensor, bool gguf);
// Elements of all dimensions.
std::int64_t elements_of(const TensorPlan& tensor);
// "model.layers.0.mlp.experts.{}.up_proj.weight" with the expert's number.
std::string hf_name(const TensorPlan& tensor, std::int64_t expert);
// The values of everything that is not a matrix of chunks, as GGUF (or Hugging Face) stores them.
std::vector<float> small_values(const TensorPlan& tensor, std::uint64_t key, const Shape& shape, bool gguf);

// In the order of the forward pass: embedding, layers, final norm, head.
std::vector<TensorPlan> tensors_of(const Shape& shape);

// The value of element i of a norm as GGUF stores it: 1 + k/64 with k in
// [-8, 8], exact in bf16 (so is k/64). key tells the tensors apart.
float norm_value(std::uint64_t key, std::int64_t i);

std::vector<float> rope_factors(const Shape& shape);

// Hash of seed and tensor; the same for both formats.
std::uint64_t tensor_key(std::uint64_t seed, const TensorPlan& tensor);

}  // namespace forge::synth
