// K-quants: first every sub-block is fitted on its own, then the sub-block
// scales (and minima) are rounded to multiples of the block's f16 scale, then
// the codes are taken against what is stored.
#include "gguf_encode_k.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "encode_fit.h"

namespace forge {
namespace {

using Out = std::uint8_t*;

void put_half(Out b, std::uint16_t half) { std::memcpy(b, &half, 2); }
float inverse_of(float scale) { return scale != 0 ? 1.0f / scale : 0.0f; }

// Rounds n non-negative values to codes 0..most times an f16 unit.
std::uint16_t quantise_levels(const float* values, int n, int most, int* codes) {
    const float largest = *std::max_element(values, values + n);
    const std::uint16_t unit = finite_half(largest / static_cast<float>(most));
    const float inverse = inverse_of(f16_to_f32(unit));
    for (int i = 0; i < n; ++i) codes[i] = nearest_in(values[i] * inverse, 0, most);
    return unit;
}

// A block of groups with scale and minimum each: the stored units, the groups'
// levels and the elements' codes.
template <int group_size>
struct AffineBlock {
    static constexpr int groups = 256 / group_size;
    std::uint16_t d, dmin;
    int scale[groups], minimum[groups];
    int code[256];

    AffineBlock(const float* x, int code_max, int level_max) {
        float scales[groups], minima[groups];
        for (int g = 0; g < groups; ++g) {
            const AffineFit fit = fit_affine(x + g * group_size, group_size, code_max);
            scales[g] = fit.scale;
            minima[g] = fit.minimum;
        }
        d = quantise_levels(scales, groups, level_max, scale);
        dmin = quantise_levels(minima, groups, level_max, minimum);
        for (int g = 0; g < groups; ++g) {
            const float inverse = inverse_of(f16_to_f32(d) * static_cast<float>(scale[g]));
            const float offset = f16_to_f32(dmin) * static_cast<float>(minimum[g]);
            for (int i = g * group_size; i < (g + 1) * group_size; ++i)
                code[i] = nearest_in((x[i] + offset) * inverse, 0, code_max);
        }
    }
};

// Sixteen groups of 16 with a signed scale each.
struct SymmetricBlock {
    std::uint16_t d;
    int scale[16];
    int code[256];  // in [lo, hi]

    // Scales become codes in [-level_max, level_max].
    SymmetricBlock(const float* x, int lo, int hi, int level_max) {
        float scales[16], largest = 0;
        for (int g = 0; g < 16; ++g) {
            scales[g] = fit_scale(x + 16 * g, 16, lo, hi);
            largest = std::max(largest, std::fabs(scales[g]));
        }
        d = finite_half(largest / static_cast<float>(level_max));
        const float unit = f16_to_f32(d), inverse_unit = inverse_of(unit);
        for (int g = 0; g < 16; ++g) {
            scale[g] = nearest_in(scales[g] * inverse_unit, -level_max, level_max);
            const float inverse = inverse_of(unit * static_cast<float>(scale[g]));
            for (int i = 16 * g; i < 16 * g + 16; ++i) code[i] = nearest_in(x[i] * inverse, lo, hi);
        }
    }
};

void clear(Out b, std::size_t bytes) { std::memset(b, 0, bytes); }

void or_byte(Out b, int bits) { *b = static_cast<std::uint8_t>(*b | bits); }

// Two bits of element i: 128 elements share 32 bytes, 32 elements a bit pair.
void or_crumb(Out qs, int i, int bits) {
    or_byte(qs + 32 * (i / 128) + i % 32, bits << (2 * ((i % 128) / 32)));
}

// Eight 6-bit scales and minima in 12 bytes: the first four whole, the high
// bits of the other four in their top bits.
void put_six_bit_pairs(Out sb, const int* scale, const int* minimum) {
    for (int j = 0; j < 4; ++j) {
        sb[j] = static_cast<std::uint8_t>(scale[j] | (scale[j + 4] >> 4) << 6);
        sb[j + 4] = static_cast<std::uint8_t>(minimum[j] | (minimum[j + 4] >> 4) << 6);
        sb[j + 8] = static_cast<std::uint8_t>((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
    }
}

// The low nibbles of Q4_K and Q5_K: groups 2j and 2j+1 share 32 bytes.
void or_group_nibble(Out qs, int i, int nibble) {
    const int j = i / 32;
    or_byte(qs + 32 * (j / 2) + i % 32, nibble << (4 * (j % 2)));
}

}  // namespace

void encode_q2_k(const float* x, Out b) {
    const AffineBlock<16> block(x, 3, 15);
    clear(b, 84);
    for (int g = 0; g < 16; ++g) b[g] = static_cast<std::uint8_t>(block.scale[g] | block.minimum[g] << 4);
    for (int i = 0; i < 256; ++i) or_crumb(b + 16, i, block.code[i]);
    put_half(b + 80, block.d);
    put_half(b + 82, block.dmin);
}

void encode_q3_k(const float* x, Out b) {
    const SymmetricBlock block(x, -4, 3, 31);
    clear(b, 110);
    for (int i = 0; i < 256; ++i) {
        const int q = block.code[i] + 4;
        or_crumb(b + 32, i, q & 3);
        or_byte(b + i % 32, (q >> 2) << (i / 32));
    }
    for (int g = 0; g < 16; ++g) {
        const int s = block.scale[g] + 32;
        or_byte(b + 96 + g % 8, (s & 15) << (4 * (g / 8)));
        or_byte(b + 104 + g % 4, (s >> 4) << (2 * (g / 4)));
    }
    put_half(b + 108, block.d);
}

void encode_q4_k(const float* x, Out b) {
    const AffineBlock<32> block(x, 15, 63);
    clear(b, 144);
    put_half(b, block.d);
    put_half(b + 2, block.dmin);
    put_six_bit_pairs(b + 4, block.scale, block.minimum);
    for (int i = 0; i < 256; ++i) or_group_nibble(b + 16, i, block.code[i]);
}

void encode_q5_k(const float* x, Out b) {
    const AffineBlock<32> block(x, 31, 63);
    clear(b, 176);
    put_half(b, block.d);
    put_half(b + 2, block.dmin);
    put_six_bit_pairs(b + 4, block.scale, block.minimum);
    for (int i = 0; i < 256; ++i) {
        or_group_nibble(b + 48, i, block.code[i] & 15);
        or_byte(b + 16 + i % 32, (block.code[i] >> 4) << (i / 32));
    }
}

void encode_q6_k(const float* x, Out b) {
    const SymmetricBlock block(x, -32, 31, 127);
    clear(b, 210);
    for (int i = 0; i < 256; ++i) {
        const int q = block.code[i] + 32;
        const int n = i / 128, g = (i % 128) / 32, l = i % 32;
        or_byte(b + 64 * n + 32 * (g % 2) + l, (q & 15) << (4 * (g / 2)));
        or_byte(b + 128 + 32 * n + l, (q >> 4) << (2 * g));
    }
    for (int g = 0; g < 16; ++g)
        b[192 + g] = static_cast<std::uint8_t>(static_cast<std::int8_t>(block.scale[g]));
    put_half(b + 208, block.d);
}

}  // namespace forge
