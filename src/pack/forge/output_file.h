// A file that is written at any place, and the list of what is finished in it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"

namespace forge {

class OutputFile {
  public:
    OutputFile() = default;
    // Opens or makes it; what it holds stays.
    explicit OutputFile(std::filesystem::path path);
    ~OutputFile();
    OutputFile(OutputFile&& other) noexcept;
    OutputFile& operator=(OutputFile&& other) noexcept;

    const std::filesystem::path& path() const { return path_; }
    std::uint64_t size() const;
    void resize(std::uint64_t bytes);  // new bytes are zero
    void write(std::uint64_t offset, std::span<const std::byte> bytes);
    void read(std::uint64_t offset, std::span<std::byte> bytes) const;
    void flush();     // to the disk
    bool try_lock();  // false: another process has it

  private:
    int fd_ = -1;
    std::filesystem::path path_;
};

// Lines "NUMBER DIGEST BYTES" of finished shards under a first line that names the work; a last line that
// was cut off by a crash does not count.
class PackJournal {
  public:
    struct Entry {
        std::size_t number;
        Digest digest;
        std::uint64_t bytes;
    };
    // Forgets the entries of other work.
    PackJournal(std::filesystem::path path, const std::string& key);
    const std::vector<Entry>& entries() const { return entries_; }
    void add(const Entry& entry);  // durable when it returns
    void remove();

  private:
    OutputFile file_;
    std::vector<Entry> entries_;
    std::uint64_t end_ = 0;
};

}  // namespace forge
