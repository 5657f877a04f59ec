// Weights as planes: flat arrays that a kernel reads with wide loads, row by row
// (or, for the CPU, in tiles: quant/tiles.h). Every GGUF and MLX format maps onto
// these fields exactly.
//
// A weight is a matrix W[rows, cols] (y = W x); groups run along a row.
// A quantised element is   w = S[group] * T(code) - or + B[group]
// with T from CodeMap, S from ScaleKind, B from OffsetKind (docs/formats.md
// has one line per GGUF type).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"

namespace forge {

enum class CodeMap : std::uint8_t {
    dense,    // no codes: plane `codes` holds elements of `dense_type`
    integer,  // T(q) = q - zero
    iq4nl,    // 16-entry table of IQ4_NL and IQ4_XS
    e2m1,     // fp4: 0 .5 1 1.5 2 3 4 6 and their negatives (MXFP4, NVFP4)
    e4m3,     // fp8 (MXFP8)
};

enum class ScaleKind : std::uint8_t {
    none,     // dense
    f16, bf16, f32,  // one float of that type per group
    sub_u8,   // super f16 per 256 elements times an unsigned byte per group (Q4_K, Q5_K)
    sub_i8,   // super f16 per 256 elements times a signed byte per group (Q3_K, Q6_K, IQ4_XS: byte already minus 32)
    sub_u4,   // Q2_K: byte per group, low nibble scale (and high nibble minimum), super f16 per 256
    e8m0,     // 2^(byte-127) per group
    ue4m3,    // e4m3 byte per group, times Weight::global_scale (NVFP4)
};

enum class OffsetKind : std::uint8_t {
    none,
    bias,      // + bias[group], same float type as the scale (affine)
    sub_u8,    // - (super_min f16) * (byte per group)  (Q4_K, Q5_K)
    sub_u4,    // - (super_min f16) * (high nibble of the scale byte)  (Q2_K)
};

// How codes lie in memory. A row always starts at row * stride of its plane.
enum class Packing : std::uint8_t {
    dense,
    // One little-endian bit stream a row (MLX order): code e is stream bits
    // [e*bits, (e+1)*bits). 1, 2, 4, 8 bits never straddle a byte.
    stream,
    // Low bits as a stream of 4 (or 2) bits in `codes`, high bits in `codes_high`:
    split_4_1,  // 5 bits. High: per 128 elements four u32 masks; bit w of mask j is element 4*w+j.
    split_4_2,  // 6 bits. High: per 256 elements 64 bytes; byte 2*w+h holds elements 128*h+4*w+(0..3), 2 bits each, first lowest.
    split_2_1,  // 3 bits. High: per 256 elements eight u32 masks; bit w of mask j is element 8*w+j.
};

struct WeightFormat {
    CodeMap map = CodeMap::dense;
    DType dense_type = DType::f32;
    Packing packing = Packing::dense;
    std::uint8_t bits = 32;       // of a code; for dense, of an element
    std::uint16_t group = 0;      // elements a scale serves: 16, 32, 64, 128, 256; 0 for dense
    std::uint8_t zero = 0;        // integer map
    ScaleKind scale = ScaleKind::none;
    OffsetKind offset = OffsetKind::none;

    bool is_dense() const { return map == CodeMap::dense; }
    bool operator==(const WeightFormat&) const = default;
};

// Bytes of a group's scale, and of its offset where that has a plane.
constexpr std::size_t scale_bytes(ScaleKind kind) {
    return kind == ScaleKind::f16 || kind == ScaleKind::bf16 ? 2 : kind == ScaleKind::f32 ? 4 : 1;
}

// "bf16", "q4/32 f16 z8", ... : one word for tables and kernel names.
std::string describe(const WeightFormat& format);

// How the planes of a matrix lie: row by row, or in tiles of sixteen rows (quant/tiles.h).
// `tiles` is for weights that are converted anyway; `tiles_by_copy` also copies planes into tiles that could be
// mapped (--repack).
enum class WeightLayout : std::uint8_t { rows, tiles, tiles_by_copy };

struct Plane {
    const std::byte* data = nullptr;
    std::size_t stride = 0;  // bytes from one row to the next; the last row is stride bytes long too
};

struct Weight {
    std::string name;             // as in the source file, for messages
    WeightFormat format;
    std::int64_t rows = 0, cols = 0;   // a vector is one row
    bool tiled = false;           // `codes` holds all planes in tiles of sixteen rows (quant/tiles.h), the others are absent
    Plane codes, codes_high;
    Plane scales;                 // float per group, or byte per group (sub_*, e8m0, ue4m3)
    Plane offsets;                // bias: float per group; sub_u8: byte per group
    Plane super_scales, super_mins;    // f16 per 256 elements
    float global_scale = 1.0f;    // multiplies every element (NVFP4 second level, GGUF NAME.scale)
    std::shared_ptr<const void> owner;  // mapping or converted planes; keeps `data` alive

    // Bytes that one pass over the matrix reads: all planes.
    std::size_t bytes() const;
};

// Bytes a row takes in each plane when planes are packed tightly (the layout
// that conversions make). Zero for planes that the format does not have.
struct PlaneStrides { std::size_t codes, codes_high, scales, offsets, super_scales, super_mins; };
PlaneStrides tight_strides(const WeightFormat& format, std::int64_t cols);

// Plain reference: one row as floats, in the order of evaluation that is
// bit-equal with the format's definition ((d*scale)*q, then minus (dmin*min)).
void decode_row(const Weight& weight, std::int64_t row, float* out);

}  // namespace forge
