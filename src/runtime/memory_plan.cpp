#include "runtime/memory_plan.h"

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"

namespace forge {

void check_fit(const std::string& path, const MemoryPlan& plan, const MachineMemory& memory) {
    if (memory.total == 0) return;
    const auto& [weights, cache, sequences, positions] = plan;
    if (weights.made > memory.total)
        fail(ErrorKind::out_of_memory,
             "{}: its weights take {} of memory once they are converted, and this machine has {}; `forge pack` makes a model of "
             "it that stays in its file, and a smaller quantisation takes less",
             path, format_bytes(weights.made), format_bytes(memory.total));
    const std::uint64_t needed = weights.made + cache;
    const std::string parts = fmt::format("{} of weights and {} of cache for {} sequence{} of {} positions", format_bytes(weights.made),
                                          format_bytes(cache), sequences, sequences == 1 ? "" : "s", positions);
    if (needed > memory.total)
        fail(ErrorKind::out_of_memory, "{}: it needs {} of memory ({}), and this machine has {}; use a smaller context (--ctx) or fewer sequences (--parallel)",
             path, format_bytes(needed), parts, format_bytes(memory.total));
    if (needed > memory.available)
        log_warn("{}: it needs {} of memory ({}), but only {} of {} are free; the system may swap or stop a program", path, format_bytes(needed), parts,
                 format_bytes(memory.available), format_bytes(memory.total));
    else if (weights.mapped > memory.available - needed)
        log_warn("{}: {} of weights stay in the file, but beside {} of memory ({}) only {} are free to hold them; the rest is read from the disk again "
                 "and again", path, format_bytes(weights.mapped), format_bytes(needed), parts, format_bytes(memory.available - needed));
    log_debug("{}: {} of weights mapped, {}; {} of {} are free", path, format_bytes(weights.mapped), parts, format_bytes(memory.available),
              format_bytes(memory.total));
}

}  // namespace forge
