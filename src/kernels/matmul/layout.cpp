#include "matmul/layout.h"

#include <algorithm>

#include "base/error.h"

namespace forge {

bool needs_unpacking(const WeightFormat& format) {
    return format.packing == Packing::stream && format.bits != 2 && format.bits != 4 && format.bits != 8;
}

CodeKind code_kind(const WeightFormat& format) {
    if (format.is_dense())
        return format.dense_type == DType::f32   ? CodeKind::dense_f32
               : format.dense_type == DType::f16 ? CodeKind::dense_f16
                                                 : CodeKind::dense_bf16;
    switch (format.packing) {
        case Packing::split_4_1:
            return CodeKind::nibbles_1;
        case Packing::split_4_2:
            return CodeKind::nibbles_2;
        case Packing::split_2_1:
            return CodeKind::pairs_1;
        case Packing::stream:
        case Packing::dense:
            break;
    }
    if (format.map == CodeMap::e4m3) return CodeKind::bytes_e4m3;
    return format.bits == 4 ? CodeKind::nibbles : format.bits == 2 ? CodeKind::pairs : CodeKind::bytes;
}

std::int64_t matvec_rows(const Weight& weight) {
    const auto row =
        static_cast<std::int64_t>(std::max<std::size_t>(1, tight_strides(weight.format, weight.cols).codes));
    return std::clamp<std::int64_t>((std::int64_t{32} << 10) / row / 8 * 8, 8, 128);
}

}  // namespace forge
