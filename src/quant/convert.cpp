// A block is first unpacked to one byte a code and one byte or half a scale,
// then packed into the planes. Codes keep their value; signed codes are moved
// into 0..2^bits-1 (the format's zero says by how much).
#include "quant/convert.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "base/error.h"
#include "quant/tiles.h"

namespace forge {
namespace {

using Bytes = const std::uint8_t*;

// What one GGUF block holds, in the planes' terms.
struct Unpacked {
    std::uint8_t codes[256];
    std::uint8_t scales[32];   // bytes of the scale plane (1 or 2 a group)
    std::uint8_t offsets[16];  // bytes of the offset plane
    std::uint8_t super_scale[2], super_min[2];
};

// 32 codes as GGUF's small blocks keep them: low nibbles first, then the high ones.
void split_nibbles(Bytes qs, std::uint8_t* codes, int half) {
    for (int i = 0; i < half; ++i) codes[i] = qs[i] & 15;
    for (int i = 0; i < half; ++i) codes[half + i] = qs[i] >> 4;
}

void add_bits_32(Bytes qh, std::uint8_t* codes) {
    for (int i = 0; i < 32; ++i) codes[i] |= static_cast<std::uint8_t>(((qh[i / 8] >> (i % 8)) & 1) << 4);
}

// 256 two-bit codes in 64 bytes, 128 elements a half (K-quants, TQ2_0).
void split_pairs(Bytes qs, std::uint8_t* codes) {
    for (int half = 0; half < 2; ++half)
        for (int j = 0; j < 4; ++j)
            for (int l = 0; l < 32; ++l)
                codes[128 * half + 32 * j + l] =
                    static_cast<std::uint8_t>((qs[32 * half + l] >> (2 * j)) & 3);
}

// The twelve bytes of 6-bit scales and minima of Q4_K and Q5_K.
void k_scales(Bytes sb, std::uint8_t* scales, std::uint8_t* mins) {
    for (int j = 0; j < 4; ++j) {
        scales[j] = sb[j] & 63;
        mins[j] = sb[j + 4] & 63;
        scales[j + 4] = static_cast<std::uint8_t>((sb[j + 8] & 15) | (sb[j] >> 6) << 4);
        mins[j + 4] = static_cast<std::uint8_t>((sb[j + 8] >> 4) | (sb[j + 4] >> 6) << 4);
    }
}

void unpack(GgufType type, Bytes b, Unpacked& u) {
    switch (type) {
        case GgufType::q4_0:
        case GgufType::iq4_nl:
            std::memcpy(u.scales, b, 2);
            split_nibbles(b + 2, u.codes, 16);
            break;
        case GgufType::q4_1:
            std::memcpy(u.scales, b, 2);
            std::memcpy(u.offsets, b + 2, 2);
            split_nibbles(b + 4, u.codes, 16);
            break;
        case GgufType::q5_0:
            std::memcpy(u.scales, b, 2);
            split_nibbles(b + 6, u.codes, 16);
            add_bits_32(b + 2, u.codes);
            break;
        case GgufType::q5_1:
            std::memcpy(u.scales, b, 2);
            std::memcpy(u.offsets, b + 2, 2);
            split_nibbles(b + 8, u.codes, 16);
            add_bits_32(b + 4, u.codes);
            break;
        case GgufType::q8_0:
            std::memcpy(u.scales, b, 2);
            for (int i = 0; i < 32; ++i) u.codes[i] = b[2 + i] ^ 0x80;  // q + 128
            break;
        case GgufType::q2_k:
            std::memcpy(u.scales, b, 16);
            split_pairs(b + 16, u.codes);
            std::memcpy(u.super_scale, b + 80, 2);
            std::memcpy(u.super_min, b + 82, 2);
            break;
        case GgufType::q3_k: {
            split_pairs(b + 32, u.codes);
            for (int i = 0; i < 256; ++i)
                u.codes[i] |= static_cast<std::uint8_t>(((b[i % 32] >> (i / 32)) & 1) << 2);
            const Bytes sc = b + 96;
            for (int k = 0; k < 16; ++k) {
                const int low = k < 8 ? sc[k] & 15 : sc[k - 8] >> 4;
                const int high = (sc[8 + k % 4] >> (2 * (k / 4))) & 3;
                u.scales[k] = static_cast<std::uint8_t>((low | high << 4) - 32);
            }
            std::memcpy(u.super_scale, b + 108, 2);
            break;
        }
        case GgufType::q4_k:
        case GgufType::q5_k: {
            std::memcpy(u.super_scale, b, 2);
            std::memcpy(u.super_min, b + 2, 2);
            k_scales(b + 4, u.scales, u.offsets);
            const Bytes qs = b + (type == GgufType::q4_k ? 16 : 48);
            for (int j = 0; j < 4; ++j) split_nibbles(qs + 32 * j, u.codes + 64 * j, 32);
            if (type == GgufType::q5_k)
                for (int i = 0; i < 256; ++i)
                    u.codes[i] |= static_cast<std::uint8_t>(((b[16 + i % 32] >> (i / 32)) & 1) << 4);
            break;
        }
        case GgufType::q6_k:
            for (int n = 0; n < 2; ++n)
                for (int g = 0; g < 4; ++g)
                    for (int l = 0; l < 32; ++l)
                        u.codes[128 * n + 32 * g + l] =
                            static_cast<std::uint8_t>(((b[64 * n + 32 * (g % 2) + l] >> (4 * (g / 2))) & 15) |
                                                      ((b[128 + 32 * n + l] >> (2 * g)) & 3) << 4);
            std::memcpy(u.scales, b + 192, 16);
            std::memcpy(u.super_scale, b + 208, 2);
            break;
        case GgufType::iq4_xs: {
            std::memcpy(u.super_scale, b, 2);
            const unsigned high = b[2] | b[3] << 8;
            for (int k = 0; k < 8; ++k) {
                const unsigned low = (b[4 + k / 2] >> (4 * (k % 2))) & 15;
                u.scales[k] = static_cast<std::uint8_t>((low | ((high >> (2 * k)) & 3) << 4) - 32);
                split_nibbles(b + 8 + 16 * k, u.codes + 32 * k, 16);
            }
            break;
        }
        case GgufType::tq2_0:
            split_pairs(b, u.codes);
            std::memcpy(u.scales, b + 64, 2);
            break;
        case GgufType::mxfp4:
            u.scales[0] = b[0];
            split_nibbles(b + 1, u.codes, 16);
            break;
        case GgufType::nvfp4:
            std::memcpy(u.scales, b, 4);
            for (int s = 0; s < 4; ++s) split_nibbles(b + 4 + 8 * s, u.codes + 16 * s, 8);
            break;
        case GgufType::f32:
        case GgufType::f16:
        case GgufType::bf16:
            break;
    }
}

// Packs `count` codes that start at element `first` of a row.
void pack(Packing packing, int bits, const std::uint8_t* codes, std::int64_t first, int count,
          std::uint8_t* low, std::uint8_t* high) {
    const int low_bits = packing == Packing::stream ? bits : packing == Packing::split_2_1 ? 2 : 4;
    const auto byte = [](unsigned value) { return static_cast<std::uint8_t>(value); };
    if (low_bits == 8) {
        std::memcpy(low + first, codes, static_cast<std::size_t>(count));
    } else if (low_bits == 4) {
        std::uint8_t* out = low + first / 2;
        for (int i = 0; i < count / 2; ++i) out[i] = byte((codes[2 * i] & 15) | (codes[2 * i + 1] & 15) << 4);
    } else {
        std::uint8_t* out = low + first / 4;
        for (int i = 0; i < count / 4; ++i)
            out[i] = byte((codes[4 * i] & 3) | (codes[4 * i + 1] & 3) << 2 | (codes[4 * i + 2] & 3) << 4 |
                          (codes[4 * i + 3] & 3) << 6);
    }
    switch (packing) {
        case Packing::split_4_1:  // bit w of mask j is element 4 * w + j
            for (int i = 0; i < count; ++i) {
                const std::int64_t e = first + i;
                const std::int64_t w = e % 128 / 4;
                high[e / 128 * 16 + e % 4 * 4 + w / 8] |= byte((codes[i] >> 4 & 1u) << (w % 8));
            }
            break;
        case Packing::split_4_2:  // byte 2 * w + h holds elements 128 * h + 4 * w + (0..3)
            for (int i = 0; i < count; ++i) {
                const std::int64_t e = (first + i) % 256;
                high[(first + i) / 256 * 64 + 2 * (e % 128 / 4) + e / 128] |=
                    byte((codes[i] >> 4 & 3u) << (2 * (e % 4)));
            }
            break;
        case Packing::split_2_1:  // bit w of mask j is element 8 * w + j
            for (int i = 0; i < count; ++i) {
                const std::int64_t e = first + i;
                const std::int64_t w = e % 256 / 8;
                high[e / 256 * 32 + e % 8 * 4 + w / 8] |= byte((codes[i] >> 2 & 1u) << (w % 8));
            }
            break;
        case Packing::stream:
        case Packing::dense:
            break;
    }
}

std::uint8_t* row_of(const Plane& plane, std::int64_t row) {
    if (!plane.data) return nullptr;
    return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(plane.data)) + row * plane.stride;
}

constexpr WeightFormat coded(CodeMap map, Packing packing, int bits, int group, int zero, ScaleKind scale,
                             OffsetKind offset = OffsetKind::none) {
    return {map,
            DType::f32,
            packing,
            static_cast<std::uint8_t>(bits),
            static_cast<std::uint16_t>(group),
            static_cast<std::uint8_t>(zero),
            scale,
            offset};
}

constexpr WeightFormat dense_of(DType type, int bits) {
    WeightFormat format;
    format.dense_type = type;
    format.bits = static_cast<std::uint8_t>(bits);
    return format;
}

}  // namespace

WeightFormat format_of_gguf(GgufType type, const std::string& tensor_name) {
    using enum CodeMap;
    switch (type) {
        case GgufType::f32:
            return dense_of(DType::f32, 32);
        case GgufType::f16:
            return dense_of(DType::f16, 16);
        case GgufType::bf16:
            return dense_of(DType::bf16, 16);
        case GgufType::q4_0:
            return coded(integer, Packing::stream, 4, 32, 8, ScaleKind::f16);
        case GgufType::q4_1:
            return coded(integer, Packing::stream, 4, 32, 0, ScaleKind::f16, OffsetKind::bias);
        case GgufType::q5_0:
            return coded(integer, Packing::split_4_1, 5, 32, 16, ScaleKind::f16);
        case GgufType::q5_1:
            return coded(integer, Packing::split_4_1, 5, 32, 0, ScaleKind::f16, OffsetKind::bias);
        case GgufType::q8_0:
            return coded(integer, Packing::stream, 8, 32, 128, ScaleKind::f16);
        case GgufType::q2_k:
            return coded(integer, Packing::stream, 2, 16, 0, ScaleKind::sub_u4, OffsetKind::sub_u4);
        case GgufType::q3_k:
            return coded(integer, Packing::split_2_1, 3, 16, 4, ScaleKind::sub_i8);
        case GgufType::q4_k:
            return coded(integer, Packing::stream, 4, 32, 0, ScaleKind::sub_u8, OffsetKind::sub_u8);
        case GgufType::q5_k:
            return coded(integer, Packing::split_4_1, 5, 32, 0, ScaleKind::sub_u8, OffsetKind::sub_u8);
        case GgufType::q6_k:
            return coded(integer, Packing::split_4_2, 6, 16, 32, ScaleKind::sub_i8);
        case GgufType::iq4_nl:
            return coded(iq4nl, Packing::stream, 4, 32, 0, ScaleKind::f16);
        case GgufType::iq4_xs:
            return coded(iq4nl, Packing::stream, 4, 32, 0, ScaleKind::sub_i8);
        case GgufType::tq2_0:
            return coded(integer, Packing::stream, 2, 256, 1, ScaleKind::f16);
        case GgufType::mxfp4:
            return coded(e2m1, Packing::stream, 4, 32, 0, ScaleKind::e8m0);
        case GgufType::nvfp4:
            return coded(e2m1, Packing::stream, 4, 16, 0, ScaleKind::ue4m3);
    }
    fail(ErrorKind::unsupported,
         "{}: GGUF tensor type {} is not implemented; convert the model to another type", tensor_name,
         gguf_type_name(static_cast<std::uint32_t>(type)));
}

namespace {

// Lays the planes of `rows` rows one after the other from `memory` on, each on a line of its own; returns
// their bytes. With null only counts.
std::size_t lay_planes(Weight& weight, std::size_t rows, std::byte* memory) {
    constexpr std::size_t alignment = 64;
    const PlaneStrides strides = tight_strides(weight.format, weight.cols);
    const std::pair<Plane*, std::size_t> planes[] = {{&weight.codes, strides.codes},
                                                     {&weight.codes_high, strides.codes_high},
                                                     {&weight.scales, strides.scales},
                                                     {&weight.offsets, strides.offsets},
                                                     {&weight.super_scales, strides.super_scales},
                                                     {&weight.super_mins, strides.super_mins}};
    std::size_t at = 0;
    for (const auto& [plane, stride] : planes) {
        if (memory) *plane = stride ? Plane{memory + at, stride} : Plane{};
        at += (stride * rows + alignment - 1) / alignment * alignment;
    }
    return at;
}

void convert_to_planes(GgufType type, const std::byte* source, std::int64_t first, std::int64_t last,
                       const std::int64_t* row_map, Weight& target) {
    const BlockSize block = *gguf_block_size(static_cast<std::uint32_t>(type));
    const std::int64_t blocks = target.cols / block.elements;
    const std::size_t row_bytes = static_cast<std::size_t>(blocks) * static_cast<std::size_t>(block.bytes);
    const WeightFormat& format = target.format;
    const PlaneStrides strides = tight_strides(format, target.cols);
    // Bytes a block gives to the scale and offset planes.
    const std::size_t scale_bytes =
        format.is_dense() ? 0 : block.elements / format.group * (format.scale == ScaleKind::f16 ? 2u : 1u);
    const std::size_t offset_bytes = strides.offsets ? scale_bytes : 0;
    Unpacked unpacked{};
    for (std::int64_t row = first; row < last; ++row) {
        const Bytes in = reinterpret_cast<Bytes>(source) +
                         static_cast<std::size_t>(row_map ? row_map[row] : row) * row_bytes;
        std::uint8_t* codes = row_of(target.codes, row);
        if (format.is_dense()) {
            std::memcpy(codes, in, row_bytes);
            continue;
        }
        std::uint8_t* high = row_of(target.codes_high, row);
        std::uint8_t* scales = row_of(target.scales, row);
        std::uint8_t* offsets = row_of(target.offsets, row);
        std::uint8_t* super_scales = row_of(target.super_scales, row);
        std::uint8_t* super_mins = row_of(target.super_mins, row);
        if (high) std::memset(high, 0, strides.codes_high);
        for (std::int64_t b = 0; b < blocks; ++b) {
            unpack(type, in + b * block.bytes, unpacked);
            pack(format.packing, format.bits, unpacked.codes, b * block.elements, block.elements, codes,
                 high);
            std::memcpy(scales + b * scale_bytes, unpacked.scales, scale_bytes);
            if (offset_bytes) std::memcpy(offsets + b * offset_bytes, unpacked.offsets, offset_bytes);
            if (super_scales) std::memcpy(super_scales + 2 * b, unpacked.super_scale, 2);
            if (super_mins) std::memcpy(super_mins + 2 * b, unpacked.super_min, 2);
        }
    }
}

// Sixteen rows at a time to planes, and those to a tile, while they are in the cache.
void convert_to_tiles(GgufType type, const std::byte* source, std::int64_t first, std::int64_t last,
                      const std::int64_t* row_map, Weight& target) {
    const BlockSize block = *gguf_block_size(static_cast<std::uint32_t>(type));
    const std::size_t row_bytes = static_cast<std::size_t>(target.cols / block.elements) * static_cast<std::size_t>(block.bytes);
    Weight rows;
    rows.format = target.format;
    rows.cols = target.cols;
    std::vector<std::byte> memory(lay_planes(rows, kTiledRows, nullptr));
    lay_planes(rows, kTiledRows, memory.data());
    for (std::int64_t row = first; row < last; row += kTiledRows) {
        rows.rows = std::min<std::int64_t>(kTiledRows, last - row);
        convert_to_planes(type, row_map ? source : source + static_cast<std::size_t>(row) * row_bytes, 0, rows.rows,
                          row_map ? row_map + row : nullptr, rows);
        write_tile(rows, 0, const_cast<std::byte*>(target.codes.data) +
                                static_cast<std::size_t>(row / kTiledRows) * target.codes.stride);
    }
}

}  // namespace

void convert_gguf_rows(GgufType type, const std::byte* source, std::int64_t first, std::int64_t last,
                       const std::int64_t* row_map, Weight& target) {
    (target.tiled ? convert_to_tiles : convert_to_planes)(type, source, first, last, row_map, target);
}

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20, block_size = 16 * huge_page;

// Memory on huge pages where the system has them: a tenth to a fifth more matvec speed (docs/performance.md).
std::shared_ptr<std::byte> huge_memory(std::size_t bytes) {
    const std::size_t size = (bytes + huge_page - 1) / huge_page * huge_page;
    void* memory = std::aligned_alloc(huge_page, size);
    if (!memory) return nullptr;
#ifdef __linux__
    madvise(memory, size, MADV_HUGEPAGE);  // advice: failing is harmless
#endif
    return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

// A layer's matrices are smaller than a huge page or end within one, so they lie one after the
// other in blocks of 32 MiB, which live as long as any weight in them. Null when memory runs out.
std::shared_ptr<const void> plane_memory(std::size_t bytes) {
    if (bytes >= block_size / 2) return huge_memory(bytes);
    static std::mutex mutex;
    static std::weak_ptr<std::byte> current;
    static std::size_t used = 0;
    std::lock_guard lock(mutex);
    std::shared_ptr<std::byte> block = current.lock();
    if (!block || used + bytes > block_size) {
        block = huge_memory(block_size);
        if (!block) return nullptr;
        current = block;
        used = 0;
    }
    std::byte* memory = block.get() + used;
    used += std::max<std::size_t>(bytes, 64);
    return std::shared_ptr<const void>(block, memory);
}

[[noreturn]] void fail_to_allocate(const Weight& weight, std::size_t bytes) {
    fail(ErrorKind::out_of_memory, "{}: {} bytes for its {} x {} weights ({}) could not be allocated",
         weight.name, bytes, weight.rows, weight.cols, describe(weight.format));
}

}  // namespace

void allocate_tiles(Weight& weight) {
    const std::size_t stride = tile_bytes(weight.format, weight.cols);
    const std::size_t total = static_cast<std::size_t>((weight.rows + kTiledRows - 1) / kTiledRows) * stride;
    weight.owner = plane_memory(total);
    if (!weight.owner) fail_to_allocate(weight, total);
    weight.tiled = true;
    weight.codes = {static_cast<const std::byte*>(weight.owner.get()), stride};
}

void allocate_planes(Weight& weight) {
    const auto rows = static_cast<std::size_t>(weight.rows);
    const std::size_t total = lay_planes(weight, rows, nullptr);
    weight.owner = plane_memory(total);
    if (!weight.owner) fail_to_allocate(weight, total);
    lay_planes(weight, rows, static_cast<std::byte*>(const_cast<void*>(weight.owner.get())));
}

}  // namespace forge
