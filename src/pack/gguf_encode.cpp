// Types with 32-element blocks, and the choice by type. gguf_encode_k.cpp has
// the 256-element ones.
#include "pack/gguf_encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/float16.h"
#include "encode_fit.h"
#include "gguf_encode_k.h"

namespace forge {
namespace {

using Out = std::uint8_t*;

void put_half(Out b, std::uint16_t half) { std::memcpy(b, &half, 2); }

float inverse_of(float scale) { return scale != 0 ? 1.0f / scale : 0.0f; }

// Codes 0..15 of 32 elements: first half in the low nibbles, second in the high.
void put_nibbles(Out qs, const int* codes) {
    for (int i = 0; i < 16; ++i) qs[i] = static_cast<std::uint8_t>(codes[i] | codes[i + 16] << 4);
}

// The low four bits as nibbles, the fifth in a mask.
void put_five_bits(Out mask, Out qs, const int* codes) {
    std::uint32_t high = 0;
    int low[32];
    for (int i = 0; i < 32; ++i) {
        low[i] = codes[i] & 15;
        high |= static_cast<std::uint32_t>(codes[i] >> 4) << i;
    }
    std::memcpy(mask, &high, 4);
    put_nibbles(qs, low);
}

// Symmetric types: code = round(x / d) + zero, with d as stored.
void symmetric_codes(const float* x, int zero, std::uint16_t& d, int* codes) {
    d = finite_half(fit_scale(x, 32, -zero, zero - 1));
    const float inverse = inverse_of(f16_to_f32(d));
    for (int i = 0; i < 32; ++i) codes[i] = nearest_in(x[i] * inverse, -zero, zero - 1) + zero;
}

void encode_q4_0(const float* x, Out b) {
    int codes[32];
    std::uint16_t d;
    symmetric_codes(x, 8, d, codes);
    put_half(b, d);
    put_nibbles(b + 2, codes);
}

void encode_q5_0(const float* x, Out b) {
    int codes[32];
    std::uint16_t d;
    symmetric_codes(x, 16, d, codes);
    put_half(b, d);
    put_five_bits(b + 2, b + 6, codes);
}

// x = d q + m where m may have either sign: the fit wants minima <= 0, so it
// is given the values relative to their smallest.
void offset_codes(const float* x, int hi, std::uint16_t& d, std::uint16_t& m, int* codes) {
    const float least = *std::min_element(x, x + 32);
    float shifted[32];
    for (int i = 0; i < 32; ++i) shifted[i] = x[i] - least;
    const AffineFit fit = fit_affine(shifted, 32, hi);
    d = finite_half(fit.scale);
    m = finite_half(least - fit.minimum);
    const float inverse = inverse_of(f16_to_f32(d)), offset = f16_to_f32(m);
    for (int i = 0; i < 32; ++i) codes[i] = nearest_in((x[i] - offset) * inverse, 0, hi);
}

void encode_q4_1(const float* x, Out b) {
    int codes[32];
    std::uint16_t d, m;
    offset_codes(x, 15, d, m, codes);
    put_half(b, d);
    put_half(b + 2, m);
    put_nibbles(b + 4, codes);
}

void encode_q5_1(const float* x, Out b) {
    int codes[32];
    std::uint16_t d, m;
    offset_codes(x, 31, d, m, codes);
    put_half(b, d);
    put_half(b + 2, m);
    put_five_bits(b + 4, b + 8, codes);
}

// 8 bits leave nothing to search for: the largest value becomes 127.
void encode_q8_0(const float* x, Out b) {
    float largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    const std::uint16_t d = finite_half(largest / 127.0f);
    put_half(b, d);
    const float inverse = inverse_of(f16_to_f32(d));
    for (int i = 0; i < 32; ++i) b[2 + i] = static_cast<std::uint8_t>(nearest_in(x[i] * inverse, -127, 127));
}

constexpr float iq4nl_table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

int nearest_entry(float x) {
    int best = 0;
    for (int code = 1; code < 16; ++code)
        if (x > 0.5f * (iq4nl_table[code - 1] + iq4nl_table[code])) best = code;
    return best;
}

void encode_iq4_nl(const float* x, Out b) {
    float extreme = 0;
    for (int i = 0; i < 32; ++i)
        if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
    float best_scale = 0, best_gain = -1;
    if (std::fabs(extreme) > 1e-30f) {
        for (int step = -7; step <= 7; ++step) {
            const float inverse = (iq4nl_table[0] + 2.0f * static_cast<float>(step)) / extreme;
            float xt = 0, tt = 0;
            for (int i = 0; i < 32; ++i) {
                const float t = iq4nl_table[nearest_entry(inverse * x[i])], w = x[i] * x[i];
                xt += w * x[i] * t;
                tt += w * t * t;
            }
            if (tt > 0 && xt * xt > best_gain * tt) {
                best_gain = xt * xt / tt;
                best_scale = xt / tt;
            }
        }
    }
    const std::uint16_t d = finite_half(best_scale);
    put_half(b, d);
    const float inverse = inverse_of(f16_to_f32(d));
    int codes[32];
    for (int i = 0; i < 32; ++i) codes[i] = nearest_entry(x[i] * inverse);
    put_nibbles(b + 2, codes);
}

// Magnitude code 0..7 of e2m1, nearest; |x| already in units of the scale.
int e2m1_code(float x) {
    constexpr float bounds[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    int code = 0;
    while (code < 7 && x > bounds[code]) ++code;
    return code;
}

// The power of two that puts the largest value at 4..8, or the one above:
// whichever loses less.
void encode_mxfp4(const float* x, Out b) {
    constexpr float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    float largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    int exponent = 0;
    if (largest > 0 && largest <= 3e38f) std::frexp(largest, &exponent);  // largest in [2^(e-1), 2^e)
    float best_error = -1;
    for (int e : {exponent - 3, exponent - 2}) {
        const int byte = std::clamp(e + 127, 0, 254);
        const float scale = std::ldexp(1.0f, byte - 127), inverse = std::ldexp(1.0f, 127 - byte);
        int codes[32];
        float error = 0;
        for (int i = 0; i < 32; ++i) {
            const int magnitude = e2m1_code(std::fabs(x[i]) * inverse);
            codes[i] = magnitude == 0 ? 0 : magnitude | (x[i] < 0 ? 8 : 0);
            const float difference = std::fabs(x[i]) - scale * values[magnitude];
            error += difference * difference;
        }
        if (best_error >= 0 && !(error < best_error)) continue;
        best_error = error;
        b[0] = static_cast<std::uint8_t>(byte);
        put_nibbles(b + 1, codes);
    }
}

using Encoder = void (*)(const float*, Out);

Encoder encoder_of(GgufType type) {
    switch (type) {
        case GgufType::q4_0:
            return encode_q4_0;
        case GgufType::q4_1:
            return encode_q4_1;
        case GgufType::q5_0:
            return encode_q5_0;
        case GgufType::q5_1:
            return encode_q5_1;
        case GgufType::q8_0:
            return encode_q8_0;
        case GgufType::q2_k:
            return encode_q2_k;
        case GgufType::q3_k:
            return encode_q3_k;
        case GgufType::q4_k:
            return encode_q4_k;
        case GgufType::q5_k:
            return encode_q5_k;
        case GgufType::q6_k:
            return encode_q6_k;
        case GgufType::iq4_nl:
            return encode_iq4_nl;
        case GgufType::mxfp4:
            return encode_mxfp4;
        default:
            return nullptr;
    }
}

bool is_plain(GgufType type) {
    return type == GgufType::f32 || type == GgufType::f16 || type == GgufType::bf16;
}

}  // namespace

bool gguf_encodable(GgufType type) { return is_plain(type) || encoder_of(type) != nullptr; }

void encode_gguf_row(GgufType type, const float* in, std::int64_t cols, std::byte* row) {
    const auto out = reinterpret_cast<Out>(row);
    if (type == GgufType::f32) {
        std::memcpy(out, in, static_cast<std::size_t>(cols) * 4);
        return;
    }
    if (is_plain(type)) {
        for (std::int64_t i = 0; i < cols; ++i)
            put_half(out + 2 * i, type == GgufType::f16 ? f32_to_f16(in[i]) : f32_to_bf16(in[i]));
        return;
    }
    const Encoder encode = encoder_of(type);
    const auto id = static_cast<std::uint32_t>(type);
    if (!encode)
        fail(ErrorKind::unsupported, "tensor type {} cannot be encoded by this version of Forge",
             gguf_type_name(id));
    const BlockSize size = gguf_block_size(id).value();
    if (cols % size.elements != 0)
        fail(ErrorKind::internal, "a row of {} elements is not a whole number of {} blocks of {} elements",
             cols, gguf_type_name(id), size.elements);
    for (std::int64_t done = 0; done < cols; done += size.elements)
        encode(in + done, out + done / size.elements * size.bytes);
}

}  // namespace forge
