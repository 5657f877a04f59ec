// Whether a .forge model's blobs are what their names say.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/model_file.h"

namespace forge {

// Reads every blob of the model at `path` (a .forge file, or a manifest in a store) and compares size and BLAKE3
// with the manifest's. One sentence for each that is missing or differs; the model need not open.
std::vector<std::string> wrong_blobs(const std::string& path, ThreadPool& pool);
// Of a model that is open; Error when it is none of this format.
std::vector<std::string> wrong_blobs(const ModelFile& model, ThreadPool& pool);

}  // namespace forge
