// Locks are flock() on files of the store: they belong to the open file, so that two threads of one
// process exclude each other too, and end with the process, however it ends.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "lock.h"

namespace forge {

StoreLock::~StoreLock() {
    if (fd_ >= 0) ::close(fd_);
}

StoreLock::StoreLock(StoreLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

StoreLock& StoreLock::operator=(StoreLock&& other) noexcept {
    if (this != &other) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
}

namespace store_files {

int lock_file(const std::filesystem::path& path, LockKind kind, bool wait) {
    for (;;) {
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) fail(ErrorKind::io, "cannot open the lock {}: {}", path.string(), std::strerror(errno));
        const int operation = (kind == LockKind::shared ? LOCK_SH : LOCK_EX) | (wait ? 0 : LOCK_NB);
        while (::flock(fd, operation) != 0) {
            if (errno == EINTR) continue;
            const int reason = errno;
            ::close(fd);
            if (reason == EWOULDBLOCK) return -1;
            fail(ErrorKind::io, "cannot lock {}: {}", path.string(), std::strerror(reason));
        }
        // gc removes lock files of finished work: a lock on a file that is gone excludes nobody.
        struct stat mine{}, there{};
        if (::fstat(fd, &mine) == 0 && ::stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev)
            return fd;
        ::close(fd);
    }
}

}  // namespace store_files
}  // namespace forge
