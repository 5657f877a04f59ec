#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

}  // namespace forge
