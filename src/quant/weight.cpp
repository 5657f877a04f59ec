#include "quant/weight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"
#include "quant/code_maps.h"
#include "quant/tiles.h"

namespace forge {
namespace {

std::size_t blocks(std::int64_t cols, std::int64_t block) {
    return static_cast<std::size_t>((cols + block - 1) / block);
}

std::uint16_t load_u16(const std::byte* at) {
    std::uint16_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

std::uint32_t load_u32(const std::byte* at) {
    std::uint32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

float load_float(const std::byte* plane, std::int64_t index, ScaleKind kind) {
    if (kind == ScaleKind::f16) return f16_to_f32(load_u16(plane + 2 * index));
    if (kind == ScaleKind::bf16) return bf16_to_f32(load_u16(plane + 2 * index));
    float value;
    std::memcpy(&value, plane + 4 * index, sizeof value);
    return value;
}

// Code of element e of a row.
unsigned code_at(const WeightFormat& format, const std::byte* codes, const std::byte* high, std::int64_t e) {
    const auto byte = [](const std::byte* plane, std::int64_t i) {
        return std::to_integer<unsigned>(plane[i]);
    };
    switch (format.packing) {
        case Packing::stream: {
            const std::int64_t bit = e * format.bits;
            unsigned window = byte(codes, bit / 8);
            if (bit % 8 + format.bits > 8) window |= byte(codes, bit / 8 + 1) << 8;
            return (window >> (bit % 8)) & ((1u << format.bits) - 1);
        }
        case Packing::split_4_1: {
            const unsigned low = (byte(codes, e / 2) >> (4 * (e % 2))) & 15;
            const std::uint32_t mask = load_u32(high + (e / 128) * 16 + (e % 4) * 4);
            return low | ((mask >> (e % 128 / 4)) & 1) << 4;
        }
        case Packing::split_4_2: {
            const unsigned low = (byte(codes, e / 2) >> (4 * (e % 2))) & 15;
            const std::int64_t in = e % 256;
            const unsigned pairs = byte(high, (e / 256) * 64 + 2 * (in % 128 / 4) + in / 128);
            return low | ((pairs >> (2 * (e % 4))) & 3) << 4;
        }
        case Packing::split_2_1: {
            const unsigned low = (byte(codes, e / 4) >> (2 * (e % 4))) & 3;
            const std::uint32_t mask = load_u32(high + (e / 256) * 32 + (e % 8) * 4);
            return low | ((mask >> (e % 256 / 8)) & 1) << 2;
        }
        case Packing::dense:
            break;
    }
    return 0;
}

float value_of_code(const WeightFormat& format, unsigned code) {
    switch (format.map) {
        case CodeMap::integer:
            return static_cast<float>(static_cast<int>(code) - format.zero);
        case CodeMap::iq4nl:
            return iq4nl_values[code & 15];
        case CodeMap::e2m1:
            return e2m1_values[code & 15];
        case CodeMap::e4m3:
            return e4m3_value(static_cast<std::uint8_t>(code));
        case CodeMap::dense:
            break;
    }
    return 0;
}

struct Affine {
    float scale, minus, plus;
};  // w = scale * T - minus + plus

// Where the numbers of one group lie; null where the format has none.
struct GroupBytes {
    const std::byte *scale, *offset, *super_scale, *super_min;
};

Affine group_values(const WeightFormat& format, const GroupBytes& at) {
    const auto super = [](const std::byte* p) { return f16_to_f32(load_u16(p)); };
    const auto byte = [](const std::byte* p) { return std::to_integer<unsigned>(*p); };
    Affine out{0, 0, 0};
    switch (format.scale) {
        case ScaleKind::f16:
        case ScaleKind::bf16:
        case ScaleKind::f32:
            out.scale = load_float(at.scale, 0, format.scale);
            break;
        case ScaleKind::sub_u8:
            out.scale = super(at.super_scale) * static_cast<float>(byte(at.scale));
            break;
        case ScaleKind::sub_i8:
            out.scale = super(at.super_scale) * static_cast<float>(static_cast<std::int8_t>(byte(at.scale)));
            break;
        case ScaleKind::sub_u4:
            out.scale = super(at.super_scale) * static_cast<float>(byte(at.scale) & 15);
            break;
        case ScaleKind::e8m0:
            out.scale = e8m0_value(static_cast<std::uint8_t>(byte(at.scale)));
            break;
        case ScaleKind::ue4m3:
            out.scale = ue4m3_value(static_cast<std::uint8_t>(byte(at.scale)));
            break;
        case ScaleKind::none:
            break;
    }
    switch (format.offset) {
        case OffsetKind::bias:
            out.plus = load_float(at.offset, 0, format.scale);
            break;
        case OffsetKind::sub_u8:
            out.minus = super(at.super_min) * static_cast<float>(byte(at.offset));
            break;
        case OffsetKind::sub_u4:
            out.minus = super(at.super_min) * static_cast<float>(byte(at.scale) >> 4);
            break;
        case OffsetKind::none:
            break;
    }
    return out;
}

float element(const WeightFormat& format, const Affine& group, unsigned code, float global) {
    float value = group.scale * value_of_code(format, code);
    if (format.offset == OffsetKind::bias)
        value += group.plus;
    else if (format.offset != OffsetKind::none)
        value -= group.minus;
    return global == 1.0f ? value : value * global;
}

// Code of element e of row i in a unit of a tile.
unsigned code_in_unit(const WeightFormat& format, const TileUnit& unit, const std::byte* at, int i, int e) {
    const int chunk = e / unit.chunk, in = e % unit.chunk, half = unit.chunk / 2;
    if (unit.low_bits == 5 || unit.low_bits == 6) {
        const int lines = unit.chunk * unit.low_bits / 32;
        std::uint16_t words[5];
        for (int line = 0; line < lines; ++line)
            std::memcpy(&words[line], at + unit.low + ((chunk * lines + line) * kTiledRows + i) * 4 + in / half * 2, 2);
        return packed_code(unit.low_bits, words, in % half);
    }
    const unsigned low = load_u32(at + unit.low + (chunk * kTiledRows + i) * 4) >> (unit.low_bits * in) & ((1u << unit.low_bits) - 1);
    if (format.bits == unit.low_bits) return low;
    return low | (load_u32(at + unit.high + (chunk * half + in % half) * 4) >> (2 * i + in / half) & 1) << unit.low_bits;
}

void decode_tiled_row(const Weight& weight, std::int64_t row, float* out) {
    const WeightFormat& format = weight.format;
    const std::byte* at = weight.codes.data + static_cast<std::size_t>(row / kTiledRows) * weight.codes.stride;
    const int i = static_cast<int>(row % kTiledRows);
    for (std::int64_t column = 0; column < weight.cols; column += kUnitColumns) {
        const auto columns = static_cast<int>(std::min<std::int64_t>(kUnitColumns, weight.cols - column));
        const TileUnit unit = tile_unit(format, columns);
        for (int first = 0; first < columns; first += format.group) {
            const std::size_t place = static_cast<std::size_t>(first / format.group * kTiledRows + i) * unit.scale_bytes;
            const Affine group = group_values(format, {at + place, at + unit.offsets + place,
                                                       at + unit.super_scales + 2 * i, at + unit.super_mins + 2 * i});
            for (int e = first; e < std::min<int>(first + format.group, columns); ++e)
                out[column + e] = element(format, group, code_in_unit(format, unit, at, i, e), weight.global_scale);
        }
        at += unit.bytes;
    }
}

}  // namespace

std::string describe(const WeightFormat& format) {
    if (format.is_dense()) return std::string(name_of(format.dense_type));
    std::string map;
    switch (format.map) {
        case CodeMap::integer:
            map = fmt::format("q{}", format.bits);
            break;
        case CodeMap::iq4nl:
            map = "iq4nl";
            break;
        case CodeMap::e2m1:
            map = "e2m1";
            break;
        case CodeMap::e4m3:
            map = "e4m3";
            break;
        case CodeMap::dense:
            break;
    }
    constexpr const char* scales[] = {"none", "f16", "bf16", "f32", "u8", "i8", "u4", "e8m0", "ue4m3"};
    std::string text = fmt::format("{}/{} {}", map, format.group, scales[static_cast<int>(format.scale)]);
    if (format.zero) text += fmt::format(" z{}", format.zero);
    if (format.offset == OffsetKind::bias) text += " +bias";
    if (format.offset == OffsetKind::sub_u8 || format.offset == OffsetKind::sub_u4) text += " -min";
    return text;
}

PlaneStrides tight_strides(const WeightFormat& format, std::int64_t cols) {
    PlaneStrides strides{};
    if (format.is_dense()) {
        strides.codes = static_cast<std::size_t>(cols) * size_of(format.dense_type);
        return strides;
    }
    int low_bits = format.bits;
    switch (format.packing) {
        case Packing::split_4_1:
            low_bits = 4, strides.codes_high = blocks(cols, 128) * 16;
            break;
        case Packing::split_4_2:
            low_bits = 4, strides.codes_high = blocks(cols, 256) * 64;
            break;
        case Packing::split_2_1:
            low_bits = 2, strides.codes_high = blocks(cols, 256) * 32;
            break;
        case Packing::stream:
        case Packing::dense:
            break;
    }
    strides.codes = blocks(cols * low_bits, 8);
    const std::size_t groups = blocks(cols, format.group);
    const std::size_t supers = blocks(cols, 256) * 2;
    switch (format.scale) {
        case ScaleKind::f16:
        case ScaleKind::bf16:
            strides.scales = groups * 2;
            break;
        case ScaleKind::f32:
            strides.scales = groups * 4;
            break;
        case ScaleKind::sub_u8:
        case ScaleKind::sub_i8:
        case ScaleKind::sub_u4:
            strides.scales = groups, strides.super_scales = supers;
            break;
        case ScaleKind::e8m0:
        case ScaleKind::ue4m3:
            strides.scales = groups;
            break;
        case ScaleKind::none:
            break;
    }
    switch (format.offset) {
        case OffsetKind::bias:
            strides.offsets = strides.scales;
            break;
        case OffsetKind::sub_u8:
            strides.offsets = groups, strides.super_mins = supers;
            break;
        case OffsetKind::sub_u4:
            strides.super_mins = supers;
            break;
        case OffsetKind::none:
            break;
    }
    return strides;
}

std::size_t Weight::bytes() const {
    if (tiled) return static_cast<std::size_t>((rows + kTiledRows - 1) / kTiledRows) * codes.stride;
    const PlaneStrides s = tight_strides(format, cols);
    return static_cast<std::size_t>(rows) *
           (s.codes + s.codes_high + s.scales + s.offsets + s.super_scales + s.super_mins);
}

void decode_row(const Weight& weight, std::int64_t row, float* out) {
    if (weight.tiled) return decode_tiled_row(weight, row, out);
    const WeightFormat& format = weight.format;
    const std::byte* codes = weight.codes.data + row * weight.codes.stride;
    const float global = weight.global_scale;
    if (format.is_dense()) {
        for (std::int64_t e = 0; e < weight.cols; ++e) {
            float value = 0;
            switch (format.dense_type) {
                case DType::f32:
                    value = load_float(codes, e, ScaleKind::f32);
                    break;
                case DType::f16:
                    value = load_float(codes, e, ScaleKind::f16);
                    break;
                case DType::bf16:
                    value = load_float(codes, e, ScaleKind::bf16);
                    break;
                default:
                    fail(ErrorKind::unsupported,
                         "{}: a weight of {} elements cannot be multiplied; wanted f32, f16 or bf16",
                         weight.name, name_of(format.dense_type));
            }
            out[e] = global == 1.0f ? value : value * global;
        }
        return;
    }
    const std::byte* high =
        weight.codes_high.data ? weight.codes_high.data + row * weight.codes_high.stride : nullptr;
    const auto at = [&](const Plane& plane, std::int64_t byte) {
        return plane.data ? plane.data + row * plane.stride + byte : nullptr;
    };
    for (std::int64_t first = 0; first < weight.cols; first += format.group) {
        const std::int64_t group_at = first / format.group * static_cast<std::int64_t>(scale_bytes(format.scale)), super_at = first / 256 * 2;
        const Affine group = group_values(format, {at(weight.scales, group_at), at(weight.offsets, group_at),
                                                   at(weight.super_scales, super_at), at(weight.super_mins, super_at)});
        const std::int64_t last = std::min<std::int64_t>(first + format.group, weight.cols);
        for (std::int64_t e = first; e < last; ++e)
            out[e] = element(format, group, code_at(format, codes, high, e), global);
    }
}

}  // namespace forge
