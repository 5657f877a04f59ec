#include "formats/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "formats/forge_model.h"
#include "internal.h"
#include "text.h"

namespace forge {

namespace fs = std::filesystem;

std::int64_t Tensor::elements() const {
    std::int64_t product = 1;
    for (std::int64_t dim : shape) product *= dim;
    return product;
}

std::int64_t Tensor::rows() const {
    std::int64_t product = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) product *= shape[i];
    return product;
}

std::string Tensor::describe() const {
    const std::string_view type =
        is_block ? gguf_type_name(static_cast<std::uint32_t>(block)) : name_of(dtype);
    return fmt::format("{} [{}] {}", printable(name), fmt::join(shape, ", "), type);
}

const Tensor* ModelFile::find(std::string_view name) const {
    const auto found = by_name_.find(std::string(name));
    return found == by_name_.end() ? nullptr : &tensors[found->second];
}

const Tensor& ModelFile::get(std::string_view name) const {
    if (const Tensor* tensor = find(name)) return *tensor;
    fail("{}: there is no tensor '{}' among its {}", path, printable(name), tensors.size());
}

std::uint64_t ModelFile::tensor_bytes() const {
    if (packed) return packed->plane_bytes();
    std::uint64_t sum = 0;
    for (const Tensor& tensor : tensors) sum += tensor.data.size();
    return sum;
}

void ModelFile::index_names() {
    by_name_.clear();
    by_name_.reserve(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i)
        if (!by_name_.emplace(tensors[i].name, i).second)
            fail("{}: two tensors are named '{}'", path, printable(tensors[i].name));
}

namespace {

std::shared_ptr<ModelFile> open_folder(const std::string& path) {
    if (fs::exists(fs::path(path) / "config.json")) return open_huggingface(path);
    std::vector<std::string> gguf, safetensors;
    std::string forge;
    bool pickle = false;
    std::error_code reason;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, reason)) {
        const std::string extension = entry.path().extension().string();
        if (extension == ".gguf") gguf.push_back(entry.path().filename().string());
        if (extension == ".safetensors") safetensors.push_back(entry.path().filename().string());
        if (extension == ".bin" || extension == ".pt" || extension == ".pth") pickle = true;
        if (extension == ".forge") forge = entry.path().string();
    }
    if (reason) fail(ErrorKind::io, "cannot list {}: {}", path, reason.message());
    std::sort(gguf.begin(), gguf.end());
    if (!gguf.empty())
        fail("{} is a folder without config.json; it holds GGUF, so name the file itself: {}", path,
             (fs::path(path) / gguf.front()).string());
    if (!safetensors.empty())
        fail("{} holds safetensors but no config.json; the whole model folder is needed, as it was published",
             path);
    if (!forge.empty()) fail("{} is a folder without config.json; it holds a .forge file, so name that: {}", path, forge);
    if (pickle)
        fail(ErrorKind::unsupported,
             "{} holds PyTorch's pickled weights, which are not read (they can run code); "
             "convert them to safetensors",
             path);
    fail("{} holds no model: wanted config.json with .safetensors files beside it", path);
}

std::shared_ptr<ModelFile> open_any(const std::string& path) {
    const fs::file_status status = fs::status(path);
    if (status.type() == fs::file_type::not_found)
        fail(ErrorKind::not_found, "there is no file or folder {}", path);
    if (fs::is_directory(status)) return open_folder(path);
    const std::string extension = fs::path(path).extension().string();
    if (is_forge(path)) return open_forge(path);
    if (extension == ".safetensors") return open_safetensors_file(path);
    if (extension == ".gguf") return open_gguf(path);
    const auto file = MappedFile::open(path);
    if (file->bytes().size() >= 4 && std::memcmp(file->bytes().data(), "GGUF", 4) == 0)
        return open_gguf(path);
    if (extension == ".bin" || extension == ".pt" || extension == ".pth")
        fail(ErrorKind::unsupported,
             "{}: PyTorch's pickled weights are not read (they can run code); convert them "
             "to safetensors",
             path);
    fail(
        "{} is no model that Forge reads: wanted a GGUF file, a .safetensors file, a folder with "
        "config.json or a .forge file",
        path);
}

}  // namespace

std::shared_ptr<ModelFile> open_model_file(const std::string& path) {
    try {
        return open_any(path);
    } catch (
        const fs::filesystem_error& error) {  // a folder on the way that may not be read, a path too long
        fail(ErrorKind::io, "cannot open {}: {}", path, error.code().message());
    }
}

}  // namespace forge
