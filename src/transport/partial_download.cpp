#include "transport/partial_download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/progress.h"

namespace forge {

PartialDownload::PartialDownload(std::filesystem::path path, std::uint64_t size, RemoteDigest digest, const std::function<void(std::uint64_t)>& read)
    : path_(std::move(path)), size_(size), digest_(std::move(digest)), hasher_(digest_.begin(size)) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail(ErrorKind::io, "cannot write {}: {}", path_.string(), std::strerror(errno));
    try {
        struct stat status {};
        if (::fstat(fd_, &status) != 0) fail(ErrorKind::io, "cannot read {}: {}", path_.string(), std::strerror(errno));
        const auto found = static_cast<std::uint64_t>(status.st_size);
        if (found > size_) restart();
        std::vector<std::byte> buffer(std::size_t{1} << 20);
        while (found <= size_ && have_ < found) {
            const std::size_t most = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), found - have_));
            const ssize_t n = ::pread(fd_, buffer.data(), most, static_cast<off_t>(have_));
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) fail(ErrorKind::io, "cannot read {}", path_.string());
            hasher_.update(std::span(buffer).first(static_cast<std::size_t>(n)));
            have_ += static_cast<std::uint64_t>(n);
            if (read) read(static_cast<std::uint64_t>(n));
        }
        check_room();
    } catch (...) {
        ::close(fd_);
        throw;
    }
}

PartialDownload::~PartialDownload() {
    if (fd_ >= 0) ::close(fd_);
}

void PartialDownload::check_room() const {
    std::error_code error;
    const auto room = std::filesystem::space(path_.parent_path(), error);
    if (error || room.available >= size_ - have_) return;
    fail(ErrorKind::io, "{} needs {} more, and the disk has {} free; make room and run the same command again", path_.parent_path().string(),
         format_bytes(size_ - have_), format_bytes(room.available));
}

void PartialDownload::append(std::span<const std::byte> bytes) {
    if (bytes.size() > size_ - have_) fail(ErrorKind::internal, "{} would grow beyond its {} bytes", path_.string(), size_);
    while (!bytes.empty()) {
        const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(have_));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail(ErrorKind::io, "cannot write {}: {}", path_.string(), std::strerror(errno));
        hasher_.update(bytes.first(static_cast<std::size_t>(n)));
        bytes = bytes.subspan(static_cast<std::size_t>(n));
        have_ += static_cast<std::uint64_t>(n);
    }
}

void PartialDownload::restart() {
    if (::ftruncate(fd_, 0) != 0) fail(ErrorKind::io, "cannot empty {}: {}", path_.string(), std::strerror(errno));
    have_ = 0;
    hasher_ = digest_.begin(size_);
}

bool PartialDownload::finish() {
    if (have_ != size_) return false;
    if (hasher_.hex() != digest_.hex) {
        restart();
        return false;
    }
    if (::fsync(fd_) != 0) fail(ErrorKind::io, "cannot flush {}: {}", path_.string(), std::strerror(errno));
    return true;
}

}  // namespace forge
