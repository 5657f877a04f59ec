// What a matmul kernel must know of a weight: how its codes are read and in
// which order x must lie to meet them. Independent of the instruction set.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace forge {

// One way of reading codes. Blocks are `steps` vectors long: step j gives lane i
// element steps * i + j of the block (dense: lanes * j + i), so that one load of
// codes serves all steps.
enum class CodeKind : std::uint8_t {
    dense_f32,
    dense_f16,
    dense_bf16,  // 8 steps, natural order
    nibbles,     // stream of 4 bits, any map: 8 steps
    nibbles_1,
    nibbles_2,  // split_4_1, split_4_2: 8 steps
    pairs,
    pairs_1,  // stream of 2 bits, split_2_1: 16 steps
    bytes,
    bytes_e4m3,  // stream of 8 bits; of 1, 3, 5, 6 bits once unpacked: 4 steps
};

CodeKind code_kind(const WeightFormat& format);
// Streams of 1, 3, 5 and 6 bits are unpacked to bytes before a kernel reads them.
inline bool needs_unpacking(const WeightFormat& format) {
    return format.packing == Packing::stream && format.bits != 2 && format.bits != 4 && format.bits != 8;
}
// Groups of a row, and log2 of their width (a power of two).
inline int group_shift(const WeightFormat& format) { return __builtin_ctz(format.group); }
inline std::int64_t groups_of(const WeightFormat& format, std::int64_t columns) {
    return (columns + format.group - 1) >> group_shift(format);
}

constexpr bool is_dense(CodeKind kind) { return kind <= CodeKind::dense_bf16; }
constexpr int steps_of(CodeKind kind) {
    switch (kind) {
        case CodeKind::pairs:
        case CodeKind::pairs_1:
            return 16;
        case CodeKind::bytes:
        case CodeKind::bytes_e4m3:
            return 4;
        default:
            return 8;
    }
}
constexpr bool can_have_offsets(CodeKind kind) {
    return kind == CodeKind::nibbles || kind == CodeKind::nibbles_1 || kind == CodeKind::pairs ||
           kind == CodeKind::bytes;
}
// Distance between the elements of neighbouring lanes: the order in which x is kept.
constexpr int stride_of(CodeKind kind) { return is_dense(kind) ? 1 : steps_of(kind); }

// The order in which a gemm wants x: natural where codes do not come several to a lane, or lie in tiles.
inline int packing_stride(const Weight& w) { return w.tiled ? 1 : stride_of(code_kind(w.format)); }

// Weight rows of a matvec item.
inline std::int64_t item_rows(const MatmulParams& p) { return p.item_rows > 0 ? p.item_rows : default_item_rows(*p.w); }

inline constexpr int kMatvecTokens = 8;  // rows of x that one pass over the weights serves at most
inline constexpr int kGemmRows = 48;     // weight rows of a gemm item
inline constexpr int kGemmTokens = 512;  // rows of x that share one dequantised tile
inline constexpr int kGemmDepth = 1024;   // columns of a dequantised tile

inline std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// The entry points of one instruction set, by activation type (type_slot).
struct MatvecFunctions {
    CpuFn matvec[3];
    std::size_t (*scratch)(const MatmulParams&);
};
struct GemmFunctions {
    CpuFn pack[3], gemm[3];
    std::size_t (*pack_scratch)(const MatmulParams&);
    std::size_t (*gemm_scratch)(const MatmulParams&);
    std::size_t (*packed_bytes)(const MatmulParams&);
    int panel;  // rows of x in a panel
};
constexpr int type_slot(DType type) { return type == DType::f32 ? 0 : type == DType::f16 ? 1 : 2; }

extern const MatvecFunctions matvec_plain, matvec_avx2, matvec_avx512, matvec_neon;
extern const GemmFunctions gemm_plain, gemm_avx2, gemm_avx512, gemm_neon;

}  // namespace forge
