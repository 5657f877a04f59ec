// The small binary blobs of a .forge model: typed key-value pairs, and the list of the source's
// tensors (docs/format.md).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/metadata.h"
#include "formats/model_file.h"

namespace forge {

// The pairs whose key `wanted` likes, sorted by key.
std::string encode_pairs(const Metadata& metadata, const std::function<bool(std::string_view)>& wanted);
// Adds to `out`; a key that is there already is an Error.
void decode_pairs(std::span<const std::byte> bytes, const std::string& source, Metadata& out);

// Names, shapes and types; with the data where `keep` says so.
std::string encode_tensor_list(std::span<const Tensor> tensors, const std::function<bool(const Tensor&)>& keep);
// Tensors whose data was not kept have an empty span.
std::vector<Tensor> decode_tensor_list(std::span<const std::byte> bytes, const std::string& source);

}  // namespace forge
