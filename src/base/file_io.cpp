#include "base/file_io.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace forge {
namespace {

// macOS refuses to move more than 2 GiB at a time.
constexpr std::size_t most = std::size_t{1} << 28;

}  // namespace

void write_at(int fd, const std::filesystem::path& path, std::uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::pwrite(fd, bytes.data(), std::min(bytes.size(), most), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail(ErrorKind::io, "cannot write {}: {}", path.string(), std::strerror(errno));
        bytes = bytes.subspan(static_cast<std::size_t>(n));
        offset += static_cast<std::uint64_t>(n);
    }
}

void read_at(int fd, const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::pread(fd, bytes.data(), std::min(bytes.size(), most), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail(ErrorKind::io, "cannot read {} at byte {}: {}", path.string(), offset, n == 0 ? "the file ends" : std::strerror(errno));
        bytes = bytes.subspan(static_cast<std::size_t>(n));
        offset += static_cast<std::uint64_t>(n);
    }
}

}  // namespace forge
