// config.json of an MLX folder.
#pragma once

#include <nlohmann/json.hpp>

#include "formats/model_file.h"
#include "layout.h"
#include "model/spec.h"

namespace forge::mlx {

// The source's config with the quantization block, and beside newer spellings the keys that mlx-lm
// reads. Warns where mlx-lm would compute something else than the model says.
nlohmann::json config_of(const ModelFile& file, const ModelSpec& spec, const Layout& layout, const nlohmann::json& quantization);

}  // namespace forge::mlx
