#include "base/machine_memory.h"

#include <unistd.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace forge {

namespace {

#ifdef __linux__
// A number in a file; nothing where there is none ("max").
std::optional<std::uint64_t> number_in(const std::string& path) {
    std::ifstream in(path);
    std::uint64_t value = 0;
    return in >> value ? std::optional(value) : std::nullopt;
}

// Where a version of control groups keeps what.
struct GroupFiles {
    std::string line, mount;             // how /proc/self/cgroup names the group; where the tree is
    const char *limit, *used, *cache;    // files, and a line of memory.stat
};

// The limits of this process's control group and of those above it.
void apply_group_limits(const GroupFiles& files, MachineMemory& memory) {
    std::ifstream in("/proc/self/cgroup");
    std::string line, group;
    while (std::getline(in, line))
        if (const std::size_t at = line.find(files.line); at != std::string::npos) group = line.substr(at + files.line.size());
    if (!group.starts_with('/')) return;
    for (;; group.resize(group.rfind('/'))) {
        const std::string folder = files.mount + group + "/";
        const auto limit = number_in(folder + files.limit), used = number_in(folder + files.used);
        if (limit && used && *limit < memory.total) {
            std::uint64_t cache = 0;   // of files: given up when needed
            std::ifstream statistics(folder + "memory.stat");
            std::string key;
            for (std::uint64_t value = 0; statistics >> key >> value;)
                if (key == files.cache) cache = value;
            const std::uint64_t held = *used - std::min(*used, cache);
            memory.total = *limit;
            memory.available = std::min(memory.available, *limit - std::min(*limit, held));
        }
        if (group.empty()) return;
    }
}

void apply_group_limits(MachineMemory& memory) {
    apply_group_limits({"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "file"}, memory);
    apply_group_limits({":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"}, memory);
}
#endif

}  // namespace

MachineMemory machine_memory() {
    MachineMemory memory;
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) memory.total = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
    memory.available = memory.total;
#ifdef __linux__
    std::ifstream in("/proc/meminfo");
    std::string key, unit;
    for (std::uint64_t kib = 0; in >> key >> kib; std::getline(in, unit))
        if (key == "MemAvailable:") memory.available = kib * 1024;
    apply_group_limits(memory);
#endif
    return memory;
}

std::string processor_name() {
#if defined(__APPLE__)
    char name[256] = {};
    std::size_t bytes = sizeof name - 1;
    if (sysctlbyname("machdep.cpu.brand_string", name, &bytes, nullptr, 0) == 0 && name[0]) return name;
#elif defined(__linux__)
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);)
        if (const std::size_t colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
#endif
    return "processor";
}

}  // namespace forge
