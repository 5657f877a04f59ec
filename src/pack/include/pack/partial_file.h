// A large file written beside its target and renamed into place when it is
// complete, so that a half-written model never carries the model's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace forge {

class PartialFile {
  public:
    // Creates TARGET.partial-PID; Error(io) names it and the system's reason.
    explicit PartialFile(std::string target);
    ~PartialFile();  // removes the partial file unless finish() was called
    PartialFile(const PartialFile&) = delete;
    PartialFile& operator=(const PartialFile&) = delete;

    void write(std::span<const std::byte> bytes);
    void write(std::string_view text);
    void pad(std::uint64_t bytes);  // zeros
    void skip(std::uint64_t bytes); // zeros that take no room where the file system allows it
    std::uint64_t position() const { return position_; }
    void finish();  // flushes to the disk and renames; an existing target is replaced

  private:
    [[noreturn]] void fail_io(std::string_view action) const;
    std::string target_, partial_;
    int fd_ = -1;
    std::uint64_t position_ = 0;
};

}  // namespace forge
