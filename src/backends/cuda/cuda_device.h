// One GPU: context, stream, memory, compiled code.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "driver.h"

namespace forge::cuda {

class GpuContext {
  public:
    explicit GpuContext(int ordinal);
    ~GpuContext();
    GpuContext(const GpuContext&) = delete;

    const Driver& driver() const { return driver_; }
    Stream stream() const { return stream_; }
    int capability() const { return capability_; }        // 90
    int multiprocessors() const { return multiprocessors_; }
    const std::string& name() const { return name_; }
    int driver_version() const { return driver_version_; }
    std::uint64_t free_memory() const;
    // Every call from a thread that may not have used the context yet begins with this.
    void use() const { check(driver_.context_set(context_), "be used by this thread"); }
    void synchronize() const { check(driver_.stream_synchronize(stream_), "finish its work"); }
    // Machine code of a source: from the disk cache, else compiled and kept there.
    std::vector<char> code(const std::string& source) const;

  private:
    const Driver& driver_;
    Device device_ = 0;
    Context context_ = nullptr;
    Stream stream_ = nullptr;
    int capability_ = 0, multiprocessors_ = 0, driver_version_ = 0;
    std::string name_;
};

// Device memory.
class Memory {
  public:
    Memory() = default;
    Memory(std::shared_ptr<GpuContext> context, std::size_t bytes);
    Memory(Memory&& other) noexcept { *this = std::move(other); }
    Memory& operator=(Memory&& other) noexcept;
    ~Memory();
    Pointer at(std::uint64_t offset = 0) const { return pointer_ + offset; }
    std::size_t bytes() const { return bytes_; }

  private:
    std::shared_ptr<GpuContext> context_;
    Pointer pointer_ = 0;
    std::size_t bytes_ = 0;
};

// Host memory that the GPU copies from and to at full speed.
class PinnedMemory {
  public:
    PinnedMemory() = default;
    PinnedMemory(std::shared_ptr<GpuContext> context, std::size_t bytes);
    PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
    PinnedMemory& operator=(PinnedMemory&& other) noexcept;
    ~PinnedMemory();
    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

  private:
    std::shared_ptr<GpuContext> context_;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace forge::cuda
