// Builds the pipeline's parts from the components of a tokenizer.json. A
// component or option that is not implemented is refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decoder.h"
#include "json_reader.h"
#include "normalizer.h"
#include "pre_tokenizer.h"

namespace forge {

Normalizer parse_normalizer(const Json& json, const std::string& where);
PreTokenizer parse_pre_tokenizer(const Json& json, const std::string& where);
// The ids that a post-processor puts before and after a single text.
struct Surroundings {
    std::vector<std::int32_t> prefix, suffix;
};
Surroundings parse_post_processor(const Json& json, const std::string& where);
Decoder parse_decoder(const Json& json, const std::string& where);

}  // namespace forge
