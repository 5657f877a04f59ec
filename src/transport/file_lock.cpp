#include "transport/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "transport/http.h"

namespace forge {

FileLock::FileLock(const std::filesystem::path& path, const std::string& what, const std::function<bool()>& cancelled) {
    std::error_code ignored;
    std::filesystem::create_directories(path.parent_path(), ignored);
    for (bool said = false;;) {
        if (fd_ < 0) fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd_ < 0) fail(ErrorKind::io, "cannot create the lock {}: {}", path.string(), std::strerror(errno));
        if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
            // Some tools remove the file when they are done: then this lock is on nothing.
            struct stat ours {}, there {};
            if (::fstat(fd_, &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino && ours.st_dev == there.st_dev) return;
            ::close(fd_);
            fd_ = -1;
            continue;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            log_debug("{} cannot be locked ({}); going on without", path.string(), std::strerror(errno));
            return;
        }
        if (!said) log_warn("waiting for another process that is at {}", what);
        said = true;
        if (cancelled && cancelled()) {
            ::close(fd_);
            throw Interrupted();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

FileLock::~FileLock() {
    if (fd_ >= 0) ::close(fd_);
}

}  // namespace forge
