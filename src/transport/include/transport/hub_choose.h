// Which files of a repository make up the model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/hub_reference.h"

namespace forge {

inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";

// Whether there is a model of config.json and safetensors among the names.
bool has_folder_model(const std::vector<std::string>& names);
// Config, tokenizer, template and licence files beside the weights, in the repository's top folder.
bool is_companion(std::string_view name);
// The safetensors of the model in the top folder; without an index, every one that is not another
// form of the same weights (consolidated*, adapter_*).
std::vector<std::string> choose_safetensors(const std::vector<std::string>& names);
// The names that an index lists, sorted; each is checked to stay inside the repository.
std::vector<std::string> files_of_index(std::string_view text, const std::string& where);

bool is_gguf_model(std::string_view name);  // not a projector, adapter or importance matrix
// One GGUF model: all its parts that are among the names, sorted. Error listing the choices where
// reference.select matches none or several.
std::vector<std::string> choose_gguf(const std::vector<std::string>& names, const HubReference& reference);
// "" or the part that is not in the list, of a model in several files ("...-00002-of-00003.gguf").
std::string missing_gguf_part(const std::vector<std::string>& parts);

// A path that a server names, inside a repository: relative, no "..", no control characters.
bool is_safe_repo_path(std::string_view path);
// '*' matches any characters, '?' one.
bool matches_glob(std::string_view pattern, std::string_view text);

}  // namespace forge
