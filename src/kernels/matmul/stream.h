// Where the codes of a row start, unpacked first when the stream's width asks for it.
#pragma once

#include "matmul/codec.h"
#include "quant/weight.h"

namespace forge::FORGE_SIMD {

// A stream of any width to one byte a code; count is a multiple of 8, and eight codes are `bits` bytes.
#ifdef FORGE_TARGET_AVX512
inline void unpack_stream(const std::uint8_t* stream, int bits, std::int64_t count, std::uint8_t* out) {
    // Eight bytes of the stream from each eight codes on, then the codes by their bit numbers.
    alignas(64) std::uint8_t from[64];
    for (int i = 0; i < 64; ++i) from[i] = static_cast<std::uint8_t>(i / 8 * bits + i % 8);
    const __m512i spread = _mm512_load_si512(from);
    std::uint64_t starts = 0;
    for (int i = 0; i < 8; ++i) starts |= static_cast<std::uint64_t>(i * bits) << (8 * i);
    const __m512i start = _mm512_set1_epi64(static_cast<long long>(starts));
    const __m512i mask = _mm512_set1_epi8(static_cast<char>((1 << bits) - 1));
    const auto codes = [&](__m512i raw) __attribute__((always_inline)) {
        return _mm512_and_si512(_mm512_multishift_epi64_epi8(start, _mm512_permutexvar_epi8(spread, raw)),
                                mask);
    };
    const __mmask64 whole = (std::uint64_t{1} << (8 * bits)) - 1;  // bytes of 64 codes
    std::int64_t e = 0;
    for (; e + 64 <= count; e += 64, stream += 8 * bits)
        _mm512_storeu_si512(out + e, codes(_mm512_maskz_loadu_epi8(whole, stream)));
    if (e < count) {
        const int left = static_cast<int>(count - e);
        _mm512_mask_storeu_epi8(out + e, (std::uint64_t{1} << left) - 1,
                                codes(load_ints(stream, left / 8 * bits).v));
    }
}
#else
inline void unpack_stream(const std::uint8_t* stream, int bits, std::int64_t count, std::uint8_t* out) {
    const std::uint64_t mask = (1u << bits) - 1;
    for (std::int64_t e = 0; e < count; e += 8, stream += bits) {
        std::uint64_t eight = 0;
        if (e + 64 <= count)
            std::memcpy(&eight, stream, 8);  // inside the row
        else
            std::memcpy(&eight, stream, static_cast<std::size_t>(bits));
        for (int i = 0; i < 8; ++i) out[e + i] = static_cast<std::uint8_t>(eight >> (i * bits) & mask);
    }
}
#endif

// Codes of row `row` from column `from` (a multiple of 256) on; `unpacked` holds `count` bytes.
inline RowCodes row_codes(const Weight& w, std::int64_t row, std::int64_t from, std::int64_t count,
                          std::uint8_t* unpacked) {
    const auto plane = [row](const Plane& p) {
        return reinterpret_cast<const std::uint8_t*>(p.data) + static_cast<std::size_t>(row) * p.stride;
    };
    const std::uint8_t* low = plane(w.codes);
    const std::uint8_t* high = w.codes_high.data ? plane(w.codes_high) : nullptr;
    switch (w.format.packing) {
        case Packing::dense:
        case Packing::stream:
            low += from * w.format.bits / 8;
            break;
        case Packing::split_4_1:
            low += from / 2, high += from / 128 * 16;
            break;
        case Packing::split_4_2:
            low += from / 2, high += from / 256 * 64;
            break;
        case Packing::split_2_1:
            low += from / 4, high += from / 256 * 32;
            break;
    }
    if (needs_unpacking(w.format)) {
        unpack_stream(low, w.format.bits, count, unpacked);
        low = unpacked;
    }
    return {low, high};
}

}  // namespace forge::FORGE_SIMD
