// What the files of this room share.
#pragma once

#include <memory>
#include <string>

#include "formats/model_file.h"

namespace forge {

// The file decides the folder: all of the model in it is opened.
std::shared_ptr<ModelFile> open_safetensors_file(const std::string& path);

// The parsers without the final index_names(), for models of several files.
// `file` (may be null) is stored in every tensor.
void append_gguf(std::span<const std::byte> bytes, const std::string& source,
                 std::shared_ptr<MappedFile> file, ModelFile& out);
void append_safetensors(std::span<const std::byte> bytes, const std::string& source,
                        std::shared_ptr<MappedFile> file, ModelFile& out);

}  // namespace forge
