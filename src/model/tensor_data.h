// Element access to tensors that are no matrices of a plan: norms, biases,
// rope divisors, scalar scales.
#pragma once

#include <optional>
#include <vector>

#include "formats/model_file.h"

namespace forge {

// The float type of a tensor whose elements are plain f32, f16 or bf16, however
// the format says so; nullopt for blocks and other types.
std::optional<DType> dense_float_type(const Tensor& tensor);

// All elements as floats, from plain floats or blocks. Error naming the tensor otherwise.
std::vector<float> floats_of(const Tensor& tensor);

// Error unless the data is as long as shape and type say.
void check_size(const Tensor& tensor);

}  // namespace forge
