// A model on disk, opened: named tensors in mapped files, plus what the format
// says about the model (metadata or config). Nothing is copied here.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/mapped_file.h"
#include "base/metadata.h"
#include "quant/gguf_blocks.h"

namespace forge {

struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;  // outermost first (PyTorch order), for GGUF too
    bool is_block = false;            // true: `block` says how; false: `dtype`
    DType dtype = DType::f32;
    // GGUF's type id. It may be one without a formula (gguf_decodable says): such
    // a tensor is refused by name when something wants to read it.
    GgufType block = GgufType::f32;
    std::span<const std::byte> data;  // in a mapped file
    std::shared_ptr<MappedFile> file;

    std::int64_t elements() const;
    std::int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
    std::int64_t rows() const;        // product of the other dimensions
    std::string describe() const;     // "blk.0.attn_q.weight [1024, 576] q4_0"
};

// Whose names and whose configuration the model has. A .forge model keeps those of the model that it
// was made from; ModelFile::packed says that it is one.
enum class ModelFormat { gguf, huggingface, mlx };

class ForgeModel;

struct ModelFile {
    ModelFormat format = ModelFormat::gguf;
    std::string path;                 // as the user gave it
    Metadata metadata;                // GGUF; safetensors: the strings of "__metadata__"
    nlohmann::ordered_json config;    // Hugging Face and MLX: config.json
    nlohmann::ordered_json generation_config;  // generation_config.json or null
    std::vector<Tensor> tensors;      // in file order
    std::vector<std::shared_ptr<MappedFile>> files;
    // A .forge model: its weights are there, ready; `tensors` describes what they were made from, and
    // only small ones that no weight is made from have data.
    std::shared_ptr<const ForgeModel> packed;

    const Tensor* find(std::string_view name) const;   // nullptr when absent
    const Tensor& get(std::string_view name) const;    // Error names the file and the tensor
    std::uint64_t tensor_bytes() const;
    void index_names();               // readers call it once; duplicate names are an Error

  private:
    std::unordered_map<std::string, std::size_t> by_name_;
};

// Opens a GGUF file (any part of a split one), a .safetensors file, a folder that holds config.json and
// safetensors, a .forge file or a manifest in a store. Errors name the path and the reason.
std::shared_ptr<ModelFile> open_model_file(const std::string& path);

std::shared_ptr<ModelFile> open_gguf(const std::string& path);
std::shared_ptr<ModelFile> open_huggingface(const std::string& folder);

// Parsers on bytes, for tests and fuzzing: `source` is used in messages only.
// Tensors are appended to `out` and indexed by name; their spans point into `bytes`.
void parse_gguf(std::span<const std::byte> bytes, const std::string& source, ModelFile& out);
void parse_safetensors(std::span<const std::byte> bytes, const std::string& source, ModelFile& out);

}  // namespace forge
