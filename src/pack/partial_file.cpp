#include "pack/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace forge {

PartialFile::PartialFile(std::string target)
    : target_(std::move(target)), partial_(fmt::format("{}.partial-{}", target_, ::getpid())) {
    fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) fail_io("create");
}

PartialFile::~PartialFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(partial_.c_str());
}

void PartialFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const std::size_t most = std::min<std::size_t>(bytes.size(), std::size_t{1} << 28);
        const ssize_t written = ::write(fd_, bytes.data(), most);
        if (written < 0) {
            if (errno == EINTR) continue;
            fail_io("write");
        }
        bytes = bytes.subspan(static_cast<std::size_t>(written));
        position_ += static_cast<std::uint64_t>(written);
    }
}

void PartialFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void PartialFile::pad(std::uint64_t bytes) {
    static constexpr std::byte zeros[4096] = {};
    while (bytes > 0) {
        const std::uint64_t most = std::min<std::uint64_t>(bytes, sizeof(zeros));
        write(std::span(zeros, static_cast<std::size_t>(most)));
        bytes -= most;
    }
}

void PartialFile::skip(std::uint64_t bytes) {
    position_ += bytes;
    if (::ftruncate(fd_, static_cast<off_t>(position_)) != 0 || ::lseek(fd_, static_cast<off_t>(position_), SEEK_SET) < 0) fail_io("extend");
}

void PartialFile::finish() {
    if (::fsync(fd_) != 0) fail_io("flush");
    const int fd = fd_;
    fd_ = -1;
    const bool closed = ::close(fd) == 0;
    if (!closed || std::rename(partial_.c_str(), target_.c_str()) != 0) {
        const int reason = errno;
        ::unlink(partial_.c_str());
        fail(ErrorKind::io, "cannot put {} in place: {}", target_, std::strerror(reason));
    }
}

void PartialFile::fail_io(std::string_view action) const {
    fail(ErrorKind::io, "cannot {} {}: {}", action, partial_, std::strerror(errno));
}

}  // namespace forge
