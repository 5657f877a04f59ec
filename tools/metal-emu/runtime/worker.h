// The state of one host thread that runs threadgroups.
#pragma once

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "metal_emu/launch.h"

namespace metal_emu {

// Where a kernel calls a barrier or a simdgroup operation.
struct Site {
    const char* file = nullptr;
    int place = 0;  // line * 1024 + column
    unsigned operation = 0;
    bool operator==(const Site& o) const {
        return place == o.place && operation == o.operation &&
               (file == o.file || !std::strcmp(file ? file : "", o.file ? o.file : ""));
    }
};

enum class Waits : std::uint8_t {
    nothing,
    simdgroup_operation,
    simdgroup_barrier,
    threadgroup_barrier,
    done
};

// One GPU thread.
struct Fiber {
    void* stack_pointer;
    char* stack;
    Waits waits;
    std::uint32_t index, simdgroup, lane;
    std::uint32_t fence;   // device epoch at the last fence of device memory; 0: none
    Site site;
    ThreadIds ids;
};

inline constexpr int kLanes = 32, kSlotBytes = 64;

struct Simdgroup {
    std::uint32_t width, live;  // lanes; lanes that have not returned
    std::uint32_t arrived, at_barrier;
    std::uint32_t generation;  // of operations; slots are double-buffered by it
    std::uint32_t threadgroup_epoch, device_epoch;
    Site first;
    alignas(64) char slots[2][kLanes][kSlotBytes];
};

// Who touched a byte last.
struct Access {
    std::uint32_t dispatch = 0, threadgroup = 0, thread = 0, epoch = 0, simdgroup_epoch = 0,
                  encoder_epoch = 0;
    bool shared = false;  // reads: several threads; writes: atomic
};
struct Shadow {
    Access write, read;
};

// What a threadgroup has let others see by a fence and an atomic operation after it: its accesses of earlier epochs
// than `epoch`, and those of `thread` up to it.
struct Release {
    std::uint32_t dispatch = 0, threadgroup = 0, epoch = 0, thread = 0;
};
// One that this threadgroup has seen by an atomic operation and a fence after it: all of `thread` from `epoch` on, of
// the others what comes after another barrier.
struct Acquired {
    Release from;
    std::uint32_t epoch = 0, thread = 0;
    bool fenced = false;
};

struct TouchedPage;

struct Worker {
    const Launch* launch = nullptr;
    std::vector<Fiber> fibers;
    std::vector<Simdgroup> simdgroups;
    std::vector<char*> stacks;
    std::vector<std::uint32_t> ready;  // queue of fibers that can run, from `ready_head` on
    std::size_t ready_head = 0;
    Fiber* current = nullptr;
    void* main_stack_pointer = nullptr;
    std::uint32_t threads = 0, done = 0, threadgroup = 0;
    std::uint32_t arrived = 0, threadgroup_epoch = 0, device_epoch = 0;  // of threadgroup barriers
    Site first_arrival;
    std::vector<Acquired> acquired;   // of this threadgroup
    bool stopped = false;   // a finding after which the threadgroup cannot go on
    bool parallel = false;  // other workers run the same launch
    // Threadgroup memory: arguments first, then variables; a gap after each in the checked mode.
    std::vector<char> arena;
    char *arena_low = nullptr, *arena_high = nullptr;
    std::size_t arena_used = 0, arena_dirty = 0;
    void* arguments[kThreadgroupArguments] = {};
    struct Range {
        char *low, *high;
    };
    std::vector<Range> variables;
    std::vector<Shadow> arena_shadow;
    std::vector<std::string> findings;
    std::set<std::string> seen;
    LaunchStatistics statistics;
    std::uint64_t random = 0;
    std::uintptr_t page_key = 0;  // the device shadow page used last
    Shadow* page = nullptr;
    std::uintptr_t touched_key = 0;   // likewise of touched bytes, of the counting with this number
    TouchedPage* touched_page = nullptr;
    std::uint64_t touched_number = 0;
    int last_buffer = 0;

    Worker();
    ~Worker();
    void report(const std::string& finding);
    void run_threadgroup(const std::uint32_t position[3]);
    void wake(std::uint32_t fiber);
    void block();  // the current fiber waits; another runs
    [[noreturn]] void stop(const std::string& finding);

  private:
    Fiber* next();
    void lay_out_arena();
    void start_fibers(const std::uint32_t position[3]);
    void report_stuck();
};

// The worker of this host thread; null outside of launches.
Worker* current_worker();
void set_current_worker(Worker* worker);

std::string describe(const Site& site);
std::string describe(const Worker& worker, const Fiber& fiber);
// "kernels.metal:12:3" of a code address.
std::string source_line(void* address);

// shadow.cpp: numbers of dispatches and of memory barriers between them.
void begin_dispatch();

}  // namespace metal_emu
