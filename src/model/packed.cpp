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
namespace {

// The planes of a use; Error when they are not there or not of its shape.
const Weight& stored_weight(const ModelFile& file, const TensorUse& use) {
    const Weight* stored = file.packed->find(packed_key(use));
    if (!stored)
        fail("{}: there are no planes for {} (from row {}); the model was packed by another version of Forge: pack it again from its source",
             file.path, use.tensor->describe(), use.first_row);
    if (stored->rows != use.rows || stored->cols != use.cols)
        fail("{}: the planes of {} hold {} rows of {}, but {} of {} are wanted; the file is damaged", file.path, use.tensor->describe(), stored->rows,
             stored->cols, use.rows, use.cols);
    if (use.as_f32 && !stored->format.is_dense()) fail("{}: {} should be stored as floats; the file is damaged", file.path, use.tensor->describe());
    return *stored;
}

}  // namespace

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
        const Weight& stored = stored_weight(file, use);
        if (stored.tiled && layout == WeightLayout::rows) {
            tiled.push_back(weights.size());
            made += stored.bytes();
        } else {
            ++report.mapped;
            report.mapped_bytes += stored.bytes();
        }
        weights.push_back(stored);
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

Weight packed_rows(const ModelFile& file, const TensorUse& use, std::int64_t first, std::int64_t last, WeightLayout layout) {
    Weight out = stored_weight(file, use);
    out.rows = last - first;
    const std::int64_t unit = out.tiled ? kTiledRows : 1;
    for (Plane* plane : {&out.codes, &out.codes_high, &out.scales, &out.offsets, &out.super_scales, &out.super_mins})
        if (plane->data) plane->data += static_cast<std::size_t>(first / unit) * plane->stride;
    if (out.tiled && layout == WeightLayout::rows) {
        Weight rows = out;
        rows.tiled = false;
        rows.codes = {};
        allocate_planes(rows);
        for (std::int64_t r = 0; r < out.rows; r += kTiledRows) read_tile(out.codes.data + static_cast<std::size_t>(r / kTiledRows) * out.codes.stride, r, rows);
        return rows;
    }
    if (!out.tiled && layout != WeightLayout::rows && out.rows >= kTiledRows && can_tile(out.format)) {
        Weight tiles = out;
        tiles.codes = tiles.codes_high = tiles.scales = tiles.offsets = tiles.super_scales = tiles.super_mins = {};
        allocate_tiles(tiles);
        for (std::int64_t r = 0; r < out.rows; r += kTiledRows)
            write_tile(out, r, const_cast<std::byte*>(tiles.codes.data) + static_cast<std::size_t>(r / kTiledRows) * tiles.codes.stride);
        return tiles;
    }
    return out;
}

std::uint64_t packed_bytes(const ModelFile& file, const TensorUse& use) { return stored_weight(file, use).bytes(); }

}  // namespace forge
