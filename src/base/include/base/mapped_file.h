// A read-only memory mapping of a whole file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace forge {

class MappedFile {
  public:
    // Throws Error (not_found, io) with the path and the system's reason.
    static std::shared_ptr<MappedFile> open(const std::string& path);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const std::string& path() const { return path_; }
    // Tells the system that the file will be read front to back soon.
    void advise_sequential() const;
    // Of bytes [first, first + count): asks for them to be read, and does not wait.
    void read_ahead(std::size_t first, std::size_t count) const;
    // Reads them and enters them in the page table, so that the first use meets no page fault; where the
    // system cannot, it is read_ahead.
    void populate(std::size_t first, std::size_t count) const;
    // Keeps the bytes in memory. Error (io) with the system's reason and what to do.
    void lock(std::size_t first, std::size_t count) const;

  private:
    MappedFile() = default;
    std::string path_;
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace forge
