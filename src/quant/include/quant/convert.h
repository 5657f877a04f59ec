// GGUF blocks -> planes, exactly.
#pragma once

#include "quant/gguf_blocks.h"
#include "quant/weight.h"

namespace forge {

// The plane format that holds a block type exactly.
// Throws Error(unsupported) naming the type otherwise.
WeightFormat format_of_gguf(GgufType type, const std::string& tensor_name);

// Converts rows [first, last) of a GGUF tensor with `cols` columns from `source`
// (first byte of row 0) into the planes of `target`, whose strides are tight, or into its tiles; then
// `first` begins a tile and `last` ends one or the weight.
// row_map: when not null, target row r takes source row row_map[r].
void convert_gguf_rows(GgufType type, const std::byte* source, std::int64_t first, std::int64_t last,
                       const std::int64_t* row_map, Weight& target);

// Allocates the tight planes of a format in one block owned by the weight.
void allocate_planes(Weight& weight);

}  // namespace forge
