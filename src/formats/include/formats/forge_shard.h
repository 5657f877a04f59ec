// A shard: the planes of some weights in the order in which they are used, each at a multiple of
// 16 KiB, then an index that describes them, then a footer with the XXH3 of every plane (docs/format.md).
//
//   header (64 bytes) ... plane ... plane ... index, footer
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quant/weight.h"

namespace forge {

inline constexpr std::size_t kPlaneAlignment = 16384;  // a page of Apple's GPUs, four of x86-64

enum class PlaneKind : std::uint8_t { codes, codes_high, scales, offsets, super_scales, super_mins };
inline constexpr int kPlaneKinds = 6;
std::string_view name_of(PlaneKind kind);

struct PackedPlane {
    PlaneKind kind = PlaneKind::codes;
    std::uint64_t offset = 0;  // in the shard
    std::uint64_t stride = 0;  // bytes of a row, or of a tile of sixteen rows
    std::uint64_t bytes = 0;
    std::uint64_t hash = 0;    // XXH3-64
};

// Which weight of the model it is: whole tensor, or which rows of it, in which order.
struct PackedKey {
    std::string name;             // of the tensor in the source
    std::int64_t first_row = 0;
    std::uint64_t row_map = 0;    // hash of the order of rows; 0 = as in the source
    bool floats = false;          // read as f32 (norms, biases)
    auto operator<=>(const PackedKey&) const = default;
};

struct PackedWeight {
    PackedKey key;
    WeightFormat format;
    std::int64_t rows = 0, cols = 0;
    bool tiled = false;
    float global_scale = 1;
    std::vector<PackedPlane> planes;
};

// The planes that a format of this shape has, with strides and sizes; offsets are 0.
std::vector<PackedPlane> packed_planes(const WeightFormat& format, std::int64_t rows, std::int64_t cols, bool tiled);

// Gives every plane its place. Returns the size of the shard.
std::uint64_t lay_out_shard(std::vector<PackedWeight>& weights);
// What stands before and after the planes of a shard that is laid out; the footer takes the planes' hashes.
std::string shard_header(const std::vector<PackedWeight>& weights);
std::string shard_tail(const std::vector<PackedWeight>& weights);  // from the end of the last plane on
std::uint64_t shard_index_hash(const std::vector<PackedWeight>& weights);

struct ShardIndex {
    std::vector<PackedWeight> weights;
    std::uint64_t index_hash = 0;
};
// Checks everything but the planes' contents. Errors name `source` and what is wrong.
ShardIndex read_shard(std::span<const std::byte> bytes, const std::string& source);

}  // namespace forge
