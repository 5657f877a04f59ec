// A model folder as Hugging Face and MLX publish it: config.json beside
// safetensors.
#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/paths.h"
#include "internal.h"
#include "text.h"

namespace forge {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

template <typename J = Json>
J read_json(const fs::path& path) {
    const std::string text = read_file(path);
    try {
        J json = parse_json<J>(text, path.string(), true);
        if (!json.is_object())
            fail("{}: the file should hold a JSON object, but it holds {}", path.string(), json.type_name());
        return json;
    } catch (const typename J::parse_error& error) {
        const std::size_t at = std::min<std::size_t>(error.byte, text.size());
        const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
        fail("{}: line {} is no valid JSON (byte {} of the file)", path.string(), line, error.byte);
    }
}

template <typename J>
const J* object_at(const J& json, const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_object() ? &*found : nullptr;
}

// How the weights are stored: plain, or as MLX quantises. Other methods have
// tensors that would be misread, so they are refused by name.
ModelFormat format_of(const Json& config, const std::string& folder) {
    if (object_at(config, "quantization")) return ModelFormat::mlx;
    for (const Json* level : {&config, object_at(config, "text_config")}) {
        if (!level) continue;
        const Json* block = object_at(*level, "quantization_config");
        if (!block) continue;
        if (const auto method = block->find("quant_method"); method != block->end())
            fail(
                ErrorKind::unsupported,
                "{}: the weights are quantised with '{}', which is not supported; use the "
                "unquantised model, an MLX folder or a GGUF file of it",
                folder,
                printable(method->is_string() ? method->get<std::string>()
                                              : method->dump(-1, ' ', true, Json::error_handler_t::replace)));
        if (block->contains("bits") && block->contains("group_size")) return ModelFormat::mlx;
        fail(ErrorKind::unsupported,
             "{}: config.json has a quantization_config that names no method and is not MLX's "
             "(bits and group_size); use the unquantised model or a GGUF file of it",
             folder);
    }
    return ModelFormat::huggingface;
}

// model*.safetensors, sorted; what MLX reads.
std::vector<std::string> model_files(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code reason;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, reason)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("model") && name.ends_with(".safetensors")) names.push_back(name);
    }
    if (reason) fail(ErrorKind::io, "cannot list {}: {}", folder.string(), reason.message());
    std::sort(names.begin(), names.end());
    return names;
}

// The tensors that the index promises, by file.
struct Index {
    std::vector<std::string> files;                            // sorted
    std::vector<std::pair<std::string, std::string>> tensors;  // name, file
};

Index read_index(const fs::path& path) {
    // Not ordered: an ordered object looks every one of its names up on insertion.
    const auto json = read_json<nlohmann::json>(path);
    const nlohmann::json* map = object_at(json, "weight_map");
    if (!map) fail("{}: the index lacks its 'weight_map'", path.string());
    Index index;
    std::set<std::string> files;
    for (const auto& [name, file] : map->items()) {
        if (!file.is_string())
            fail("{}: the file of tensor '{}' is not given as text", path.string(), printable(name));
        const auto& text = file.get_ref<const std::string&>();
        if (text.empty() || text != fs::path(text).filename() || text == "." || text == "..")
            fail("{}: tensor '{}' is said to be in '{}', which is no file name within the folder",
                 path.string(), printable(name), printable(text));
        files.insert(text);
        index.tensors.emplace_back(name, text);
    }
    index.files.assign(files.begin(), files.end());
    return index;
}

std::shared_ptr<ModelFile> open_with(const std::string& folder, const std::string& wanted_file) {
    const fs::path root(folder);
    auto model = std::make_shared<ModelFile>();
    model->path = wanted_file.empty() ? folder : (root / wanted_file).string();
    model->config = read_json(root / "config.json");
    if (fs::exists(root / "generation_config.json"))
        model->generation_config = read_json(root / "generation_config.json");
    model->format = format_of(model->config, folder);
    model->metadata.source = folder;

    const fs::path index_path = root / "model.safetensors.index.json";
    Index index;
    const bool single = fs::exists(root / "model.safetensors");
    if (model->format == ModelFormat::mlx) {
        index.files = model_files(root);  // an index is often the unquantised model's
    } else if (single) {
        index.files = {"model.safetensors"};
    } else if (fs::exists(index_path)) {
        index = read_index(index_path);
    } else {
        index.files = model_files(root);
    }
    if (index.files.empty())
        fail(
            "{}: there is config.json but no model.safetensors, model.safetensors.index.json or "
            "model-*.safetensors; download the weights too",
            folder);
    if (!wanted_file.empty() &&
        std::find(index.files.begin(), index.files.end(), wanted_file) == index.files.end())
        fail(
            "{}: this file is not one of the model in its folder ({} and so on); name the folder to open "
            "that model",
            model->path, index.files.front());

    for (const std::string& name : index.files) {
        const fs::path path = root / name;
        if (!fs::exists(path))
            fail(ErrorKind::not_found, "{}: the index names {}, which is not in the folder; download it",
                 folder, name);
        std::shared_ptr<MappedFile> file = MappedFile::open(path.string());
        model->files.push_back(file);
        append_safetensors(file->bytes(), path.string(), file, *model);
    }
    model->index_names();
    for (const auto& [name, file] : index.tensors) {
        const Tensor* tensor = model->find(name);
        if (!tensor || base_name(tensor->file->path()) != file)
            fail("{}: the index says that tensor '{}' is in {}, but it is not there", folder, printable(name),
                 file);
    }
    return model;
}

}  // namespace

std::shared_ptr<ModelFile> open_huggingface(const std::string& folder) { return open_with(folder, ""); }

std::shared_ptr<ModelFile> open_safetensors_file(const std::string& path) {
    if (!fs::exists(path)) fail(ErrorKind::not_found, "there is no file {}", path);
    const fs::path file(path);
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    if (!fs::exists(folder / "config.json"))
        fail("{}: a .safetensors file holds tensors only; config.json should be beside it, but {} has none",
             path, folder.string());
    return open_with(folder.string(), file.filename().string());
}

}  // namespace forge
