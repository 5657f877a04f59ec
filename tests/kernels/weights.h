// Random weights of every format for the matmul tests. Planes end at a page
// that must not be touched, so that a kernel that reads too far crashes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "quant/convert.h"
#include "quant/tiles.h"
#include "quant/weight.h"

namespace forge::test {

// Memory whose last byte is the last of its page; the next page is not readable.
class GuardedBlock {
  public:
    explicit GuardedBlock(std::size_t bytes) {
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        size_ = (bytes + page - 1) / page * page + page;
        base_ = static_cast<std::byte*>(
            mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (base_ == MAP_FAILED) std::abort();
        mprotect(base_ + size_ - page, page, PROT_NONE);
        data_ = base_ + size_ - page - bytes;
    }
    ~GuardedBlock() { munmap(base_, size_); }
    GuardedBlock(const GuardedBlock&) = delete;
    GuardedBlock& operator=(const GuardedBlock&) = delete;
    std::byte* data() { return data_; }

  private:
    std::byte* base_;
    std::byte* data_;
    std::size_t size_;
};

struct NamedFormat {
    std::string name;
    WeightFormat format;
    int multiple;  // columns come in multiples of it
    bool tiled = false;
};

inline std::vector<NamedFormat> all_formats() {
    std::vector<NamedFormat> out;
    for (const GgufType type :
         {GgufType::f32, GgufType::f16, GgufType::bf16, GgufType::q4_0, GgufType::q4_1, GgufType::q5_0,
          GgufType::q5_1, GgufType::q8_0, GgufType::q2_k, GgufType::q3_k, GgufType::q4_k, GgufType::q5_k,
          GgufType::q6_k, GgufType::iq4_nl, GgufType::iq4_xs, GgufType::tq2_0, GgufType::mxfp4,
          GgufType::nvfp4}) {
        const auto id = static_cast<std::uint32_t>(type);
        out.push_back({"gguf " + std::string(gguf_type_name(id)), format_of_gguf(type, "test"),
                       gguf_block_size(id)->elements});
    }
    for (const int bits : {1, 2, 3, 4, 5, 6, 8})
        for (const int group : {32, 64, 128})
            for (const ScaleKind scale : {ScaleKind::f16, ScaleKind::bf16, ScaleKind::f32}) {
                const WeightFormat f{CodeMap::integer,
                                     DType::f32,
                                     Packing::stream,
                                     static_cast<std::uint8_t>(bits),
                                     static_cast<std::uint16_t>(group),
                                     0,
                                     scale,
                                     OffsetKind::bias};
                out.push_back({"mlx " + describe(f), f, group});
            }
    const WeightFormat mxfp8{CodeMap::e4m3,   DType::f32,      Packing::stream, 8, 32, 0,
                             ScaleKind::e8m0, OffsetKind::none};
    out.push_back({"mlx mxfp8", mxfp8, 32});
    for (std::size_t i = 0, rows = out.size(); i < rows; ++i)
        if (can_tile(out[i].format)) {
            out.push_back(out[i]);
            out.back().name += " tiled";
            out.back().tiled = true;
        }
    return out;
}

inline std::byte* writable(const Plane& plane) { return const_cast<std::byte*>(plane.data); }

// Scales near 1/64, offsets below 1/4 in magnitude.
inline Weight random_weight(const WeightFormat& format, std::int64_t rows, std::int64_t cols, unsigned seed) {
    Weight w;
    w.name = "test.weight";
    w.format = format;
    w.rows = rows, w.cols = cols;
    const PlaneStrides strides = tight_strides(format, cols);
    auto blocks = std::make_shared<std::vector<std::unique_ptr<GuardedBlock>>>();
    std::mt19937 random(seed);
    const auto make = [&](Plane& plane, std::size_t stride) {
        if (stride == 0) return;
        blocks->push_back(std::make_unique<GuardedBlock>(stride * static_cast<std::size_t>(rows)));
        plane = {blocks->back()->data(), stride};
        for (std::size_t i = 0; i < stride * static_cast<std::size_t>(rows); ++i)
            writable(plane)[i] = static_cast<std::byte>(random());
    };
    make(w.codes, strides.codes);
    make(w.codes_high, strides.codes_high);
    make(w.scales, strides.scales);
    make(w.offsets, strides.offsets);
    make(w.super_scales, strides.super_scales);
    make(w.super_mins, strides.super_mins);
    w.owner = blocks;
    std::uniform_real_distribution<float> scale(0.01f, 0.02f), offset(-0.25f, 0.25f);
    std::normal_distribution<float> normal(0, 0.05f);
    const auto fill = [&](const Plane& plane, DType type, auto&& draw) {
        const std::size_t bytes = plane.stride * static_cast<std::size_t>(rows), width = size_of(type);
        for (std::size_t at = 0; at + width <= bytes; at += width) {
            const float value = draw();
            const std::uint16_t half = type == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
            if (type == DType::f32)
                std::memcpy(writable(plane) + at, &value, 4);
            else
                std::memcpy(writable(plane) + at, &half, 2);
        }
    };
    const auto draw_scale = [&] { return (random() & 1 ? 1.0f : -1.0f) * scale(random); };
    if (format.is_dense()) fill(w.codes, format.dense_type, [&] { return normal(random); });
    if (format.map == CodeMap::e4m3)  // no NaN codes
        for (std::size_t i = 0; i < w.codes.stride * static_cast<std::size_t>(rows); ++i)
            if ((w.codes.data[i] & std::byte{0x7f}) == std::byte{0x7f})
                writable(w.codes)[i] = std::byte{0x33};
    const DType float_type = format.scale == ScaleKind::f16    ? DType::f16
                             : format.scale == ScaleKind::bf16 ? DType::bf16
                                                               : DType::f32;
    const std::size_t scale_bytes = w.scales.stride * static_cast<std::size_t>(rows);
    switch (format.scale) {
        case ScaleKind::f16:
        case ScaleKind::bf16:
        case ScaleKind::f32:
            fill(w.scales, float_type, draw_scale);
            break;
        case ScaleKind::e8m0:
            for (std::size_t i = 0; i < scale_bytes; ++i)
                writable(w.scales)[i] = static_cast<std::byte>(110 + random() % 10);
            break;
        case ScaleKind::ue4m3:
            for (std::size_t i = 0; i < scale_bytes; ++i)
                writable(w.scales)[i] = static_cast<std::byte>(random() % 0x40);
            break;
        default:
            break;
    }
    const float super = format.scale == ScaleKind::sub_u4 ? 0.01f : 0.0004f;
    fill(w.super_scales, DType::f16, [&] { return super * (0.5f + scale(random) * 50); });
    fill(w.super_mins, DType::f16, [&] {
        return (format.offset == OffsetKind::sub_u4 ? 0.015f : 0.0009f) * (0.1f + scale(random) * 40);
    });
    if (format.offset == OffsetKind::bias) fill(w.offsets, float_type, [&] { return offset(random); });
    if (format.scale == ScaleKind::ue4m3) w.global_scale = 0.37f;
    return w;
}

// The same weight in tiles.
inline Weight tiled(const Weight& rows) {
    Weight w;
    w.name = rows.name, w.format = rows.format, w.rows = rows.rows, w.cols = rows.cols;
    w.global_scale = rows.global_scale;
    const std::size_t stride = tile_bytes(w.format, w.cols);
    const auto tiles = static_cast<std::size_t>((w.rows + kTiledRows - 1) / kTiledRows);
    auto block = std::make_shared<GuardedBlock>(stride * tiles);
    for (std::size_t t = 0; t < tiles; ++t)
        write_tile(rows, static_cast<std::int64_t>(t) * kTiledRows, block->data() + t * stride);
    w.tiled = true;
    w.codes = {block->data(), stride};
    w.owner = block;
    return w;
}

inline Weight random_weight(const NamedFormat& format, std::int64_t rows, std::int64_t cols, unsigned seed) {
    const Weight w = random_weight(format.format, rows, cols, seed);
    return format.tiled ? tiled(w) : w;
}

}  // namespace forge::test
