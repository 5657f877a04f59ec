#include "packed.h"

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "formats/forge_model.h"
#include "formats/xxh3.h"
#include "quant/convert.h"
#include "quant/tiles.h"
#include "quant/untile.h"

namespace forge {

PackedKey packed_key(const TensorUse& use) {
    PackedKey key;
    key.name = use.tensor->name;
    key.first_row = use.first_row;
    key.floats = use.as_f32;
    if (!use.row_map.empty()) key.row_map = xxh3(std::as_bytes(std::span(use.row_map)));
    return key;
}

std::vector<Weight> load_packed(const ModelFile& file, const std::vector<TensorUse>& uses, ThreadPool& pool, WeightLayout layout,
                                LoadReport& report, const std::function<void(const WeightBytes&)>& check) {
    std::vector<Weight> weights;
    weights.reserve(uses.size());
    std::vector<std::size_t> tiled;
    std::uint64_t made = 0;
    for (const TensorUse& use : uses) {
        const Weight* stored = file.packed->find(packed_key(use));
        if (!stored)
            fail("{}: there are no planes for {} (from row {}); the model was packed by another version of Forge: pack it again from its source",
                 file.path, use.tensor->describe(), use.first_row);
        if (stored->rows != use.rows || stored->cols != use.cols)
            fail("{}: the planes of {} hold {} rows of {}, but {} of {} are wanted; the file is damaged", file.path, use.tensor->describe(), stored->rows,
                 stored->cols, use.rows, use.cols);
        if (use.as_f32 && !stored->format.is_dense()) fail("{}: {} should be stored as floats; the file is damaged", file.path, use.tensor->describe());
        if (stored->tiled && layout == WeightLayout::rows) {
            tiled.push_back(weights.size());
            made += stored->bytes();
        } else {
            ++report.mapped;
            report.mapped_bytes += stored->bytes();
        }
        weights.push_back(*stored);
    }
    if (check) check({report.mapped_bytes, made});
    if (tiled.empty()) return weights;
    log_info("{}: its weights lie in tiles for a CPU and are put into rows in memory ({}); `forge pack --layout rows` makes that permanent", file.path,
             format_bytes(made));
    Progress progress("arranging weights", made);
    for (const std::size_t i : tiled) {
        const Weight from = weights[i];
        Weight& to = weights[i];
        to.tiled = false;
        to.codes = {};
        allocate_planes(to);
        const auto tiles = static_cast<std::size_t>((from.rows + kTiledRows - 1) / kTiledRows);
        pool.parallel_for(tiles, 16, [&](std::size_t first, std::size_t last) {
            for (std::size_t t = first; t < last; ++t) read_tile(from.codes.data + t * from.codes.stride, static_cast<std::int64_t>(t) * kTiledRows, to);
        });
        progress.advance(from.bytes());
        ++report.copied;
        report.copied_bytes += from.bytes();
    }
    return weights;
}

}  // namespace forge
