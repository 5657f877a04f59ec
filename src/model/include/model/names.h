// Tensor names of a file: one spelling a format, and for Hugging Face files one
// of several prefixes, told apart by the names that are there.
#pragma once

#include <string>
#include <string_view>

#include "formats/model_file.h"

namespace forge {

class Names {
  public:
    Names() = default;
    // Finds the prefix by looking for the embedding. A file without tensors (a
    // config alone) gets the plain prefix.
    explicit Names(const ModelFile& file);

    bool gguf() const { return gguf_; }
    const std::string& prefix() const { return prefix_; }  // "model.", "language_model.model.", ...
    std::string embed() const;
    std::string final_norm() const;
    std::string head() const;  // the head's name, whether or not the file has it
    // Name of another tensor of the model itself from its two spellings.
    std::string top(std::string_view hf, std::string_view gguf) const;
    // Name of a layer's tensor from its two spellings (see TensorRow).
    std::string layer(std::size_t index, std::string_view hf, std::string_view gguf) const;

  private:
    bool gguf_ = false;
    std::string prefix_ = "model.";
    std::string head_ = "lm_head.weight";
};

// Tensors that belong to parts that Forge does not run, and stored constants
// that it computes itself: vision towers, multi-token prediction, inv_freq.
bool is_ignored_tensor(std::string_view name);

}  // namespace forge
