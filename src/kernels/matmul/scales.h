// Scales and offsets of one row as floats, one a group: w = scale * T(code) + offset.
#pragma once

#include <algorithm>

#include "matmul/ints.h"
#include "matmul/layout.h"
#include "quant/weight.h"

namespace forge::FORGE_SIMD {

// Floats that the scales of `columns` columns take: whole vectors, and one more that kernels may load.
inline std::int64_t scale_floats(const WeightFormat& format, std::int64_t columns) {
    if (format.is_dense()) return 0;
    return ((groups_of(format, columns) + kLanes - 1) & ~std::int64_t{kLanes - 1}) + kLanes;
}

template <typename Element>
FORGE_INLINE void copy_floats(const std::uint8_t* from, std::int64_t count, float* to) {
    const Element* p = reinterpret_cast<const Element*>(from);
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, load(p + i));
    if (i < count) store(to + i, load_first(p + i, static_cast<int>(count - i)));
}

FORGE_INLINE void copy_floats(ScaleKind kind, const std::uint8_t* from, std::int64_t count, float* to) {
    if (kind == ScaleKind::f16)
        copy_floats<f16>(from, count, to);
    else if (kind == ScaleKind::bf16)
        copy_floats<bf16>(from, count, to);
    else
        copy_floats<float>(from, count, to);
}

FORGE_INLINE F32 ue4m3(U32 code) {
    const F32 value = as_float(shift_left<20>(code & set1(std::uint32_t{127}))) * set1(0x1p120f);
    return select(equal(to_float(code), set1(127.0f)), zero(), value);
}

// to[g] = super(g) * value(g) for byte scales; value(g, n) gives groups g .. g + n as floats.
template <typename Fn>
FORGE_INLINE void scale_bytes(const Plane& plane, std::int64_t row, std::int64_t from, std::int64_t groups,
                              int group, float* to, Fn&& value) {
    const f16* supers =
        reinterpret_cast<const f16*>(plane.data + static_cast<std::size_t>(row) * plane.stride) + from / 256;
    const int shift = 8 - __builtin_ctz(static_cast<unsigned>(group));  // log2 of the groups of a super
    std::int64_t g = 0;
    if (kLanes >> shift == 2) {  // 16 lanes, 8 groups a super
        for (; g + kLanes <= groups; g += kLanes) {
            const F32 super = select(first_lanes(kLanes / 2), broadcast(supers + (g >> shift)),
                                     broadcast(supers + (g >> shift) + 1));
            store(to + g, super * value(g, kLanes));
        }
    } else {
        for (; g + kLanes <= groups; g += kLanes)
            store(to + g, broadcast(supers + (g >> shift)) * value(g, kLanes));
    }
    for (; g < groups; g += kLanes) {  // fewer than kLanes are left: one super of 8 or 16 groups
        const int n = static_cast<int>(groups - g);
        store(to + g, broadcast(supers + (g >> shift)) * value(g, n));
    }
}

// Columns [from, from + columns) of a row, `from` a multiple of 256: writes scale_floats(format, columns)
// floats to `scales`, and to `offsets` when the format has them.
inline void load_scales(const Weight& w, std::int64_t row, std::int64_t from, std::int64_t columns,
                        float* scales, float* offsets) {
    const WeightFormat& format = w.format;
    const std::int64_t groups = groups_of(format, columns);
    const auto group_bytes = static_cast<std::int64_t>(scale_bytes(format.scale));
    const auto row_of = [&](const Plane& plane) {
        return reinterpret_cast<const std::uint8_t*>(plane.data) +
               static_cast<std::size_t>(row) * plane.stride + (from >> group_shift(format)) * group_bytes;
    };
    const std::uint8_t* bytes = row_of(w.scales);
    switch (format.scale) {
        case ScaleKind::f16:
        case ScaleKind::bf16:
        case ScaleKind::f32:
            copy_floats(format.scale, bytes, groups, scales);
            if (format.offset == OffsetKind::bias)
                copy_floats(format.scale, row_of(w.offsets), groups, offsets);
            break;
        case ScaleKind::sub_u8:
            scale_bytes(w.super_scales, row, from, groups, format.group, scales,
                        [&](std::int64_t g, int n) { return to_float(load_bytes(bytes + g, n)); });
            break;
        case ScaleKind::sub_i8:
            scale_bytes(w.super_scales, row, from, groups, format.group, scales,
                        [&](std::int64_t g, int n) { return load_i8(bytes + g, n); });
            break;
        case ScaleKind::sub_u4:
            scale_bytes(w.super_scales, row, from, groups, format.group, scales, [&](std::int64_t g, int n) {
                return to_float(load_bytes(bytes + g, n) & set1(std::uint32_t{15}));
            });
            break;
        case ScaleKind::e8m0:
            for (std::int64_t g = 0; g < groups; g += kLanes) {
                const int n = static_cast<int>(std::min<std::int64_t>(kLanes, groups - g));
                store(scales + g,
                      scale_by_power(set1(1.0f), to_float(load_bytes(bytes + g, n)) - set1(127.0f)));
            }
            break;
        case ScaleKind::ue4m3:
            for (std::int64_t g = 0; g < groups; g += kLanes)
                store(scales + g, ue4m3(load_bytes(bytes + g, static_cast<int>(std::min<std::int64_t>(
                                                                  kLanes, groups - g)))));
            break;
        case ScaleKind::none:
            break;
    }
    if (format.offset == OffsetKind::sub_u8) {
        const std::uint8_t* mins = row_of(w.offsets);
        scale_bytes(w.super_mins, row, from, groups, format.group, offsets,
                    [&](std::int64_t g, int n) { return zero() - to_float(load_bytes(mins + g, n)); });
    } else if (format.offset == OffsetKind::sub_u4) {
        scale_bytes(w.super_mins, row, from, groups, format.group, offsets, [&](std::int64_t g, int n) {
            return zero() - to_float(shift_right<4>(load_bytes(bytes + g, n)));
        });
    }
    // Lanes past the last group meet zeros of x; they must only be finite.
    for (std::int64_t g = (groups + kLanes - 1) & ~std::int64_t{kLanes - 1};
         g < scale_floats(format, columns); g += kLanes) {
        store(scales + g, zero());
        if (format.offset != OffsetKind::none) store(offsets + g, zero());
    }
}

}  // namespace forge::FORGE_SIMD
