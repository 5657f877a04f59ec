#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace forge::store_files {

namespace fs = std::filesystem;

void make_folders(const fs::path& folder) {
    std::error_code reason;
    fs::create_directories(folder, reason);
    if (reason) fail(ErrorKind::io, "cannot create the folder {}: {}", folder.string(), reason.message());
}

void flush_folder(const fs::path& folder) {
    const int fd = ::open(folder.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;  // the rename itself succeeded; some file systems cannot flush folders
    ::fsync(fd);
    ::close(fd);
}

std::uint64_t bytes_at(const fs::path& path) {
    std::error_code reason;
    if (!fs::is_directory(path, reason)) {
        const auto bytes = fs::file_size(path, reason);
        return reason ? 0 : bytes;
    }
    std::uint64_t sum = 0;
    for (fs::recursive_directory_iterator it(path, reason), end; !reason && it != end; it.increment(reason)) {
        std::error_code ignored;
        if (it->is_regular_file(ignored)) sum += it->file_size(ignored);
    }
    return sum;
}

bool read_pieces(const fs::path& path, const std::function<bool(std::span<const std::byte>)>& take) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    ssize_t got;
    bool more = true;
    while (more && ((got = ::read(fd, buffer.data(), buffer.size())) > 0 || (got < 0 && errno == EINTR)))
        if (got > 0) more = take(std::span(buffer).first(static_cast<std::size_t>(got)));
    ::close(fd);
    return more && got == 0;
}

bool has_bytes(const fs::path& path, std::span<const std::byte> bytes) {
    return read_pieces(path, [&](std::span<const std::byte> piece) {
        if (piece.size() > bytes.size() || std::memcmp(piece.data(), bytes.data(), piece.size()) != 0) return false;
        bytes = bytes.subspan(piece.size());
        return true;
    }) && bytes.empty();
}

bool has_bytes_of(const fs::path& path, const fs::path& other) {
    const int fd = ::open(other.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    std::uint64_t at = 0;
    const bool same = read_pieces(path, [&](std::span<const std::byte> piece) {
        for (std::size_t done = 0; done < piece.size();) {
            const ssize_t got = ::pread(fd, buffer.data(), piece.size() - done, static_cast<off_t>(at));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0 || std::memcmp(piece.data() + done, buffer.data(), static_cast<std::size_t>(got)) != 0) return false;
            done += static_cast<std::size_t>(got);
            at += static_cast<std::uint64_t>(got);
        }
        return true;
    });
    ::close(fd);
    return same;
}

}  // namespace forge::store_files
