#include "backends/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <mutex>

#include "base/error.h"

namespace forge {
namespace {

std::mutex g_mutex;
std::vector<DeviceKind>& kinds() {
    static std::vector<DeviceKind> all;
    return all;
}

}  // namespace

void register_device(const DeviceKind& kind) {
    std::lock_guard lock(g_mutex);
    std::erase_if(kinds(), [&](const DeviceKind& k) { return k.name == kind.name; });
    kinds().push_back(kind);
    std::stable_sort(kinds().begin(), kinds().end(), [](const DeviceKind& a, const DeviceKind& b) { return a.preference > b.preference; });
}

std::vector<std::string> device_names() {
    std::lock_guard lock(g_mutex);
    std::vector<std::string> names{"auto"};
    for (const DeviceKind& k : kinds()) names.push_back(k.name);
    return names;
}

std::unique_ptr<Backend> make_backend(const std::string& device, ThreadPool& pool) {
    const std::string name = device.substr(0, device.find(':'));
    int ordinal = 0;
    if (name.size() < device.size()) {
        const char* const end = device.data() + device.size();
        const auto [stop, error] = std::from_chars(device.data() + name.size() + 1, end, ordinal);
        if (error != std::errc{} || stop != end || ordinal < 0) fail("device '{}' should be a name or NAME:NUMBER, such as cuda:1", device);
    }
    std::vector<DeviceKind> all;
    {
        std::lock_guard lock(g_mutex);
        all = kinds();
    }
    for (const DeviceKind& k : all) {
        std::string reason;
        if (name == "auto" && k.available(&reason)) return k.make(pool, 0);
        if (k.name != name) continue;
        if (!k.available(&reason)) fail(ErrorKind::unsupported, "device '{}' cannot be used here: {}", device, reason);
        return k.make(pool, ordinal);
    }
    fail(ErrorKind::unsupported, "device '{}' is not built into this forge; it runs on: {}", device, fmt::join(device_names(), ", "));
}

}  // namespace forge
