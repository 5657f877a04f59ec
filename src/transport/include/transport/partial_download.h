// A file that grows from its front: whatever is there is a right beginning, so that a download
// that was stopped anywhere, by anything, goes on from the file's length, here or in other tools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "transport/remote_digest.h"

namespace forge {

class PartialDownload {
  public:
    // Opens or creates `path` and hashes what it holds; longer than `size`, it begins anew.
    // `read` hears of the bytes found. Error (io) when the disk has too little room for the rest.
    PartialDownload(std::filesystem::path path, std::uint64_t size, RemoteDigest digest, const std::function<void(std::uint64_t)>& read = {});
    ~PartialDownload();  // leaves the file
    PartialDownload(const PartialDownload&) = delete;
    PartialDownload& operator=(const PartialDownload&) = delete;

    std::uint64_t have() const { return have_; }
    std::uint64_t size() const { return size_; }
    const RemoteDigest& digest() const { return digest_; }
    void append(std::span<const std::byte> bytes);  // never beyond size()
    void restart();                                 // empties the file
    // With all bytes there: flushed to disk, and whether they are the right ones. A wrong file is emptied.
    bool finish();

  private:
    void check_room() const;
    std::filesystem::path path_;
    std::uint64_t size_, have_ = 0;
    RemoteDigest digest_;
    Hasher hasher_;
    int fd_ = -1;
};

}  // namespace forge
