// From the table to the file's tensors: which tensor, or which rows of it,
// every role of every layer is. No data is touched.
#pragma once

#include <string>
#include <vector>

#include "family.h"
#include "mlx_quantisation.h"

namespace forge {

// One weight to be made.
struct TensorUse {
    const Tensor* tensor = nullptr;
    std::int64_t first_row = 0;      // in the tensor; not 0 for parts of a fused one
    std::int64_t rows = 0, cols = 0; // of the weight; a vector is one row
    bool as_f32 = false;             // vectors and convolutions: few elements, read as floats
    // Source of every row (of every element of a vector), counted from first_row; empty: in order.
    std::vector<std::int64_t> row_map;
    std::optional<QuantisedTensor> quantised;  // by MLX: the tensor holds codes, its other planes are here
    float global_scale = 1;          // NAME.scale, or MLX's global_scale
};

struct Resolution {
    std::vector<TensorUse> uses;         // WeightId is the index
    std::vector<std::string> missing;    // required names that the file lacks
    std::vector<std::string> unused;     // names that nothing reads, ignore list excepted
};

// Sets the WeightIds, the head and the parameter count of draft.spec. A tensor
// of another shape than the table says is an Error that prints both.
Resolution resolve_tensors(Draft& draft);

// Source row of every target row within an interleaved q or k tensor of
// `rows` rows: half-split row j*(u/2)+i of a head is stored as row 2i+j, for
// the leading u = `unpermute` rows of each head.
std::vector<std::int64_t> interleaved_rows(std::int64_t rows, int head_dim, int unpermute);

// Rows of DeltaNet tensors that are grouped by key head: [q | k | v | z] of key
// head 0, then of key head 1, ... (in_proj_qkvz), or [b | a] (in_proj_ba).
// Each result puts the rows of its role in the order of heads.
std::vector<std::int64_t> grouped_delta_rows(Role role, const DeltaSpec& delta);

}  // namespace forge
