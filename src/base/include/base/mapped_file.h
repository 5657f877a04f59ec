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

  private:
    MappedFile() = default;
    std::string path_;
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace forge
