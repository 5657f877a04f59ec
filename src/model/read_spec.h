// The two readers of the numbers that a file states about a model.
#pragma once

#include "family.h"

namespace forge {

Draft read_config(const ModelFile& file);    // Hugging Face and MLX: config.json
Draft read_metadata(const ModelFile& file);  // GGUF
// By the file's format.
Draft read_draft(const ModelFile& file);

// Shared end of both readers: dimensions that must fit each other, norms,
// embedding scale. Layers are complete by then.
void finish_dimensions(Draft& draft, double eps);
Activation activation_named(const std::string& name, const std::string& where);
// Appends the ids that are in the vocabulary and not listed yet.
void add_stop_ids(ModelSpec& spec, std::span<const std::int64_t> ids);

}  // namespace forge
