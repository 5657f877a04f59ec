// Bytes of a download that arrived ahead of its front: files FIRST-END in a folder beside the partial file,
// one for each range that was asked for. What such a file holds is the beginning of its range, so its length
// says how much is there, and a process that was killed leaves nothing that would have to be repaired.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace forge {

struct FileRange {
    std::uint64_t first = 0, end = 0;  // bytes [first, end) of the whole file
    std::uint64_t have = 0;            // of them there are so many, from the front
    bool complete() const { return have == end - first; }
    bool operator==(const FileRange&) const = default;
};

class RangeFolder {
  public:
    // The folder need not be there.
    explicit RangeFolder(std::filesystem::path path) : path_(std::move(path)) {}

    // How a file of `size` bytes is completed whose first `front` bytes are there: the ranges that were begun
    // earlier, and new ones of at most `step` bytes between them. They follow each other without a gap to the
    // file's end; the first one holds byte `front` and has everything before it. Files of no use are removed.
    std::vector<FileRange> plan(std::uint64_t front, std::uint64_t size, std::uint64_t step) const;

    std::filesystem::path file(const FileRange& range) const;
    void create() const;
    void remove(const FileRange& range) const;
    void remove() const;

  private:
    std::filesystem::path path_;
};

// One range's file, open.
class RangeFile {
  public:
    explicit RangeFile(std::filesystem::path path);  // makes it where there is none
    ~RangeFile();
    RangeFile(const RangeFile&) = delete;
    RangeFile& operator=(const RangeFile&) = delete;

    void write(std::uint64_t at, std::span<const std::byte> bytes);
    void read(std::uint64_t at, std::span<std::byte> bytes) const;  // Error when they are not there

  private:
    std::filesystem::path path_;
    int fd_ = -1;
};

}  // namespace forge
