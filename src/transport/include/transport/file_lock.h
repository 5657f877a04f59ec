// flock(2) on a file of its own, which other tools that share a cache use as well.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace forge {

class FileLock {
  public:
    // Creates folder and file, and waits for whoever holds the lock; the first wait is said as
    // "waiting for another process that is at WHAT". Interrupted when cancelled() says so.
    FileLock(const std::filesystem::path& path, const std::string& what, const std::function<bool()>& cancelled = {});
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

  private:
    int fd_ = -1;
};

}  // namespace forge
