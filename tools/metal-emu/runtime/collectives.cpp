// What kernels call (shim/emu/types.h): barriers, simdgroup operations, threadgroup variables.
#include <cstring>

#include "runtime/shadow.h"
#include "runtime/worker.h"

namespace metal_emu {
namespace {

// mem_flags of the shim.
constexpr int kDevice = 1, kThreadgroup = 2;

void advance(std::uint32_t& threadgroup_epoch, std::uint32_t& device_epoch, int flags) {
    if (flags & kThreadgroup) threadgroup_epoch++;
    if (flags & kDevice) device_epoch++;
}

void simdgroup_barrier(Worker& w, Fiber& f, const Site& here, int flags) {
    Simdgroup& s = w.simdgroups[f.simdgroup];
    if (++s.at_barrier < s.live) {
        f.waits = Waits::simdgroup_barrier;
        f.site = here;
        w.block();
        return;
    }
    s.at_barrier = 0;
    advance(s.threadgroup_epoch, s.device_epoch, flags);
    for (std::uint32_t i = 0; i < s.width; i++)
        if (w.fibers[f.simdgroup * kLanes + i].waits == Waits::simdgroup_barrier)
            w.wake(f.simdgroup * kLanes + i);
}

void threadgroup_barrier(Worker& w, Fiber& f, const Site& here, int flags) {
    if (w.arrived == 0)
        w.first_arrival = here;
    else if (!(w.first_arrival == here))
        w.stop("divergent threadgroup_barrier: some threads at " + describe(w.first_arrival) +
               ", others at " + describe(here) + "; " + describe(w, f));
    if (++w.arrived < w.threads) {
        f.waits = Waits::threadgroup_barrier;
        f.site = here;
        w.block();
        return;
    }
    w.arrived = 0;
    advance(w.threadgroup_epoch, w.device_epoch, flags);
    for (std::uint32_t i = 0; i < w.threads; i++)
        if (w.fibers[i].waits == Waits::threadgroup_barrier) w.wake(i);
}

}  // namespace
}  // namespace metal_emu

using namespace metal_emu;

extern "C" {

void emu_fence(int flags, int scope) { metal_emu::fence(flags, scope); }
unsigned emu_lane() { return current_worker()->current->lane; }
unsigned emu_simd_width() { return current_worker()->simdgroups[current_worker()->current->simdgroup].width; }

// Every lane brings n bytes and gets the slots of all lanes. The last to arrive wakes the others.
const char* emu_exchange(const void* value, unsigned n, unsigned operation, const char* file, int place) {
    Worker& w = *current_worker();
    Fiber& f = *w.current;
    Simdgroup& s = w.simdgroups[f.simdgroup];
    const Site here{file, place, operation};
    w.statistics.exchanges++;
    if (s.live != s.width)
        w.stop("divergent simdgroup operation: " + describe(here) + " reached after " +
               std::to_string(s.width - s.live) + " lanes returned; " + describe(w, f));
    if (s.arrived == 0)
        s.first = here;
    else if (!(s.first == here))
        w.stop("divergent simdgroup operations: lanes of one simdgroup are at " + describe(s.first) +
               " and " + describe(here) + "; " + describe(w, f));
    char(*slots)[kSlotBytes] = s.slots[s.generation & 1];
    std::memcpy(slots[f.lane], value, n);
    if (++s.arrived == s.live) {
        s.arrived = 0;
        s.generation++;
        for (std::uint32_t i = 0; i < s.width; i++)
            if (i != f.lane) w.wake(f.simdgroup * kLanes + i);
    } else {
        f.waits = Waits::simdgroup_operation;
        f.site = here;
        w.block();
    }
    return slots[0];
}

// kind: 0 threadgroup, 1 simdgroup.
void emu_barrier(int kind, int flags, const char* file, int place) {
    Worker& w = *current_worker();
    Fiber& f = *w.current;
    const Site here{file, place, 1000u + static_cast<unsigned>(kind)};
    w.statistics.barriers++;
    if (kind == 1)
        metal_emu::simdgroup_barrier(w, f, here, flags);
    else
        metal_emu::threadgroup_barrier(w, f, here, flags);
}

// Scopes of several simdgroups begin at multiples of their number.
unsigned emu_scope(unsigned simdgroups, const char* file, int place) {
    Worker& w = *current_worker();
    const Fiber& f = *w.current;
    const std::uint32_t there = (w.threads + kLanes - 1) / kLanes, first = f.simdgroup / simdgroups * simdgroups;
    const Site here{file, place, 0};
    if (first + simdgroups > there)
        w.stop("a scope of " + std::to_string(simdgroups) + " simdgroups in a threadgroup of " +
               std::to_string(there) + " at " + describe(here) + "; " + describe(w, f));
    if (w.simdgroups[f.simdgroup].width != kLanes)
        w.stop("a tensor operation in a simdgroup of " + std::to_string(w.simdgroups[f.simdgroup].width) +
               " lanes at " + describe(here) + "; " + describe(w, f));
    return f.simdgroup - first;
}

const long* emu_tensor_shape(unsigned index) { return current_worker()->launch->tensor_shapes[index]; }

// The place of a threadgroup variable: the first thread that comes by decides it.
char* emu_threadgroup_static(unsigned id, unsigned size, unsigned alignment) {
    Worker& w = *current_worker();
    if (w.variables.size() < id + 1) w.variables.resize(id + 1, {nullptr, nullptr});
    Worker::Range& range = w.variables[id];
    if (range.low == nullptr) {
        const std::size_t a = alignment < 16 ? 16 : alignment;
        w.arena_used = (w.arena_used + a - 1) / a * a;
        if (w.arena_low + w.arena_used + size > w.arena_high)
            w.stop("threadgroup memory over 32 KiB in " + std::string(w.launch->name));
        range = {w.arena_low + w.arena_used, w.arena_low + w.arena_used + size};
        w.arena_used += size + (w.launch->check ? 64 : 0);
    }
    return range.low;
}

}  // extern "C"
