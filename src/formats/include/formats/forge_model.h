// A .forge model, opened: its manifest, its shards mapped, its weights by their place in the source.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "formats/forge_manifest.h"
#include "formats/forge_shard.h"
#include "formats/model_file.h"

namespace forge {

// A blob's bytes within a mapped file.
struct BlobBytes {
    std::shared_ptr<MappedFile> file;
    std::size_t offset = 0;
    std::span<const std::byte> bytes;
};

class ForgeModel {
  public:
    struct Shard {
        BlobBytes blob;
        ShardIndex index;
        std::string source;  // "model.forge: shard layer.3", for messages
    };

    const Manifest& manifest() const { return manifest_; }
    const std::vector<Shard>& shards() const { return shards_; }
    const BlobBytes& blob(std::size_t index) const { return blobs_[index]; }  // of manifest().blobs

    // The weight made from these rows of this tensor; nullptr when there is none. It is mapped.
    const Weight* find(const PackedKey& key) const;
    std::uint64_t plane_bytes() const;  // of all weights
    // tiled16 when any weight lies in tiles, else rows, whatever was chosen for weights that can.
    std::string_view layout() const;
    // A file of the source (config.json, tokenizer.json, ...); nullopt when it had none.
    std::optional<std::string_view> file(std::string_view name) const;
    std::vector<std::string> file_names() const;

    // Compares every plane with the hash in its shard's footer, reading front to back. Error names the
    // first plane that differs: its model, shard, weight.
    void verify(ThreadPool& pool) const;

  private:
    friend std::shared_ptr<ModelFile> open_forge_blobs(std::string_view, const std::string&,
                                                       const std::function<BlobBytes(const ManifestBlob&)>&);
    void add_shard(const ManifestBlob& entry, BlobBytes blob);

    Manifest manifest_;
    std::vector<BlobBytes> blobs_;  // in the manifest's order
    std::vector<Shard> shards_;
    std::vector<Weight> weights_;
    std::map<PackedKey, std::size_t> by_key_;
};

// A model of a manifest whose blobs `lookup` finds; it throws an Error when one is missing.
std::shared_ptr<ModelFile> open_forge_blobs(std::string_view manifest, const std::string& source,
                                            const std::function<BlobBytes(const ManifestBlob&)>& lookup);

// The manifest of model.forge, or of a manifest's path in a store's folder, and where its blobs are; none is read.
struct ForgeBlobs {
    std::string manifest;
    std::function<BlobBytes(const ManifestBlob&)> lookup;  // Error when the blob is missing
};
ForgeBlobs find_forge_blobs(const std::string& path);

std::shared_ptr<ModelFile> open_forge(const std::string& path);
bool is_forge(const std::string& path);  // by its first bytes

}  // namespace forge
