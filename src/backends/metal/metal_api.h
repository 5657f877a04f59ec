// The Metal host API, as the backend uses it. All of Objective-C is behind this: metal_api.mm implements it, with
// manual retain and release, and builds on macOS as well as over the emulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace forge::metal {

struct DeviceInfo {
    std::string name;
    std::uint64_t working_set_bytes = 0;      // recommended; memory in use beyond it slows down or fails
    std::size_t buffer_bytes = 0;             // most bytes of one buffer
    std::size_t threadgroup_bytes = 0;
    bool matmul2d = false;                    // matrix units that Metal 4's tensor operations reach, and a system that has these
};

// Memory that the GPU sees. Shared: `contents` is the same memory on the host.
class Buffer {
  public:
    virtual ~Buffer() = default;
    virtual std::byte* contents() const = 0;
    virtual std::size_t bytes() const = 0;
};

class Pipeline {
  public:
    virtual ~Pipeline() = default;
    virtual int most_threads() const = 0;     // of a threadgroup, for this kernel
};

struct Binding { const Buffer* buffer; std::uint64_t offset; };
struct Dispatch {
    const Pipeline* pipeline;
    std::span<const Binding> bindings;
    unsigned grid[3];
    unsigned threads;
    bool barrier;                             // what was written before must be visible
};

class Device {
  public:
    virtual ~Device() = default;
    virtual const DeviceInfo& info() const = 0;
    // Labels are what Metal's tools and the emulator's counts call a buffer.
    virtual std::shared_ptr<Buffer> allocate(std::size_t bytes, const char* label) = 0;
    // Whole pages of existing memory, which must outlive the buffer. Nothing is copied.
    virtual std::shared_ptr<Buffer> wrap(const std::byte* pages, std::size_t bytes, const char* label) = 0;
    // Pipelines of all kernels in a source, by name. Throws with the compiler's words.
    virtual std::map<std::string, std::shared_ptr<Pipeline>> compile(const std::string& source, std::span<const std::string> names) = 0;
    // Buffers stay resident from here on.
    virtual void make_resident(std::span<const std::shared_ptr<Buffer>> buffers) = 0;

    // One command buffer with one concurrent encoder; begin, any number of dispatches, commit. wait() ends it and
    // throws what went wrong. seconds() is the GPU's time of the last one.
    virtual void begin() = 0;
    virtual void dispatch(const Dispatch& dispatch) = 0;
    virtual void commit() = 0;
    virtual void wait() = 0;
    virtual double seconds() const = 0;
};

// Null with a sentence when there is no device.
std::unique_ptr<Device> open_device(std::string* reason);
std::size_t page_bytes();

}  // namespace forge::metal
