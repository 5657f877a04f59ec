// Whether a .forge model's blobs are what their names say.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/model_file.h"

namespace forge {

// Reads every blob and compares its BLAKE3 with the manifest's. One sentence for each that differs.
std::vector<std::string> wrong_blobs(const ModelFile& model, ThreadPool& pool);

}  // namespace forge
