// Float weights quantised on their way into a .forge model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "mlx/recipe.h"
#include "model/weight_source.h"
#include "pack/mlx_encode.h"
#include "quant/weight.h"

namespace forge {

class Quantiser {
  public:
    // `recipes` as in QuantizeOptions; `path` is the model's, for messages.
    Quantiser(const std::vector<std::string>& recipes, const WeightSource& source, std::string path);

    // What a weight becomes; nullopt: it stays as it is. Error when it is quantised already.
    std::optional<MlxFormat> choose(WeightId id, const PackedWeight& weight) const;
    // Rows of floats, encoded; in tiles where `tiled`. Error when a number is not finite.
    Weight encode(const Weight& rows, const MlxFormat& format, bool tiled, ThreadPool& pool) const;

  private:
    mlx::Recipe recipe_;
    const WeightSource& source_;
    std::vector<std::string> modules_;
    std::string path_;
};

}  // namespace forge
