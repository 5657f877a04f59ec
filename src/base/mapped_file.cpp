#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace forge {

std::shared_ptr<MappedFile> MappedFile::open(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        const int reason = errno;
        fail(reason == ENOENT ? ErrorKind::not_found : ErrorKind::io, "cannot open {}: {}", path, std::strerror(reason));
    }
    struct stat info{};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        ::close(fd);
        fail(ErrorKind::io, "{} is not a regular file", path);
    }
    std::shared_ptr<MappedFile> file(new MappedFile);
    file->path_ = path;
    file->size_ = static_cast<std::size_t>(info.st_size);
    if (file->size_ > 0) {
        void* address = ::mmap(nullptr, file->size_, PROT_READ, MAP_SHARED, fd, 0);
        const int reason = errno;
        if (address == MAP_FAILED) {
            file->size_ = 0;
            ::close(fd);
            fail(ErrorKind::io, "cannot map {} ({} bytes): {}", path, info.st_size, std::strerror(reason));
        }
        file->data_ = static_cast<const std::byte*>(address);
    }
    ::close(fd);
    return file;
}

MappedFile::~MappedFile() {
    if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::advise_sequential() const {
    if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

namespace {

// The pages that hold some bytes of a mapping, whose first byte begins a page.
struct Pages {
    void* at;
    std::size_t bytes;
};
Pages pages_of(const std::byte* data, std::size_t size, std::size_t first, std::size_t count) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    first = std::min(first, size);
    count = std::min(count, size - first);
    const std::size_t start = first / page * page;
    return {const_cast<std::byte*>(data) + start, first + count - start};
}

}  // namespace

void MappedFile::read_ahead(std::size_t first, std::size_t count) const {
    if (!data_ || count == 0) return;
    const Pages pages = pages_of(data_, size_, first, count);
#ifdef F_RDADVISE
    if (const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC); fd >= 0) {
        struct radvisory advice{};
        advice.ra_offset = static_cast<off_t>(static_cast<std::byte*>(pages.at) - data_);
        advice.ra_count = static_cast<int>(std::min<std::size_t>(pages.bytes, 1u << 30));
        ::fcntl(fd, F_RDADVISE, &advice);
        ::close(fd);
    }
#else
    ::madvise(pages.at, pages.bytes, MADV_WILLNEED);
#endif
}

void MappedFile::populate(std::size_t first, std::size_t count) const {
    if (!data_ || count == 0) return;
#ifdef MADV_POPULATE_READ
    const Pages pages = pages_of(data_, size_, first, count);
    if (::madvise(pages.at, pages.bytes, MADV_POPULATE_READ) == 0) return;
#endif
    read_ahead(first, count);
}

void MappedFile::lock(std::size_t first, std::size_t count) const {
    if (!data_ || count == 0) return;
    const Pages pages = pages_of(data_, size_, first, count);
    if (::mlock(pages.at, pages.bytes) == 0) return;
    fail(ErrorKind::io, "cannot keep {} bytes of {} in memory: {}; raise the limit (ulimit -l, or memlock in limits.conf) or leave --mlock out",
         pages.bytes, path_, std::strerror(errno));
}

}  // namespace forge
