// Codes of a block of one row as floats T(code), exactly. Templates over the
// vector width; see CodeKind for the order.
#pragma once

#include <utility>

#include "matmul/ints.h"
#include "matmul/layout.h"
#include "quant/code_maps.h"

namespace forge::FORGE_SIMD {

// Calls fn(integral_constant 0), ..., fn(integral_constant n-1).
template <int n, typename Fn>
FORGE_INLINE void unroll(Fn&& fn) {
    [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
        (fn(std::integral_constant<int, i>{}), ...);
    }
    (std::make_integer_sequence<int, n>{});
}

struct RowCodes {
    const std::uint8_t* low = nullptr;
    const std::uint8_t* high = nullptr;
};

// Bits of a code in the plane of low bits.
constexpr int code_bits(CodeKind kind) {
    switch (kind) {
        case CodeKind::dense_f32:
            return 32;
        case CodeKind::dense_f16:
        case CodeKind::dense_bf16:
            return 16;
        case CodeKind::pairs:
        case CodeKind::pairs_1:
            return 2;
        case CodeKind::bytes:
        case CodeKind::bytes_e4m3:
            return 8;
        default:
            return 4;
    }
}

// Low bits of the last block of a row that ends inside it: a copy that is whole, with codes of
// zero behind, which meet zeros of x. Planes of high bits are whole blocks anyway.
template <CodeKind kind>
struct Tail {
    static constexpr std::int64_t block = steps_of(kind) * kLanes, bytes = block * code_bits(kind) / 8;
    alignas(64) std::uint8_t copy[bytes];
    // Pointer that has the copy at block b.
    const std::uint8_t* take(const std::uint8_t* low, std::int64_t b, std::int64_t valid) {
        std::memset(copy, 0, sizeof copy);
        std::memcpy(copy, low + b * bytes, static_cast<std::size_t>((valid * code_bits(kind) + 7) / 8));
        return copy - b * bytes;
    }
};

// The sixteen values of a code of at most four bits, repeated when it has fewer.
struct SmallTable {
    float values[16];
    explicit SmallTable(const WeightFormat& format) {
        const float zero = format.zero;
        const bool two_bits = format.bits == 2;
        switch (format.map) {
            case CodeMap::iq4nl:
                std::memcpy(values, iq4nl_values.data(), sizeof values);
                break;
            case CodeMap::e2m1:
                std::memcpy(values, e2m1_values.data(), sizeof values);
                break;
            default:
                for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(two_bits ? i & 3 : i) - zero;
        }
    }
};

template <CodeKind kind>
struct Codec;

// All codecs: block (elements), Block, load(row, b): block b, which must be whole (Tail); value<j>(block).

template <typename Element>
struct DenseCodec {
    static constexpr int steps = 8, block = steps * kLanes;
    struct Block {
        F32 v[steps];
    };
    explicit DenseCodec(const WeightFormat&) {}
    FORGE_INLINE Block load(RowCodes row, std::int64_t b) const {
        const Element* p = reinterpret_cast<const Element*>(row.low) + b * block;
        Block out;
        unroll<steps>([&](auto j) __attribute__((always_inline)) { out.v[j] = simd_load(p + j * kLanes); });
        return out;
    }
    template <int j>
    FORGE_INLINE F32 value(const Block& b) const {
        return b.v[j];
    }
    static FORGE_INLINE F32 simd_load(const Element* p) { return forge::FORGE_SIMD::load(p); }
};
template <>
struct Codec<CodeKind::dense_f32> : DenseCodec<float> {
    using DenseCodec::DenseCodec;
};
template <>
struct Codec<CodeKind::dense_f16> : DenseCodec<f16> {
    using DenseCodec::DenseCodec;
};
template <>
struct Codec<CodeKind::dense_bf16> : DenseCodec<bf16> {
    using DenseCodec::DenseCodec;
};

// Codes of `bits` low bits in the stream, `steps` a lane; the base of the others.
template <int bits>
struct StreamBlock {
    static constexpr int steps = 32 / bits, block = steps * kLanes, bytes = 4 * kLanes;
    static FORGE_INLINE U32 load_low(RowCodes row, std::int64_t b) { return load_ints(row.low + b * bytes); }
};

template <>
struct Codec<CodeKind::nibbles> : StreamBlock<4> {
    using Block = U32;
    Table table;
    explicit Codec(const WeightFormat& format) : table(load_table(SmallTable(format).values)) {}
    FORGE_INLINE Block load(RowCodes row, std::int64_t b) const { return load_low(row, b); }
    template <int j>
    FORGE_INLINE F32 value(Block b) const {
        return lookup(table, shift_right<4 * j>(b));
    }
};

template <>
struct Codec<CodeKind::pairs> : StreamBlock<2> {
    using Block = U32;
    Table table;
    explicit Codec(const WeightFormat& format) : table(load_table(SmallTable(format).values)) {}
    FORGE_INLINE Block load(RowCodes row, std::int64_t b) const { return load_low(row, b); }
    template <int j>
    FORGE_INLINE F32 value(Block b) const {
        return lookup(table, shift_right<2 * j>(b));
    }
};

// A bit of a mask whose bit w belongs to lane w: `bit` is the lane's bit number.
FORGE_INLINE U32 mask_bits(const std::uint8_t* masks, int index, U32 bit) {
    std::uint32_t mask;
    std::memcpy(&mask, masks + 4 * index, sizeof mask);
    return (set1(mask) >> bit) & set1(std::uint32_t{1});
}

// Codes of 5 and 3 bits: `bits` low ones, and a mask that has the highest of every `steps / 2`th element.
template <int bits>
struct MaskedCodec : StreamBlock<bits> {
    static constexpr int half = 16 / bits, covered = 32 * half;   // masks, and the elements that they cover
    struct Block {
        U32 low;
        const std::uint8_t* masks;
        U32 bit;
    };  // bit: of the lane's element 0
    F32 zero_point;
    explicit MaskedCodec(const WeightFormat& format) : zero_point(set1(static_cast<float>(format.zero))) {}
    FORGE_INLINE Block load(RowCodes row, std::int64_t b) const {
        const std::int64_t e = b * StreamBlock<bits>::block;
        const U32 lane = lane_index();
        return {StreamBlock<bits>::load_low(row, b), row.high + e / covered * 4 * half,
                (lane + lane) + set1(static_cast<std::uint32_t>(e % covered / half))};
    }
    template <int j>
    FORGE_INLINE F32 value(const Block& b) const {
        const U32 high = mask_bits(b.masks, j % half, j < half ? b.bit : b.bit + set1(std::uint32_t{1}));
        return to_float((shift_right<bits * j>(b.low) & set1((std::uint32_t{1} << bits) - 1)) | shift_left<bits>(high)) -
               zero_point;
    }
};
template <>
struct Codec<CodeKind::nibbles_1> : MaskedCodec<4> {
    using MaskedCodec::MaskedCodec;
};
template <>
struct Codec<CodeKind::pairs_1> : MaskedCodec<2> {
    using MaskedCodec::MaskedCodec;
};

template <>
struct Codec<CodeKind::nibbles_2> : StreamBlock<4> {
    struct Block {
        U32 low, high;
    };  // high: the two bits of element j are 16 * (j / 4) + 2 * (j % 4) up
    F32 zero_point;
    explicit Codec(const WeightFormat& format) : zero_point(set1(static_cast<float>(format.zero))) {}
    static FORGE_INLINE U32 load_high(RowCodes row, std::int64_t b) {
        const std::int64_t e = b * block;
        const U32 raw = load_ints(row.high + e / 256 * 64 + e % 128 / 2);
        return raw >> set1(static_cast<std::uint32_t>(e % 256 / 128 * 8));
    }
    FORGE_INLINE Block load(RowCodes row, std::int64_t b) const {
        return {load_low(row, b), load_high(row, b)};
    }
    template <int j>
    FORGE_INLINE F32 value(const Block& b) const {
        const U32 high = shift_right<16 * (j / 4) + 2 * (j % 4)>(b.high) & set1(std::uint32_t{3});
        return to_float((shift_right<4 * j>(b.low) & set1(std::uint32_t{15})) | shift_left<4>(high)) -
               zero_point;
    }
};

template <>
struct Codec<CodeKind::bytes> : StreamBlock<8> {
    using Block = U32;
    F32 zero_point;
    explicit Codec(const WeightFormat& format) : zero_point(set1(static_cast<float>(format.zero))) {}
    FORGE_INLINE Block load(RowCodes row, std::int64_t b) const { return load_low(row, b); }
    template <int j>
    FORGE_INLINE F32 value(Block b) const {
        return to_float(shift_right<8 * j>(b) & set1(std::uint32_t{255})) - zero_point;
    }
};

template <>
struct Codec<CodeKind::bytes_e4m3> : StreamBlock<8> {
    using Block = U32;
    explicit Codec(const WeightFormat&) {}
    FORGE_INLINE Block load(RowCodes row, std::int64_t b) const { return load_low(row, b); }
    // Exponent and mantissa moved to f32's place are the value * 2^-120, subnormals included.
    template <int j>
    FORGE_INLINE F32 value(Block b) const {
        const U32 code = shift_right<8 * j>(b);
        const F32 magnitude = as_float(shift_left<20>(code & set1(std::uint32_t{127}))) * set1(0x1p120f);
        const F32 sign = as_float(shift_left<24>(code & set1(std::uint32_t{128})));
        const F32 finite = select(equal(magnitude, set1(480.0f)), set1(__builtin_nanf("")), magnitude);
        return copy_sign(finite, sign);
    }
};

}  // namespace forge::FORGE_SIMD
