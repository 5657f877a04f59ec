#include "runtime/worker.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "runtime/fiber.h"

namespace metal_emu {
namespace {

thread_local Worker* t_worker;

constexpr std::size_t kCheckedArena = 40 * 1024;  // 32 KiB and the gaps

void fiber_main() {
    Worker* w = current_worker();
    w->launch->entry(w->launch->buffers, w->arguments, &w->current->ids);
    w = current_worker();
    Fiber& f = *w->current;
    f.waits = Waits::done;
    w->done++;
    Simdgroup& s = w->simdgroups[f.simdgroup];
    s.live--;
    if (s.arrived > 0 && s.arrived == s.live)
        w->stop("divergent simdgroup operation: " + describe(s.first) + " reached by " +
                std::to_string(s.arrived) + " of " + std::to_string(s.width) +
                " lanes, the others returned; " + describe(*w, f));
    w->block();
    std::abort();  // a finished fiber is never resumed
}

}  // namespace

// Not inlined: a fiber may be resumed on the thread that the compiler did not expect.
__attribute__((noinline)) Worker* current_worker() { return t_worker; }
void set_current_worker(Worker* worker) { t_worker = worker; }

Worker::Worker() : arena(48 * 1024) {
    arena_low =
        reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(arena.data()) + 63) & ~std::uintptr_t{63});
}

Worker::~Worker() {
    for (char* stack : stacks) free_stack(stack);
}

void Worker::report(const std::string& finding) {
    if (findings.size() < 64 && seen.insert(finding).second) findings.push_back(finding);
}

void Worker::wake(std::uint32_t fiber) {
    fibers[fiber].waits = Waits::nothing;
    ready.push_back(fiber);
}

Fiber* Worker::next() {
    if (ready_head == ready.size()) return nullptr;
    if (random) {  // xorshift: any waiting fiber may be the next
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::swap(ready[ready_head + random % (ready.size() - ready_head)], ready[ready_head]);
    }
    Fiber* fiber = &fibers[ready[ready_head++]];
    if (ready_head == ready.size()) {
        ready.clear();
        ready_head = 0;
    }
    return fiber;
}

void Worker::block() {
    Fiber* me = current;
    Fiber* other = stopped ? nullptr : next();
    statistics.switches++;
    if (other == me) return;
    current = other ? other : me;
    emu_switch_fiber(&me->stack_pointer, other ? other->stack_pointer : main_stack_pointer);
}

void Worker::stop(const std::string& finding) {
    report(finding);
    stopped = true;
    block();
    std::abort();
}

// A threadgroup's memory is its own and full of NaN: what is stale or never written shows.
void Worker::lay_out_arena() {
    std::fill_n(arena_low, arena_dirty, static_cast<char>(0xff));
    if (launch->check)
        std::fill_n(arena_shadow.begin(), std::min(arena_dirty, arena_shadow.size()), Shadow{});
    arena_used = 0;
    variables.clear();
    for (int i = 0; i < kThreadgroupArguments; i++) {
        arguments[i] = nullptr;
        if (launch->threadgroup_bytes[i] == 0) continue;
        arena_used = (arena_used + 63) & ~std::size_t{63};
        arguments[i] = arena_low + arena_used;
        arena_used += launch->threadgroup_bytes[i] + (launch->check ? 64 : 0);
    }
}

void Worker::start_fibers(const std::uint32_t position[3]) {
    const Launch& l = *launch;
    const std::uint32_t groups = (threads + kLanes - 1) / kLanes;
    if (fibers.size() < threads) fibers.resize(threads);
    if (simdgroups.size() < groups) simdgroups.resize(groups);
    while (stacks.size() < threads) stacks.push_back(new_stack());
    for (std::uint32_t s = 0; s < groups; s++) {
        Simdgroup& g = simdgroups[s];
        g.width = g.live = s + 1 < groups ? kLanes : threads - kLanes * s;
        g.arrived = g.at_barrier = g.generation = 0;
        g.threadgroup_epoch = g.device_epoch = 1;
    }
    ready.clear();
    ready_head = 0;
    for (std::uint32_t i = 0; i < threads; i++) {
        Fiber& f = fibers[i];
        f.stack = stacks[i];
        f.index = i;
        f.simdgroup = i / kLanes;
        f.lane = i % kLanes;
        f.waits = Waits::nothing;
        f.fence = 0;
        ThreadIds& ids = f.ids;
        std::copy_n(position, 3, ids.threadgroup);
        std::copy_n(l.threads, 3, ids.threads);
        std::copy_n(l.grid, 3, ids.grid);
        ids.thread[0] = i % l.threads[0];
        ids.thread[1] = i / l.threads[0] % l.threads[1];
        ids.thread[2] = i / l.threads[0] / l.threads[1];
        ids.lane = f.lane;
        ids.simdgroup = f.simdgroup;
        ids.index = i;
        ids.simdgroups = groups;
        f.stack_pointer = prepare_stack(f.stack, i, fiber_main);
        ready.push_back(i);
    }
}

void Worker::run_threadgroup(const std::uint32_t position[3]) {
    const Launch& l = *launch;
    threads = l.threads[0] * l.threads[1] * l.threads[2];
    threadgroup = position[0] + l.grid[0] * (position[1] + l.grid[1] * position[2]);
    done = arrived = 0;
    stopped = false;
    threadgroup_epoch = device_epoch = 1;
    acquired.clear();
    lay_out_arena();
    start_fibers(position);
    current = next();
    emu_switch_fiber(&main_stack_pointer, current->stack_pointer);
    current = nullptr;
    arena_dirty = std::min(kCheckedArena, arena_used + (arena_used ? 64 : 0));
    if (!stopped && done != threads) report_stuck();
}

// Nothing can run and not all have returned.
void Worker::report_stuck() {
    std::map<std::string, int> where;
    for (std::uint32_t i = 0; i < threads; i++) {
        const Fiber& f = fibers[i];
        if (f.waits == Waits::done) continue;
        const char* what = f.waits == Waits::threadgroup_barrier ? "threadgroup_barrier "
                           : f.waits == Waits::simdgroup_barrier ? "simdgroup_barrier "
                                                                 : "simdgroup operation ";
        where[what + describe(f.site)]++;
    }
    std::string s = "deadlock / divergent synchronisation in " + std::string(launch->name) + ": ";
    for (const auto& [place, count] : where) s += std::to_string(count) + " threads at " + place + "; ";
    report(s + std::to_string(done) + " returned of " + std::to_string(threads));
}

std::string describe(const Site& s) {
    return std::string(s.file ? s.file : "?") + ":" + std::to_string(s.place / 1024) + ":" +
           std::to_string(s.place % 1024);
}

std::string describe(const Worker& w, const Fiber& f) {
    char text[200];
    std::snprintf(text, sizeof text, "%s tg(%u,%u,%u) thread %u [simdgroup %u lane %u]", w.launch->name,
                  f.ids.threadgroup[0], f.ids.threadgroup[1], f.ids.threadgroup[2], f.index, f.simdgroup,
                  f.lane);
    return text;
}

}  // namespace metal_emu
