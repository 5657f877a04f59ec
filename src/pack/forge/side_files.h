// The files beside a model's weights: tokenizer, template, generation defaults, licence.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace forge {

struct SideFile {
    std::string name;  // within the folder, with '/'
    std::filesystem::path path;
    bool licence = false;
};

// Of a Hugging Face or MLX folder, sorted by name. Weights, indices of weights, pictures and texts for
// people are left out.
std::vector<SideFile> side_files(const std::filesystem::path& folder);

}  // namespace forge
