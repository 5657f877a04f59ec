#include "matmul/layout.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "quant/tiles.h"

namespace forge {

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

std::int64_t default_item_rows(const Weight& weight) {
    static const std::int64_t cores = available_cores();
    const std::size_t bytes = weight.tiled ? weight.codes.stride / kTiledRows : tight_strides(weight.format, weight.cols).codes;
    const auto row = static_cast<std::int64_t>(std::max<std::size_t>(1, bytes));
    // A core's share in one run, as four streams of whole tiles, where that is not too long to wait for: the
    // machine's prefetchers need many kilobytes to get going (docs/performance.md).
    constexpr std::int64_t four = 4 * kTiledRows, most = std::int64_t{512} << 10;
    const std::int64_t rows = std::min((weight.rows + cores - 1) / cores, most / row);
    return std::clamp<std::int64_t>((rows + four - 1) / four * four, four, 4096);
}

}  // namespace forge
