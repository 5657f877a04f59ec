#include "base/page_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/progress.h"

namespace forge {

PageMemory::PageMemory(std::size_t bytes, const std::string& purpose) {
    if (bytes == 0) return;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (memory == MAP_FAILED)
        fail(ErrorKind::out_of_memory, "cannot reserve {} for {}: {}", format_bytes(bytes), purpose, std::strerror(errno));
    data_ = static_cast<std::byte*>(memory);
    size_ = bytes;
}

PageMemory::~PageMemory() {
    if (data_) munmap(data_, size_);
}

PageMemory::PageMemory(PageMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PageMemory& PageMemory::operator=(PageMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

}  // namespace forge
