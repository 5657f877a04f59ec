#include "foreign/blocks.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

namespace metal_emu::foreign {
namespace {

float half_at(const std::uint8_t* p) {
    half h;
    std::memcpy(&h, p, sizeof h);
    return static_cast<float>(h);
}

void expand_f16(const std::uint8_t* p, float* y) { y[0] = half_at(p); }

void expand_q4_0(const std::uint8_t* p, float* y) {
    const float d = half_at(p);
    for (int i = 0; i < 16; i++) {
        y[i] = d * static_cast<float>((p[2 + i] & 15) - 8);
        y[i + 16] = d * static_cast<float>((p[2 + i] >> 4) - 8);
    }
}

void expand_q8_0(const std::uint8_t* p, float* y) {
    const float d = half_at(p);
    for (int i = 0; i < 32; i++) y[i] = d * static_cast<float>(static_cast<std::int8_t>(p[2 + i]));
}

// Scale and minimum of the group of 32, six bits each.
void q4_K_scale(const std::uint8_t* s, int group, int& scale, int& minimum) {
    if (group < 4) {
        scale = s[group] & 63;
        minimum = s[group + 4] & 63;
    } else {
        scale = (s[group + 4] & 15) | ((s[group - 4] >> 6) << 4);
        minimum = (s[group + 4] >> 4) | ((s[group] >> 6) << 4);
    }
}

void expand_q4_K_group(const std::uint8_t* p, int group, float d, float* y) {
    int scale, minimum;
    q4_K_scale(p + 4, group, scale, minimum);
    for (int l = 0; l < 32; l++) {
        const int q = (p[16 + 32 * (group / 2) + l] >> (4 * (group & 1))) & 15;
        y[32 * group + l] = d * static_cast<float>(scale) * static_cast<float>(q) - half_at(p + 2) * static_cast<float>(minimum);
    }
}

void expand_q4_K(const std::uint8_t* p, float* y) {
    for (int group = 0; group < 8; group++) expand_q4_K_group(p, group, half_at(p), y);
}

void expand_q6_K(const std::uint8_t* p, float* y) {
    const float d = half_at(p + 208);
    for (int n = 0; n < 2; n++) {
        const std::uint8_t *low = p + 64 * n, *high = p + 128 + 32 * n;
        const auto* scales = reinterpret_cast<const std::int8_t*>(p) + 192 + 8 * n;
        for (int l = 0; l < 32; l++)
            for (int k = 0; k < 4; k++) {
                const int lo = (low[l + 32 * (k & 1)] >> (4 * (k >> 1))) & 15, hi = (high[l] >> (2 * k)) & 3;
                y[128 * n + 32 * k + l] = d * static_cast<float>(scales[l / 16 + 2 * k]) * static_cast<float>((lo | (hi << 4)) - 32);
            }
    }
}

constexpr BlockType kTypes[] = {{"f16", 1, 2, expand_f16},
                                {"q4_0", 32, 18, expand_q4_0},
                                {"q8_0", 32, 34, expand_q8_0},
                                {"q4_K", 256, 144, expand_q4_K},
                                {"q6_K", 256, 210, expand_q6_K}};

void put_half(std::uint8_t* p, float v) {
    const half h = static_cast<half>(v);
    std::memcpy(p, &h, sizeof h);
}

// Scales of a size that keeps values near one.
void set_scales(Harness& h, const BlockType& t, std::uint8_t* p, bool small) {
    const auto positive = [&] { return std::fabs(h.number()); };
    if (t.values == 1) put_half(p, h.number());
    else if (t.values == 32) put_half(p, (0.02f + 0.02f * positive()) / (t.bytes == 34 ? 16.0f : 1.0f));
    else if (t.bytes == 144) {
        const float size = small ? 0.0002f : 0.002f;
        put_half(p, size * (0.5f + 0.5f * positive()));
        put_half(p + 2, size * positive());
    } else put_half(p + 208, 0.003f * (0.5f + 0.5f * positive()));
}

}  // namespace

const BlockType& block_type(const std::string& name) {
    for (const BlockType& t : kTypes)
        if (name == t.name) return t;
    throw std::runtime_error("no block type " + name);
}

Matrix random_matrix(Harness& h, const BlockType& type, int rows, int columns, bool small_scales) {
    Matrix m;
    const std::size_t per_row = static_cast<std::size_t>(columns / type.values), count = per_row * static_cast<std::size_t>(rows);
    m.row_bytes = per_row * type.bytes;
    m.blocks.resize(count * type.bytes);
    m.values.resize(count * static_cast<std::size_t>(type.values));
    for (std::size_t b = 0; b < count; b++) {
        std::uint8_t* p = &m.blocks[b * type.bytes];
        for (std::size_t i = 0; i < type.bytes; i++) p[i] = static_cast<std::uint8_t>(h.bits());
        set_scales(h, type, p, small_scales);
        type.expand(p, &m.values[b * static_cast<std::size_t>(type.values)]);
    }
    return m;
}

void round_sixteenths(Matrix& m) {
    for (std::size_t b = 0; b < m.blocks.size() / 144; b++) {
        const std::uint8_t* p = &m.blocks[b * 144];
        const float d = static_cast<float>(static_cast<half>(half_at(p) / 16)) * 16;
        for (int group = 1; group < 8; group += 2) expand_q4_K_group(p, group, d, &m.values[b * 256]);
    }
}

}  // namespace metal_emu::foreign
