// GGUF on disk: split files, and files that hold no text model.
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <regex>

#include "base/error.h"
#include "internal.h"
#include "text.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

// "model-00002-of-00005.gguf"
struct SplitName {
    std::string prefix;  // folder included, up to the dash before the number
    int part;            // from 1
    int parts;

    std::string path_of(int number) const {
        return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, parts);
    }
};

std::optional<SplitName> split_name(const std::string& path) {
    static const std::regex pattern("-([0-9]{5})-of-([0-9]{5})\\.gguf$");
    std::smatch match;
    const std::size_t tail = 20;  // length of what the pattern matches
    if (path.size() < tail) return std::nullopt;
    const std::string end = path.substr(path.size() - tail);
    if (!std::regex_match(end, match, pattern)) return std::nullopt;
    return SplitName{path.substr(0, path.size() - tail), std::stoi(match[1]), std::stoi(match[2])};
}

void refuse_other_kinds(const Metadata& metadata) {
    const std::string type = metadata.string("general.type", "model");
    if (type == "adapter")
        fail(ErrorKind::unsupported,
             "{}: this is a LoRA adapter; adapters are not supported, so merge it into its "
             "base model first",
             metadata.source);
    if (type == "imatrix")
        fail("{}: this is an importance matrix (data for quantising), not a model", metadata.source);
    if (type == "mmproj" || metadata.string("general.architecture", "") == "clip")
        fail(ErrorKind::unsupported,
             "{}: this is the image or audio encoder of a model, which is not supported; open "
             "the text model's own file",
             metadata.source);
    if (type != "model" && !type.empty())
        fail(ErrorKind::unsupported, "{}: general.type is '{}'; Forge runs files of type 'model'",
             metadata.source, printable(type));
    if (!metadata.has("general.architecture"))
        fail("{}: metadata key 'general.architecture' is missing, so nothing says which model this is",
             metadata.source);
}

void append_file(const std::string& path, ModelFile& out) {
    std::shared_ptr<MappedFile> file = MappedFile::open(path);
    out.files.push_back(file);
    append_gguf(file->bytes(), path, file, out);
}

void check_part(const Metadata& metadata, int part, int parts) {
    if (!metadata.has("split.no") || !metadata.has("split.count"))
        fail(
            "{}: by its name this is part {} of {}, but its metadata has no split.no and split.count; the "
            "file "
            "belongs to another model",
            metadata.source, part, parts);
    const std::int64_t number = metadata.integer("split.no");
    const std::int64_t count = metadata.integer("split.count");
    if (number != part - 1 || count != parts)
        fail(
            "{}: by its name this is part {} of {}, but its metadata says {} of {}; the parts of a split "
            "model must "
            "keep their names",
            metadata.source, part, parts, number + 1, count);
}

}  // namespace

std::shared_ptr<ModelFile> open_gguf(const std::string& path) {
    auto model = std::make_shared<ModelFile>();
    model->format = ModelFormat::gguf;
    model->path = path;

    const std::optional<SplitName> name = split_name(path);
    // Keys tell a split file apart, names say where its other parts are.
    ModelFile first;
    append_file(path, first);
    const std::int64_t parts = first.metadata.integer("split.count", 1);
    if (parts <= 1) {
        refuse_other_kinds(first.metadata);
        first.format = model->format;
        first.path = path;
        *model = std::move(first);
        model->index_names();
        return model;
    }
    if (!name)
        fail(
            "{}: this is part {} of a model split into {} files, but its name does not end in "
            "-00001-of-{:05}.gguf, so the others cannot be found; restore the original names",
            path, first.metadata.integer("split.no", 0) + 1, parts, parts);
    if (name->parts != parts)
        fail(
            "{}: by its name the model is split into {} files, but its metadata says {}; the parts of a "
            "split model "
            "must keep their names",
            path, name->parts, parts);
    for (int part = 1; part <= name->parts; ++part) {
        const std::string part_path = name->path_of(part);
        if (!fs::exists(part_path))
            fail(ErrorKind::not_found, "{}: the model is split into {} files and part {} is missing: {}",
                 path, name->parts, part, part_path);
        ModelFile one;
        append_file(part_path, one);
        check_part(one.metadata, part, name->parts);
        if (part == 1) {
            refuse_other_kinds(one.metadata);
            model->metadata = std::move(one.metadata);
        }
        for (Tensor& tensor : one.tensors) model->tensors.push_back(std::move(tensor));
        model->files.push_back(std::move(one.files.front()));
    }
    const std::int64_t total = model->metadata.integer("split.tensors.count", -1);
    if (total >= 0 && static_cast<std::size_t>(total) != model->tensors.size())
        fail(
            "{}: the parts hold {} tensors together, but the first one says {}; a part belongs to another "
            "model",
            path, model->tensors.size(), total);
    model->index_names();
    return model;
}

}  // namespace forge
