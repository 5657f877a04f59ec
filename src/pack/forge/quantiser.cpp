#include "quantiser.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/error.h"
#include "quant/convert.h"
#include "quant/tiles.h"

namespace forge {

Quantiser::Quantiser(const std::vector<std::string>& recipes, const WeightSource& source, std::string path)
    : recipe_(recipes), source_(source), modules_(source.modules()), path_(std::move(path)) {}

std::optional<MlxFormat> Quantiser::choose(WeightId id, const PackedWeight& weight) const {
    const std::string& module = modules_[static_cast<std::size_t>(id)];
    if (module.empty()) return std::nullopt;
    std::string alias = weight.key.name;
    if (alias.ends_with(".weight")) alias.resize(alias.size() - 7);
    const mlx::Choice choice = recipe_.choose(module, weight.cols, source_.spec(), alias);
    if (choice.format && !weight.format.is_dense())
        fail(ErrorKind::unsupported,
             "{}: {} is quantised already ({}), and quantising it once more would add a second error to the first; give --quantize the model that this "
             "one was made from (f32, f16 or bf16), or leave --quantize out",
             path_, weight.key.name, describe(weight.format));
    return choice.format;
}

Weight Quantiser::encode(const Weight& rows, const MlxFormat& format, bool tiled, ThreadPool& pool) const {
    const DType type = rows.format.dense_type;
    Weight planes;
    planes.name = rows.name;
    planes.format = mlx_planes(format, type);
    planes.rows = rows.rows;
    planes.cols = rows.cols;
    planes.global_scale = rows.global_scale;
    allocate_planes(planes);
    const auto at = [](const Plane& plane, std::size_t row) { return const_cast<std::byte*>(plane.data) + row * plane.stride; };
    Weight plain = rows;
    plain.global_scale = 1;  // it multiplies the result as it did the source
    std::atomic<bool> finite{true};
    const auto count = static_cast<std::size_t>(rows.rows), cols = static_cast<std::size_t>(rows.cols);
    pool.parallel_for(count, std::max<std::size_t>(1, 16384 / std::max<std::size_t>(1, cols)), [&](std::size_t first, std::size_t last) {
        std::vector<float> row(cols);
        for (std::size_t r = first; r < last; ++r) {
            decode_row(plain, static_cast<std::int64_t>(r), row.data());
            if (!std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); })) {
                finite = false;
                return;
            }
            encode_mlx_row(format, type, row, at(planes.codes, r), at(planes.scales, r), planes.offsets.data ? at(planes.offsets, r) : nullptr);
        }
    });
    if (!finite) fail("{}: {} holds numbers that are not finite", path_, rows.name);
    if (!tiled) return planes;
    Weight tiles = planes;
    tiles.codes = tiles.scales = tiles.offsets = {};
    tiles.owner.reset();
    allocate_tiles(tiles);
    pool.parallel_for((count + kTiledRows - 1) / kTiledRows, 16, [&](std::size_t first, std::size_t last) {
        for (std::size_t t = first; t < last; ++t) write_tile(planes, static_cast<std::int64_t>(t) * kTiledRows, at(tiles.codes, t));
    });
    return tiles;
}

}  // namespace forge
