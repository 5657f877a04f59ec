// The store: blobs named by their BLAKE3, and manifests, named NAME:TAG, that say which blobs a
// model is made of. It is a folder that any number of processes use at once:
//
//   blobs/ab/abcd...        a blob, read-only; it appears by rename, complete and flushed
//   manifests/NAME@TAG.json a manifest ('/' of the name is '+'); it appears and changes by rename
//   partial/KEY             work that is not finished: downloads, shards being packed; may be resumed
//   lock                    held shared while blobs are made that no manifest names yet, exclusively by gc
//
// So a process that is killed leaves at most partial files and blobs that no manifest names, which
// the next gc removes; a manifest never names a blob that is not there, since it is written last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/mapped_file.h"

namespace forge {

// NAME[:TAG]: words of letters, digits, '.', '_' and '-' that begin with a letter or digit, joined by
// '/' in the name; the tag is one such word, "latest" when it is left out.
struct ModelName {
    std::string name, tag = "latest";
    std::string text() const { return name + ":" + tag; }
    static std::optional<ModelName> parse(std::string_view text);
    auto operator<=>(const ModelName&) const = default;
};

// A lock on a file of the store; another process (or another StoreLock) waits or is refused.
// The system releases it when the process ends, however it ends.
class StoreLock {
  public:
    StoreLock() = default;
    ~StoreLock();
    StoreLock(StoreLock&& other) noexcept;
    StoreLock& operator=(StoreLock&& other) noexcept;
    explicit operator bool() const { return fd_ >= 0; }

  private:
    friend class Store;
    explicit StoreLock(int fd) : fd_(fd) {}
    int fd_ = -1;
};

struct StoredBlob { Digest digest; std::uint64_t bytes; };

struct GcResult { std::size_t blobs = 0, partials = 0; std::uint64_t bytes = 0; };

class Store {
  public:
    // The user's own, under data_folder(); its folders are made.
    static Store open();
    explicit Store(std::filesystem::path root);
    const std::filesystem::path& root() const { return root_; }

    // ---- Locks
    // Hold this from before the first put() or adopt() of a model until its manifest is written: gc
    // waits for it. Any number of processes may hold it at once.
    StoreLock use() const;
    // One process at a time works on partial(key); an empty lock when another does (wait: it is waited for).
    StoreLock lock_partial(std::string_view key, bool wait) const;

    // ---- Blobs
    bool has(const Digest& digest) const;
    std::optional<std::uint64_t> size_of(const Digest& digest) const;   // nullopt when it is not there
    // Whether it is there with this size and with the bytes that its name says; all of it is read.
    bool is_intact(const Digest& digest, std::uint64_t bytes, const std::function<void(std::uint64_t)>& advance = {}) const;
    std::filesystem::path blob_path(const Digest& digest) const;        // whether or not it is there
    std::shared_ptr<MappedFile> open_blob(const Digest& digest) const;  // Error (not_found) names it
    std::vector<StoredBlob> blobs() const;

    // Small blobs, from memory. One that is there and damaged is replaced.
    Digest put(std::span<const std::byte> bytes) const;
    Digest put(std::string_view text) const;

    // Large ones: write to partial(key) in any order, then adopt it. KEY is a file name of the caller's
    // choice ("pull-" + the digest's hex); what stays there can be resumed until the next gc.
    std::filesystem::path partial(std::string_view key) const;
    // Flushes the file, names it by its BLAKE3 and moves it to its place (or removes it where that blob is
    // there already; one that is there and damaged is replaced). `expected`: Error that names both digests when it is another; the file then stays
    // where it is. `known`: the digest, if the caller computed it while writing; then it is not read again.
    Digest adopt(const std::filesystem::path& file, const std::optional<Digest>& expected = {},
                 const std::optional<Digest>& known = {},
                 const std::function<void(std::uint64_t)>& advance = {}) const;

    // ---- Manifests: JSON text (docs/format.md); formats/forge_manifest.h reads it.
    std::optional<std::string> read_manifest(const ModelName& name) const;
    // Checks that it is a manifest and that every blob it names is here with the size it says, then
    // puts it in place at once (replacing another).
    void write_manifest(const ModelName& name, std::string_view text) const;
    bool remove_manifest(const ModelName& name) const;  // false when there is none
    std::filesystem::path manifest_path(const ModelName& name) const;  // open_model_file() opens this path
    std::vector<ModelName> list() const;                // sorted

    // ---- Mark and sweep: removes blobs that no manifest names, and partial files. Waits until nobody
    // holds use(). A manifest that cannot be read stops it, since its blobs are not known.
    GcResult gc(bool dry_run = false) const;

  private:
    std::filesystem::path root_;
};

}  // namespace forge
