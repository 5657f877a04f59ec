#include "pack/pack.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/paths.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "blob_sink.h"
#include "formats/forge_manifest.h"
#include "formats/forge_metadata.h"
#include "formats/forge_model.h"
#include "formats/forge_shard.h"
#include "formats/model_file.h"
#include "formats/xxh3.h"
#include "model/weight_source.h"
#include "pack/quantize.h"
#include "quant/tiles.h"
#include "quantiser.h"
#include "side_files.h"
#include "store/blake3.h"
#include "store/store.h"

namespace forge {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t slice_bytes = std::uint64_t{8} << 20;  // of the source that are in work at once
constexpr std::int64_t small_tensor = 65536;                   // elements

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

bool is_file_output(const std::string& output) { return output.ends_with(".forge"); }

std::string_view name_of(ModelFormat format) {
    switch (format) {
        case ModelFormat::gguf: return "gguf";
        case ModelFormat::huggingface: return "huggingface";
        case ModelFormat::mlx: return "mlx";
    }
    return "";
}

fs::path folder_of(const ModelFile& file) {
    const fs::path p(file.path);
    if (fs::is_directory(p)) return p;
    return p.has_parent_path() ? p.parent_path() : fs::path(".");
}

std::string_view text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// What names the work, so that a stopped run can go on: the sources' state on disk and all that decides
// the bytes.
std::string work_key(const ModelFile& file, const PackOptions& options) {
    std::string text = fmt::format("{}|{}|{}\n", options.version, kForgeVersion, options.layout == WeightLayout::rows ? "rows" : "tiled16");
    for (const std::string& recipe : options.recipes) text += recipe + "\n";
    for (const auto& mapped : file.files) {
        struct stat info{};
        if (::stat(mapped->path().c_str(), &info) != 0) fail(ErrorKind::io, "cannot look at {}", mapped->path());
        text += fmt::format("{} {} {} {}\n", fs::absolute(mapped->path()).string(), info.st_size, info.st_ino, static_cast<long long>(info.st_mtime));
    }
    return blake3(bytes_of(text)).hex().substr(0, 24);
}

class Packer {
  public:
    // original: what the user named; file: what is packed, the same or its quantised form. quantise: its weights
    // are quantised while they are packed.
    Packer(const PackOptions& options, const ModelFile& original, const ModelFile& file, bool quantise, BlobSink& sink)
        : options_(options), original_(original), file_(file), sink_(sink), source_(file), pool_(options.threads) {
        if (quantise) quantiser_.emplace(options.recipes, source_, file.path);
    }

    PackSummary run() {
        manifest_.origin = name_of(file_.format);
        manifest_.layout = layout_ == WeightLayout::rows ? "rows" : "tiled16";
        pack_shards();
        pack_small();
        describe_model();
        if (options_.prove) {
            const std::string proof = options_.prove(sink_.preview(manifest_.dump()));
            add_small("proof", "", proof);
        }
        summary_.bytes = manifest_.bytes();
        summary_.path = sink_.finish(manifest_.dump());
        return summary_;
    }

  private:
    void pack_shards() {
        summary_.parameters = source_.spec().parameters;
        const std::vector<WeightPart> parts = source_.parts();
        if (quantiser_) choose_formats(parts);
        std::uint64_t total = 0;
        for (const WeightPart& part : parts)
            for (const WeightId id : part.weights) total += source_.source_bytes(id);
        summary_.source_bytes = total;
        Progress progress("packing " + options_.output, total);
        for (const WeightPart& part : parts)
            if (!part.weights.empty()) pack_shard(part, progress);
    }

    // Before anything is written: a weight that cannot be quantised refuses the model.
    void choose_formats(const std::vector<WeightPart>& parts) {
        for (const WeightPart& part : parts)
            for (const WeightId id : part.weights)
                if (const auto format = quantiser_->choose(id, source_.describe(id, layout_, pool_))) formats_.emplace(id, *format);
        if (formats_.empty()) fail("{}: nothing would be quantised: no weight that the recipe is for has rows of whole groups", original_.path);
    }

    const MlxFormat* format_of(WeightId id) const {
        const auto found = formats_.find(id);
        return found == formats_.end() ? nullptr : &found->second;
    }

    PackedWeight describe(WeightId id) {
        PackedWeight weight = source_.describe(id, layout_, pool_);
        if (const MlxFormat* format = format_of(id)) {
            weight.format = mlx_planes(*format, weight.format.dense_type);
            weight.tiled = layout_ != WeightLayout::rows && weight.rows >= kTiledRows && can_tile(weight.format);
            weight.planes = packed_planes(weight.format, weight.rows, weight.cols, weight.tiled);
        }
        return weight;
    }

    Weight rows_of(WeightId id, std::int64_t first, std::int64_t last, bool tiled) {
        const MlxFormat* format = format_of(id);
        Weight rows = source_.rows(id, first, last, format ? WeightLayout::rows : layout_, pool_);
        return format ? quantiser_->encode(rows, *format, tiled, pool_) : rows;
    }

    void pack_shard(const WeightPart& part, Progress& progress) {
        std::vector<PackedWeight> weights;
        std::uint64_t source_bytes = 0;
        for (const WeightId id : part.weights) {
            weights.push_back(describe(id));
            source_bytes += source_.source_bytes(id);
        }
        const std::uint64_t bytes = lay_out_shard(weights);
        for (const PackedWeight& weight : weights) {
            by_format_[describe_format(weight.format)] += weight_bytes(weight);
            summary_.tiled += weight.tiled ? 1 : 0;
        }
        ManifestBlob blob{"shard", part.name, {}, bytes, shard_index_hash(weights), {}};
        for (const PackedWeight& weight : weights)
            if (std::find(blob.tensors.begin(), blob.tensors.end(), weight.key.name) == blob.tensors.end()) blob.tensors.push_back(weight.key.name);
        const std::size_t number = summary_.shards++;
        if (const auto digest = sink_.finished(number, bytes)) {
            blob.digest = *digest;
            ++summary_.resumed;
            progress.advance(source_bytes);
        } else {
            sink_.begin(number, bytes);
            for (std::size_t i = 0; i < weights.size(); ++i) write_planes(part.weights[i], weights[i], progress);
            sink_.write(0, bytes_of(shard_header(weights)));
            const std::string tail = shard_tail(weights);
            sink_.write(bytes - tail.size(), bytes_of(tail));
            const BlobSink::Done done = sink_.commit();
            blob.digest = done.digest;
            if (done.was_there) summary_.shared += bytes;
        }
        manifest_.blobs.push_back(std::move(blob));
    }

    // In slices of whole tiles; every plane of a slice continues where its last one ended.
    void write_planes(WeightId id, PackedWeight& weight, Progress& progress) {
        const std::uint64_t source_bytes = source_.source_bytes(id);
        const std::uint64_t row_bytes = std::max<std::uint64_t>(1, source_bytes / static_cast<std::uint64_t>(weight.rows));
        const std::int64_t step = std::max<std::int64_t>(1, static_cast<std::int64_t>(slice_bytes / row_bytes) / kTiledRows) * kTiledRows;
        std::vector<Xxh3> hashes(weight.planes.size());
        std::uint64_t told = 0;
        for (std::int64_t first = 0, last = 0; first < weight.rows; first = last) {
            last = std::min(weight.rows, first + step);
            if (weight.rows - last < kTiledRows) last = weight.rows;  // fewer rows than a tile are never laid out as one
            const Weight rows = rows_of(id, first, last, weight.tiled);
            if (rows.format != weight.format || rows.tiled != weight.tiled)
                fail(ErrorKind::internal, "rows {} to {} of {} have another layout than the first", first, last, weight.key.name);
            const Plane* const planes[kPlaneKinds] = {&rows.codes, &rows.codes_high, &rows.scales, &rows.offsets, &rows.super_scales, &rows.super_mins};
            for (std::size_t i = 0; i < weight.planes.size(); ++i) {
                const PackedPlane& plane = weight.planes[i];
                const Plane& from = *planes[static_cast<std::size_t>(plane.kind)];
                if (!from.data || from.stride != plane.stride) fail(ErrorKind::internal, "the {} of {} have not the stride of their format", name_of(plane.kind), weight.key.name);
                const std::int64_t unit = weight.tiled ? kTiledRows : 1;
                const auto begin = static_cast<std::uint64_t>(first / unit), end = static_cast<std::uint64_t>((last + unit - 1) / unit);
                const std::span<const std::byte> bytes(from.data, static_cast<std::size_t>((end - begin) * plane.stride));
                sink_.write(plane.offset + begin * plane.stride, bytes);
                hashes[i].update(bytes);
            }
            const std::uint64_t now = source_bytes / static_cast<std::uint64_t>(weight.rows) * static_cast<std::uint64_t>(last);
            progress.advance(now - told);
            told = now;
        }
        for (std::size_t i = 0; i < weight.planes.size(); ++i) weight.planes[i].hash = hashes[i].finish();
    }

    void add_small(std::string role, std::string name, std::string_view bytes) {
        manifest_.blobs.push_back({std::move(role), std::move(name), sink_.put(bytes), bytes.size(), 0, {}});
    }

    void pack_small() {
        if (file_.packed) return copy_small();
        add_small("tensors", "", encode_tensor_list(file_.tensors, [&](const Tensor& tensor) {
            return source_.is_beside(tensor) && tensor.elements() <= small_tensor;
        }));
        const auto of_tokenizer = [](std::string_view key) { return key.starts_with("tokenizer."); };
        add_small("metadata", "", encode_pairs(file_.metadata, [&](std::string_view key) { return !of_tokenizer(key); }));
        if (file_.format == ModelFormat::gguf) {
            add_small("tokenizer", "", encode_pairs(file_.metadata, of_tokenizer));
            return;
        }
        for (const SideFile& side : side_files(folder_of(file_))) add_small(side.licence ? "licence" : "file", side.name, read_file(side.path));
    }

    // Of a .forge model, all that is no weight, as it is; a proof is of its own bits.
    void copy_small() {
        const std::vector<ManifestBlob>& blobs = file_.packed->manifest().blobs;
        for (std::size_t i = 0; i < blobs.size(); ++i)
            if (blobs[i].role != "shard" && blobs[i].role != "proof") add_small(blobs[i].role, blobs[i].name, text_of(file_.packed->blob(i).bytes));
    }

    void describe_model() {
        const ModelSpec& spec = source_.spec();
        Json& model = manifest_.model;
        model["name"] = model_name();
        model["architecture"] = spec.architecture;
        model["parameters"] = spec.parameters;
        model["layers"] = spec.layers.size();
        model["vocabulary"] = spec.vocab;
        model["context_length"] = spec.context_length;
        Json formats = Json::object();  // bytes of weights by format, the most first
        std::vector<std::pair<std::string, std::uint64_t>> sorted(by_format_.begin(), by_format_.end());
        std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
        for (const auto& [format, bytes] : sorted) formats[format] = bytes;
        model["weights"] = formats;
        for (const char* key : {"general.license", "general.license.name", "general.license.link"})
            if (const std::string text = file_.metadata.has(key) ? file_.metadata.string(key, "") : ""; !text.empty()) model["licence"][std::string(key).substr(8)] = text;

        if (file_.packed && file_.packed->manifest().model.contains("licence")) model["licence"] = file_.packed->manifest().model["licence"];

        Json& made = manifest_.provenance;
        if (file_.packed && !quantiser_) {  // the same weights: what they are of has not changed
            made = file_.packed->manifest().provenance;
            return;
        }
        made["packer"] = "forge " + options_.version;
        made["source_format"] = file_.packed ? "forge" : name_of(original_.format);
        made["recipe"] = options_.recipes;
        if (file_.packed) {
            const Manifest& manifest = file_.packed->manifest();
            const std::string text = manifest.dump();
            made["source"] = Json::array({{{"name", model_name()}, {"bytes", manifest.bytes()}, {"digest", blake3(bytes_of(text)).text()}}});
            made["made_from"] = manifest.provenance;
            return;
        }
        Json files = Json::array();
        const auto add = [&](const std::string& name, const fs::path& path, Progress* progress) {
            const Digest digest = blake3_file(path, [&](std::uint64_t n) { if (progress) progress->advance(n); });
            files.push_back({{"name", name}, {"bytes", fs::file_size(path)}, {"digest", digest.text()}});
        };
        std::uint64_t total = 0;
        for (const auto& mapped : original_.files) total += mapped->bytes().size();
        Progress progress("hashing the source", total);
        for (const auto& mapped : original_.files) add(fs::path(mapped->path()).filename().string(), mapped->path(), &progress);
        if (original_.format != ModelFormat::gguf)
            for (const SideFile& side : side_files(folder_of(original_))) add(side.name, side.path, nullptr);
        made["source"] = std::move(files);
    }

    std::string model_name() const {
        if (file_.packed) return file_.packed->manifest().model.value("name", source_.spec().name);
        if (!source_.spec().name.empty() && file_.format == ModelFormat::gguf) return source_.spec().name;
        return fs::absolute(folder_of(original_)).lexically_normal().filename().string();
    }

    static std::string describe_format(const WeightFormat& format) { return forge::describe(format); }
    static std::uint64_t weight_bytes(const PackedWeight& weight) {
        std::uint64_t sum = 0;
        for (const PackedPlane& plane : weight.planes) sum += plane.bytes;
        return sum;
    }

    const PackOptions& options_;
    const ModelFile& original_;
    const ModelFile& file_;
    BlobSink& sink_;
    // What MLX stores as planes becomes tiles as well: the result is mapped either way.
    const WeightLayout layout_ = options_.layout == WeightLayout::rows ? WeightLayout::rows : WeightLayout::tiles_by_copy;
    WeightSource source_;
    ThreadPool pool_;
    std::optional<Quantiser> quantiser_;
    std::map<WeightId, MlxFormat> formats_;  // of the weights that are quantised here
    Manifest manifest_;
    PackSummary summary_;
    std::map<std::string, std::uint64_t> by_format_;
};

// A folder that is there while it is needed.
class TemporaryFolder {
  public:
    explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {}
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

}  // namespace

PackSummary pack_model(const PackOptions& options) {
    const bool to_file = is_file_output(options.output);
    if (!to_file && !ModelName::parse(options.output))
        fail("'{}' is no name for a model: wanted NAME or NAME:TAG (letters, digits, '.', '_', '-', and '/' in the name), or a file that ends in .forge", options.output);
    const auto original = open_model_file(options.source);
    const std::string key = work_key(*original, options);
    const auto sink = to_file ? file_sink(options.output, key, options.overwrite) : store_sink(options.output, key, options.overwrite);
    if (options.recipes.empty()) return Packer(options, *original, *original, false, *sink).run();
    // A folder is quantised first, as `forge quantize` does it, into a folder that is removed afterwards; of other
    // models each weight is quantised on its way.
    if (original->packed || original->format == ModelFormat::gguf) return Packer(options, *original, *original, true, *sink).run();
    const TemporaryFolder folder(to_file ? fs::path(options.output + ".quantising") : Store::open().partial("quantising-" + key));
    quantize({.source = options.source, .output = folder.path().string(), .recipes = options.recipes, .global_scale = false, .overwrite = true, .threads = options.threads});
    const auto quantised = open_model_file(folder.path().string());
    return Packer(options, *original, *quantised, false, *sink).run();
}

}  // namespace forge
