#include "base/machine_memory.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace forge {

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
#endif
    return memory;
}

}  // namespace forge
