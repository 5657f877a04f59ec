// Where a packer's blobs go: the store, or one file. Large ones are written in any order and then
// committed; what was committed under the same key by an earlier run is found again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/digest.h"

namespace forge {

class BlobSink {
  public:
    virtual ~BlobSink() = default;

    // ---- Shard after shard, in order.
    struct Done {
        Digest digest;
        bool was_there = false;  // in the store before this run
    };
    // The shard `number` of `bytes` bytes, if an earlier run finished it; it is read and hashed, not believed.
    virtual std::optional<Digest> finished(std::size_t number, std::uint64_t bytes) = 0;
    virtual void begin(std::size_t number, std::uint64_t bytes) = 0;
    virtual void write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
    virtual Done commit() = 0;

    // ---- Then the small blobs.
    virtual Digest put(std::string_view bytes) = 0;

    // ---- Then the manifest. A preview is a model that opens at the path it returns and is not the result yet:
    // blobs may follow it.
    virtual std::string preview(std::string_view manifest) = 0;
    virtual std::string finish(std::string_view manifest) = 0;  // the model's path
};

// key: the same for the same work, different for other work.
std::unique_ptr<BlobSink> store_sink(const std::string& name, const std::string& key, bool overwrite);
std::unique_ptr<BlobSink> file_sink(const std::string& path, const std::string& key, bool overwrite);

}  // namespace forge
