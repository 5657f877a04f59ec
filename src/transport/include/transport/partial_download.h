// A file that grows from its front: whatever is there is a right beginning, so that a download
// that was stopped anywhere, by anything, goes on from the file's length, here or in other tools.
// Ranges that arrive ahead of the front are in files of their own beside it (range_files.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "transport/range_files.h"
#include "transport/remote_digest.h"

namespace forge {

class PartialDownload {
  public:
    // Opens or creates `path`; longer than `size`, it begins anew. Error (io) when the disk has too little
    // room for the rest. What the file holds is hashed later, so that a download goes on at once.
    PartialDownload(std::filesystem::path path, std::uint64_t size, RemoteDigest digest);
    ~PartialDownload();  // leaves the file
    PartialDownload(const PartialDownload&) = delete;
    PartialDownload& operator=(const PartialDownload&) = delete;

    std::uint64_t have() const { return have_; }
    std::uint64_t size() const { return size_; }
    const RemoteDigest& digest() const { return digest_; }
    RangeFolder ranges() const { return ranges_of(path_); }
    static RangeFolder ranges_of(const std::filesystem::path& path) { return RangeFolder(path.string() + ".ranges"); }

    void append(std::span<const std::byte> bytes);  // never beyond size()
    // Hashes a megabyte of what append() did not; false: there is none.
    bool hash_more();
    void restart();  // empties the file and removes the ranges beside it
    // With all bytes there: flushed to disk, and whether they are the right ones. The ranges beside it are
    // removed; a wrong file is emptied. Interrupted when cancelled() says so.
    bool finish(const std::function<bool()>& cancelled);

  private:
    void check_room() const;
    std::filesystem::path path_;
    std::uint64_t size_, have_ = 0, hashed_ = 0;
    RemoteDigest digest_;
    Hasher hasher_;
    std::vector<std::byte> buffer_;
    int fd_ = -1;
};

}  // namespace forge
