#include "transport/partial_download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/file_io.h"
#include "base/progress.h"
#include "transport/http.h"

namespace forge {

PartialDownload::PartialDownload(std::filesystem::path path, std::uint64_t size, RemoteDigest digest)
    : path_(std::move(path)), size_(size), digest_(std::move(digest)), hasher_(digest_.begin(size)) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail(ErrorKind::io, "cannot write {}: {}", path_.string(), std::strerror(errno));
    try {
        struct stat status {};
        if (::fstat(fd_, &status) != 0) fail(ErrorKind::io, "cannot read {}: {}", path_.string(), std::strerror(errno));
        have_ = static_cast<std::uint64_t>(status.st_size);
        if (have_ > size_) restart();
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
    write_at(fd_, path_, have_, bytes);
    if (hashed_ == have_) {
        hasher_.update(bytes);
        hashed_ += bytes.size();
    }
    have_ += bytes.size();
}

bool PartialDownload::hash_more() {
    if (hashed_ == have_) return false;
    buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(std::uint64_t{1} << 20, have_ - hashed_)));
    read_at(fd_, path_, hashed_, buffer_);
    hasher_.update(buffer_);
    hashed_ += buffer_.size();
    return true;
}

void PartialDownload::restart() {
    if (::ftruncate(fd_, 0) != 0) fail(ErrorKind::io, "cannot empty {}: {}", path_.string(), std::strerror(errno));
    ranges().remove();
    have_ = hashed_ = 0;
    hasher_ = digest_.begin(size_);
}

bool PartialDownload::finish(const std::function<bool()>& cancelled) {
    if (have_ != size_) return false;
    while (hash_more())
        if (cancelled()) throw Interrupted();
    if (hasher_.hex() != digest_.hex) {
        restart();
        return false;
    }
    if (::fsync(fd_) != 0) fail(ErrorKind::io, "cannot flush {}: {}", path_.string(), std::strerror(errno));
    ranges().remove();
    return true;
}

}  // namespace forge
