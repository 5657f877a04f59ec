#include "formats/forge_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/paths.h"
#include "base/progress.h"
#include "formats/forge_container.h"
#include "formats/forge_metadata.h"
#include "formats/xxh3.h"
#include "text.h"

namespace forge {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string_view text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string label(const std::string& source, const ManifestBlob& blob) {
    return blob.name.empty() ? fmt::format("{}: {}", source, blob.role) : fmt::format("{}: {} {}", source, blob.role, printable(blob.name));
}

Plane* plane_of(Weight& weight, PlaneKind kind) {
    Plane* const planes[] = {&weight.codes, &weight.codes_high, &weight.scales, &weight.offsets, &weight.super_scales, &weight.super_mins};
    return planes[static_cast<std::size_t>(kind)];
}

Json json_file(const ForgeModel& model, std::string_view name, bool required) {
    const auto text = model.file(name);
    const std::string source = fmt::format("{}: {}", model.manifest().source, name);
    if (!text && required) fail("{} is missing", source);
    if (!text) return nullptr;
    Json json = parse_json<Json>(*text, source, false);
    if (!json.is_object()) fail("{} should hold a JSON object", source);
    return json;
}

// The first touch of a page that is not in memory makes the system read megabytes around it and wait for
// them: ten milliseconds a shard. So its header and its end are asked for by themselves, all shards at once.
void ask_for_what_opening_reads(const ManifestBlob& entry, const BlobBytes& blob) {
    constexpr std::size_t end = std::size_t{64} << 10;   // index and footer: some hundred bytes a weight
    const std::size_t size = blob.bytes.size();
    if (entry.role != "shard" || size <= end) {
        blob.file->read_ahead(blob.offset, size);
        return;
    }
    blob.file->read_ahead(blob.offset, kPlaneAlignment);
    blob.file->read_ahead(blob.offset + size - end, end);
}

}  // namespace

void ForgeModel::add_shard(const ManifestBlob& entry, BlobBytes blob) {
    Shard shard{std::move(blob), {}, label(manifest_.source, entry)};
    shard.index = read_shard(shard.blob.bytes, shard.source);
    if (shard.index.index_hash != entry.index_hash)
        fail("{}: the shard's index is another than the manifest says (XXH3 {:016x}, not {:016x}); the shard was swapped", shard.source, shard.index.index_hash,
             entry.index_hash);
    const auto owner = shard.blob.file;
    for (const PackedWeight& packed : shard.index.weights) {
        Weight weight;
        weight.name = packed.key.name;
        weight.format = packed.format;
        weight.rows = packed.rows;
        weight.cols = packed.cols;
        weight.tiled = packed.tiled;
        weight.global_scale = packed.global_scale;
        weight.owner = owner;
        for (const PackedPlane& plane : packed.planes)
            *plane_of(weight, plane.kind) = {shard.blob.bytes.data() + plane.offset, static_cast<std::size_t>(plane.stride)};
        if (!by_key_.emplace(packed.key, weights_.size()).second)
            fail("{}: the weight '{}' is in the model twice", shard.source, printable(packed.key.name));
        weights_.push_back(std::move(weight));
    }
    shards_.push_back(std::move(shard));
}

const Weight* ForgeModel::find(const PackedKey& key) const {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : &weights_[found->second];
}

std::string_view ForgeModel::layout() const {
    return std::any_of(weights_.begin(), weights_.end(), [](const Weight& weight) { return weight.tiled; }) ? "tiled16" : "rows";
}

std::uint64_t ForgeModel::plane_bytes() const {
    std::uint64_t sum = 0;
    for (const Weight& weight : weights_) sum += weight.bytes();
    return sum;
}

std::optional<std::string_view> ForgeModel::file(std::string_view name) const {
    for (std::size_t i = 0; i < manifest_.blobs.size(); ++i)
        if (manifest_.blobs[i].role == "file" && manifest_.blobs[i].name == name) return text_of(blobs_[i].bytes);
    return std::nullopt;
}

std::vector<std::string> ForgeModel::file_names() const {
    std::vector<std::string> names;
    for (const ManifestBlob& blob : manifest_.blobs)
        if (blob.role == "file") names.push_back(blob.name);
    return names;
}

void ForgeModel::verify(ThreadPool& pool) const {
    // Pieces of planes are hashed in the order in which they lie, so that a cold disk is read once, front
    // to back; whoever takes a plane asks for the next ones first.
    struct Task {
        const Shard* shard;
        const PackedWeight* weight;
        const PackedPlane* plane;
    };
    std::vector<Task> tasks;
    std::uint64_t total = 0;
    for (const Shard& shard : shards_)
        for (const PackedWeight& weight : shard.index.weights)
            for (const PackedPlane& plane : weight.planes) {
                tasks.push_back({&shard, &weight, &plane});
                total += plane.bytes;
            }
    Progress progress("verifying weights", total);
    constexpr std::size_t ahead = std::size_t{32} << 20;
    pool.parallel_for(tasks.size(), 1, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) {
            const auto& [shard, weight, plane] = tasks[i];
            const BlobBytes& blob = shard->blob;
            const auto bytes = blob.bytes.subspan(static_cast<std::size_t>(plane->offset), static_cast<std::size_t>(plane->bytes));
            Xxh3 hash;
            constexpr std::size_t piece = std::size_t{8} << 20;
            for (std::size_t at = 0; at < bytes.size(); at += piece) {
                const auto part = bytes.subspan(at, std::min(piece, bytes.size() - at));
                const std::size_t where = blob.offset + static_cast<std::size_t>(plane->offset) + at;
                blob.file->read_ahead(where, std::max(part.size(), ahead));
                blob.file->populate(where, part.size());
                hash.update(part);
                progress.advance(part.size());
            }
            if (hash.finish() != plane->hash)
                fail("{}: the {} of '{}' ({} bytes at {}) do not have the XXH3 that the shard's footer says ({:016x}, not {:016x}): the shard is damaged; pull or pack the model again",
                     shard->source, name_of(plane->kind), printable(weight->key.name), plane->bytes, plane->offset, hash.finish(), plane->hash);
        }
    });
}

std::shared_ptr<ModelFile> open_forge_blobs(std::string_view manifest, const std::string& source,
                                            const std::function<BlobBytes(const ManifestBlob&)>& lookup) {
    auto packed = std::make_shared<ForgeModel>();
    packed->manifest_ = Manifest::parse(manifest, source);
    auto model = std::make_shared<ModelFile>();
    model->path = source;
    const Manifest& m = packed->manifest_;
    model->format = m.origin == "gguf" ? ModelFormat::gguf : m.origin == "mlx" ? ModelFormat::mlx : ModelFormat::huggingface;
    model->metadata.source = source;
    bool tensors = false;
    for (const ManifestBlob& entry : m.blobs) {
        packed->blobs_.push_back(lookup(entry));
        ask_for_what_opening_reads(entry, packed->blobs_.back());
    }
    for (std::size_t i = 0; i < m.blobs.size(); ++i) {
        const ManifestBlob& entry = m.blobs[i];
        BlobBytes blob = packed->blobs_[i];
        if (blob.bytes.size() != entry.bytes)
            fail("{} should have {} bytes, but it has {}; it is truncated or was swapped", label(source, entry), entry.bytes, blob.bytes.size());
        if (std::find(model->files.begin(), model->files.end(), blob.file) == model->files.end()) model->files.push_back(blob.file);
        if (entry.role == "metadata" || entry.role == "tokenizer") decode_pairs(blob.bytes, label(source, entry), model->metadata);
        if (entry.role == "tensors") {
            if (tensors) fail("{}: there are two lists of tensors", source);
            tensors = true;
            model->tensors = decode_tensor_list(blob.bytes, label(source, entry));
        }
        if (entry.role == "shard") packed->add_shard(entry, std::move(blob));
    }
    if (!tensors || packed->shards_.empty()) fail("{}: the model lacks its {}", source, tensors ? "shards" : "list of tensors");
    if (model->format != ModelFormat::gguf) {
        model->config = json_file(*packed, "config.json", true);
        model->generation_config = json_file(*packed, "generation_config.json", false);
    }
    model->index_names();
    model->packed = std::move(packed);
    return model;
}

bool is_forge(const std::string& path) {
    const fs::path p(path);
    std::error_code ignored;
    if (!fs::is_regular_file(p, ignored)) return false;
    if (p.extension() == ".forge") return true;
    if (p.extension() == ".json") return (p.parent_path().filename() == "manifests" || p.parent_path().filename() == "partial") && p.filename().string().find('@') != std::string::npos;
    const auto file = MappedFile::open(path);
    return file->bytes().size() >= 8 && std::memcmp(file->bytes().data(), "FORGEMDL", 8) == 0;
}

ForgeBlobs find_forge_blobs(const std::string& path) {
    const fs::path p(path);
    if (p.extension() == ".json") {
        const fs::path blobs = p.parent_path().parent_path() / "blobs";
        return {read_file(p), [blobs, path](const ManifestBlob& entry) {
            const fs::path where = blob_path_in(blobs, entry.digest);
            std::error_code ignored;
            if (!fs::exists(where, ignored))
                fail(ErrorKind::not_found, "{} is not in the store ({}); pull or pack the model again", label(path, entry), where.string());
            BlobBytes blob{MappedFile::open(where.string()), 0, {}};
            blob.bytes = blob.file->bytes();
            return blob;
        }};
    }
    const auto file = MappedFile::open(path);
    const Container container = read_container(file->bytes(), path);
    return {std::string(container.manifest), [file, path, there = container.blobs](const ManifestBlob& entry) {
        for (const ContainedBlob& blob : there)
            if (blob.digest == entry.digest)
                return BlobBytes{file, static_cast<std::size_t>(blob.offset),
                                 file->bytes().subspan(static_cast<std::size_t>(blob.offset), static_cast<std::size_t>(blob.bytes))};
        fail("{} is not in the file's directory ({})", label(path, entry), entry.digest.hex());
    }};
}

std::shared_ptr<ModelFile> open_forge(const std::string& path) {
    const ForgeBlobs blobs = find_forge_blobs(path);
    return open_forge_blobs(blobs.manifest, path, blobs.lookup);
}

}  // namespace forge
