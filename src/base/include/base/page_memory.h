// Zeroed memory straight from the system, in pages: large buffers whose
// untouched parts cost nothing.
#pragma once

#include <cstddef>
#include <string>

namespace forge {

class PageMemory {
  public:
    PageMemory() = default;
    // Error (out_of_memory) names `purpose` and the size. Page aligned.
    PageMemory(std::size_t bytes, const std::string& purpose);
    ~PageMemory();
    PageMemory(PageMemory&& other) noexcept;
    PageMemory& operator=(PageMemory&& other) noexcept;

    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }

  private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace forge
