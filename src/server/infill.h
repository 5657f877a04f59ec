// Filling in between two texts: /infill, and suffix on /v1/completions and /api/generate.
#pragma once

#include "openai.h"

namespace forge::server {

// ApiError naming the suffix when the model has no tokens for it.
Prompt infill_prompt(const TextModel& model, std::string_view before, std::string_view after);

Translated infill(const Json& body);

}  // namespace forge::server
