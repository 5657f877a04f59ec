#include "cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/paths.h"
#include "nvrtc.h"

namespace forge::cuda {
namespace {

const Driver& required_driver() {
    std::string reason;
    const Driver* d = load_driver(&reason);
    if (!d) fail(ErrorKind::unsupported, "device 'cuda' cannot be used here: {}", reason);
    return *d;
}

}  // namespace

GpuContext::GpuContext(int ordinal) : driver_(required_driver()) {
    int count = 0;
    check(driver_.device_count(&count), "be counted");
    if (ordinal >= count) fail("device 'cuda:{}' is not there: this machine has {} CUDA device{}", ordinal, count, count == 1 ? "" : "s");
    check(driver_.device_get(&device_, ordinal), "be found");
    int major = 0, minor = 0;
    check(driver_.device_attribute(&major, kComputeMajor, device_), "be asked for its capability");
    check(driver_.device_attribute(&minor, kComputeMinor, device_), "be asked for its capability");
    check(driver_.device_attribute(&multiprocessors_, kMultiprocessors, device_), "be asked for its size");
    capability_ = major * 10 + minor;
    if (capability_ < 75)
        fail(ErrorKind::unsupported, "the GPU's compute capability is {}.{}, and Forge needs 7.5 or newer", major, minor);
    char name[256] = {};
    driver_.device_name(name, sizeof name - 1, device_);
    name_ = name;
    driver_.driver_version(&driver_version_);
    check(driver_.context_retain(&context_, device_), "be used");
    use();
    check(driver_.stream_create(&stream_, 1), "make a stream");
}

GpuContext::~GpuContext() {
    driver_.context_set(context_);
    if (stream_) driver_.stream_destroy(stream_);
    driver_.context_release(device_);
}

std::uint64_t GpuContext::free_memory() const {
    use();
    std::size_t free = 0, total = 0;
    check(driver_.memory_info(&free, &total), "be asked for its memory");
    return free;
}

std::vector<char> GpuContext::code(const std::string& source) const {
    const std::string key = fmt::format("{:016x}-sm{}-nvrtc{}-driver{}.cubin", fnv1a(source), capability_, nvrtc_version(), driver_version_);
    const std::filesystem::path path = cache_folder() / "cuda" / key;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) {
        const std::string kept = read_file(path);
        if (kept.size() > 64 && kept.compare(0, 4, "\177ELF") == 0) return {kept.begin(), kept.end()};
        log_warn("{} is damaged and is made anew", path.string());
    }
    std::vector<char> made = compile(source, capability_);
    try {
        std::filesystem::create_directories(path.parent_path());
        write_file_atomically(path, {made.data(), made.size()});
    } catch (const std::exception& e) {
        log_debug("compiled kernels are not kept: {}", e.what());
    }
    return made;
}

Memory::Memory(std::shared_ptr<GpuContext> context, std::size_t bytes) : context_(std::move(context)), bytes_(bytes) {
    context_->use();
    check(context_->driver().alloc(&pointer_, std::max<std::size_t>(bytes, 16)), fmt::format("allocate {} bytes", bytes).c_str());
}
Memory& Memory::operator=(Memory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(pointer_, other.pointer_);
    std::swap(bytes_, other.bytes_);
    return *this;
}
Memory::~Memory() {
    if (!pointer_) return;
    context_->use();
    context_->driver().free(pointer_);
}

PinnedMemory::PinnedMemory(std::shared_ptr<GpuContext> context, std::size_t bytes) : context_(std::move(context)), bytes_(bytes) {
    context_->use();
    void* memory = nullptr;
    check(context_->driver().host_alloc(&memory, std::max<std::size_t>(bytes, 16), 0), fmt::format("pin {} bytes of the host's memory", bytes).c_str());
    data_ = static_cast<std::byte*>(memory);
}
PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}
PinnedMemory::~PinnedMemory() {
    if (!data_) return;
    context_->use();
    context_->driver().host_free(data_);
}

}  // namespace forge::cuda
