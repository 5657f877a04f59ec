#include "quant/gguf_blocks.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"

namespace forge {
namespace {

static_assert(std::endian::native == std::endian::little, "block fields are read as little-endian");

struct TypeInfo {
    std::uint32_t id;
    std::string_view name;
    BlockSize size;
    bool decodable;
};

// Every type id that GGUF defines. Types that are not decodable have a size,
// so that a file that holds one can still be opened.
constexpr TypeInfo types[] = {
    {0, "f32", {1, 4}, true},         {1, "f16", {1, 2}, true},         {2, "q4_0", {32, 18}, true},
    {3, "q4_1", {32, 20}, true},      {6, "q5_0", {32, 22}, true},      {7, "q5_1", {32, 24}, true},
    {8, "q8_0", {32, 34}, true},      {9, "q8_1", {32, 36}, false},     {10, "q2_k", {256, 84}, true},
    {11, "q3_k", {256, 110}, true},   {12, "q4_k", {256, 144}, true},   {13, "q5_k", {256, 176}, true},
    {14, "q6_k", {256, 210}, true},   {15, "q8_k", {256, 292}, false},  {16, "iq2_xxs", {256, 66}, false},
    {17, "iq2_xs", {256, 74}, false}, {18, "iq3_xxs", {256, 98}, false}, {19, "iq1_s", {256, 50}, false},
    {20, "iq4_nl", {32, 18}, true},   {21, "iq3_s", {256, 110}, false}, {22, "iq2_s", {256, 82}, false},
    {23, "iq4_xs", {256, 136}, true}, {24, "i8", {1, 1}, false},        {25, "i16", {1, 2}, false},
    {26, "i32", {1, 4}, false},       {27, "i64", {1, 8}, false},       {28, "f64", {1, 8}, false},
    {29, "iq1_m", {256, 56}, false},  {30, "bf16", {1, 2}, true},       {34, "tq1_0", {256, 54}, false},
    {35, "tq2_0", {256, 66}, true},   {39, "mxfp4", {32, 17}, true},    {40, "nvfp4", {64, 36}, true},
    {41, "q1_0", {128, 18}, false},   {42, "q2_0", {64, 18}, false},
};

const TypeInfo* find_type(std::uint32_t id) {
    for (const TypeInfo& type : types)
        if (type.id == id) return &type;
    return nullptr;
}

// For ids without an entry: gguf_type_name returns views, which need storage.
std::string_view unknown_type_name(std::uint32_t id) {
    thread_local std::string name;
    name = fmt::format("type {}", id);
    return name;
}

// All readers take the block as bytes: block sizes are not multiples of 4, so
// fields may lie anywhere.
using Bytes = const std::uint8_t*;

std::uint16_t u16_at(Bytes p) { std::uint16_t v; std::memcpy(&v, p, 2); return v; }
std::uint32_t u32_at(Bytes p) { std::uint32_t v; std::memcpy(&v, p, 4); return v; }
float f32_at(Bytes p) { return std::bit_cast<float>(u32_at(p)); }
float half_at(Bytes p) { return f16_to_f32(u16_at(p)); }
int i8_at(Bytes p) { return static_cast<std::int8_t>(*p); }

// The nibble of element i in a 32-element block: low nibbles are the first
// half, high nibbles the second.
int nibble(Bytes qs, int i) { return (qs[i % 16] >> (4 * (i / 16))) & 15; }

void decode_q4_0(Bytes b, float* out) {
    const float d = half_at(b);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(b + 2, i) - 8);
}

void decode_q4_1(Bytes b, float* out) {
    const float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(b + 4, i)) + m;
}

void decode_q5_0(Bytes b, float* out) {
    const float d = half_at(b);
    const std::uint32_t high = u32_at(b + 2);
    for (int i = 0; i < 32; ++i) {
        const int q = nibble(b + 6, i) | static_cast<int>((high >> i) & 1) << 4;
        out[i] = d * static_cast<float>(q - 16);
    }
}

void decode_q5_1(Bytes b, float* out) {
    const float d = half_at(b), m = half_at(b + 2);
    const std::uint32_t high = u32_at(b + 4);
    for (int i = 0; i < 32; ++i) {
        const int q = nibble(b + 8, i) | static_cast<int>((high >> i) & 1) << 4;
        out[i] = d * static_cast<float>(q) + m;
    }
}

void decode_q8_0(Bytes b, float* out) {
    const float d = half_at(b);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(i8_at(b + 2 + i));
}

// Two bits of element i where 128 elements share 32 bytes, 32 elements a bit pair.
int crumb(Bytes qs, int i) { return (qs[32 * (i / 128) + i % 32] >> (2 * ((i % 128) / 32))) & 3; }

void decode_q2_k(Bytes b, float* out) {
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    for (int group = 0; group < 16; ++group) {
        const float scale = d * static_cast<float>(b[group] & 15);
        const float minimum = dmin * static_cast<float>(b[group] >> 4);
        for (int i = 16 * group; i < 16 * group + 16; ++i)
            out[i] = scale * static_cast<float>(crumb(b + 16, i)) - minimum;
    }
}

void decode_q3_k(Bytes b, float* out) {
    const Bytes mask = b, qs = b + 32, sc = b + 96;
    const float d = half_at(b + 108);
    for (int group = 0; group < 16; ++group) {
        const int low = group < 8 ? sc[group] & 15 : sc[group - 8] >> 4;
        const int high = (sc[8 + group % 4] >> (2 * (group / 4))) & 3;
        const float scale = d * static_cast<float>((low | high << 4) - 32);
        for (int i = 16 * group; i < 16 * group + 16; ++i) {
            const int q = crumb(qs, i) | ((mask[i % 32] >> (i / 32)) & 1) << 2;
            out[i] = scale * static_cast<float>(q - 4);
        }
    }
}

// The 6-bit scale and minimum of 32-element group j, of Q4_K and Q5_K's 12 bytes.
struct ScaleMin { int scale, minimum; };
ScaleMin six_bit_pair(Bytes sb, int j) {
    if (j < 4) return {sb[j] & 63, sb[j + 4] & 63};
    return {(sb[j + 4] & 15) | (sb[j - 4] >> 6) << 4, (sb[j + 4] >> 4) | (sb[j] >> 6) << 4};
}

void decode_q4_k(Bytes b, float* out) {
    const float d = half_at(b), dmin = half_at(b + 2);
    for (int j = 0; j < 8; ++j) {
        const ScaleMin pair = six_bit_pair(b + 4, j);
        const float scale = d * static_cast<float>(pair.scale);
        const float minimum = dmin * static_cast<float>(pair.minimum);
        for (int l = 0; l < 32; ++l) {
            const int q = (b[16 + 32 * (j / 2) + l] >> (4 * (j % 2))) & 15;
            out[32 * j + l] = scale * static_cast<float>(q) - minimum;
        }
    }
}

void decode_q5_k(Bytes b, float* out) {
    const float d = half_at(b), dmin = half_at(b + 2);
    for (int j = 0; j < 8; ++j) {
        const ScaleMin pair = six_bit_pair(b + 4, j);
        const float scale = d * static_cast<float>(pair.scale);
        const float minimum = dmin * static_cast<float>(pair.minimum);
        for (int l = 0; l < 32; ++l) {
            const int low = (b[48 + 32 * (j / 2) + l] >> (4 * (j % 2))) & 15;
            const int q = low + 16 * ((b[16 + l] >> j) & 1);
            out[32 * j + l] = scale * static_cast<float>(q) - minimum;
        }
    }
}

void decode_q6_k(Bytes b, float* out) {
    const Bytes ql = b, qh = b + 128, sc = b + 192;
    const float d = half_at(b + 208);
    for (int i = 0; i < 256; ++i) {
        const int n = i / 128, g = (i % 128) / 32, l = i % 32;
        const int low = (ql[64 * n + 32 * (g % 2) + l] >> (4 * (g / 2))) & 15;
        const int q = low | ((qh[32 * n + l] >> (2 * g)) & 3) << 4;
        out[i] = (d * static_cast<float>(i8_at(sc + i / 16))) * static_cast<float>(q - 32);
    }
}

constexpr float iq4nl_table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// e2m1 values times two, which makes them integers. Code 8 is +0 here, as in GGUF.
constexpr float e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void decode_iq4_nl(Bytes b, float* out) {
    const float d = half_at(b);
    for (int i = 0; i < 32; ++i) out[i] = d * iq4nl_table[nibble(b + 2, i)];
}

void decode_iq4_xs(Bytes b, float* out) {
    const float d = half_at(b);
    const int high = u16_at(b + 2);
    for (int j = 0; j < 8; ++j) {
        const int scale = ((b[4 + j / 2] >> (4 * (j % 2))) & 15) | ((high >> (2 * j)) & 3) << 4;
        const float s = d * static_cast<float>(scale - 32);
        for (int l = 0; l < 32; ++l) out[32 * j + l] = s * iq4nl_table[nibble(b + 8 + 16 * j, l)];
    }
}

// 2^(e-128): half of what the e8m0 byte says, because the table is doubled.
float e8m0_half(std::uint8_t e) {
    if (e < 2) return std::bit_cast<float>(0x00200000u << e);  // float subnormals
    return std::bit_cast<float>(static_cast<std::uint32_t>(e - 1) << 23);
}

void decode_mxfp4(Bytes b, float* out) {
    const float scale = e8m0_half(b[0]);
    for (int i = 0; i < 32; ++i) out[i] = scale * e2m1_doubled[nibble(b + 1, i)];
}

float ue4m3(std::uint8_t x) {
    if (x == 0 || x == 0x7f) return 0.0f;
    const int exponent = (x >> 3) & 15, mantissa = x & 7;
    if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-9f;
    const float power = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - 7 + 127) << 23);
    return (1.0f + static_cast<float>(mantissa) / 8.0f) * power;
}

void decode_nvfp4(Bytes b, float* out) {
    for (int s = 0; s < 4; ++s) {
        const float scale = 0.5f * ue4m3(b[s]);
        for (int l = 0; l < 16; ++l) {
            const int n = (b[4 + 8 * s + l % 8] >> (4 * (l / 8))) & 15;
            out[16 * s + l] = scale * e2m1_doubled[n];
        }
    }
}

void decode_tq2_0(Bytes b, float* out) {
    const float d = half_at(b + 64);
    for (int i = 0; i < 256; ++i) out[i] = d * static_cast<float>(crumb(b, i) - 1);
}

template <void (*decode)(Bytes, float*)>
void decode_blocks(Bytes row, std::int64_t cols, BlockSize size, float* out) {
    for (std::int64_t done = 0; done < cols; done += size.elements, row += size.bytes) decode(row, out + done);
}

}  // namespace

std::string_view gguf_type_name(std::uint32_t type) {
    const TypeInfo* info = find_type(type);
    return info ? info->name : unknown_type_name(type);
}

std::optional<BlockSize> gguf_block_size(std::uint32_t type) {
    const TypeInfo* info = find_type(type);
    return info ? std::optional(info->size) : std::nullopt;
}

bool gguf_decodable(std::uint32_t type) {
    const TypeInfo* info = find_type(type);
    return info && info->decodable;
}

void decode_gguf_row(GgufType type, const std::byte* row, std::int64_t cols, float* out) {
    const TypeInfo* info = find_type(static_cast<std::uint32_t>(type));
    if (!info || !info->decodable)
        fail(ErrorKind::unsupported, "tensor type {} cannot be decoded by this version of Forge",
             gguf_type_name(static_cast<std::uint32_t>(type)));
    if (cols < 0 || cols % info->size.elements != 0)
        fail(ErrorKind::internal, "a row of {} elements is not a whole number of {} blocks of {} elements", cols,
             info->name, info->size.elements);
    const Bytes b = reinterpret_cast<Bytes>(row);
    const BlockSize size = info->size;
    switch (type) {
        case GgufType::f32: for (std::int64_t i = 0; i < cols; ++i) out[i] = f32_at(b + 4 * i); return;
        case GgufType::f16: for (std::int64_t i = 0; i < cols; ++i) out[i] = half_at(b + 2 * i); return;
        case GgufType::bf16: for (std::int64_t i = 0; i < cols; ++i) out[i] = bf16_to_f32(u16_at(b + 2 * i)); return;
        case GgufType::q4_0: return decode_blocks<decode_q4_0>(b, cols, size, out);
        case GgufType::q4_1: return decode_blocks<decode_q4_1>(b, cols, size, out);
        case GgufType::q5_0: return decode_blocks<decode_q5_0>(b, cols, size, out);
        case GgufType::q5_1: return decode_blocks<decode_q5_1>(b, cols, size, out);
        case GgufType::q8_0: return decode_blocks<decode_q8_0>(b, cols, size, out);
        case GgufType::q2_k: return decode_blocks<decode_q2_k>(b, cols, size, out);
        case GgufType::q3_k: return decode_blocks<decode_q3_k>(b, cols, size, out);
        case GgufType::q4_k: return decode_blocks<decode_q4_k>(b, cols, size, out);
        case GgufType::q5_k: return decode_blocks<decode_q5_k>(b, cols, size, out);
        case GgufType::q6_k: return decode_blocks<decode_q6_k>(b, cols, size, out);
        case GgufType::iq4_nl: return decode_blocks<decode_iq4_nl>(b, cols, size, out);
        case GgufType::iq4_xs: return decode_blocks<decode_iq4_xs>(b, cols, size, out);
        case GgufType::tq2_0: return decode_blocks<decode_tq2_0>(b, cols, size, out);
        case GgufType::mxfp4: return decode_blocks<decode_mxfp4>(b, cols, size, out);
        case GgufType::nvfp4: return decode_blocks<decode_nvfp4>(b, cols, size, out);
    }
}

}  // namespace forge
