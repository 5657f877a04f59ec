// The checked mode: every access of a kernel comes by (hooks.cpp), is held against the bounds of what is
// bound, and against who touched the same bytes before without a barrier between.
#include "runtime/shadow.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "runtime/fiber.h"

namespace metal_emu {
namespace {

constexpr std::size_t kPage = 4096, kStripe = 64, kStripes = 256;

struct Page {
    Shadow bytes[kPage];
};

// Shadow of device memory; pages appear as they are touched.
std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> g_pages;
std::mutex g_pages_mutex;
std::uint32_t g_dispatch = 0, g_encoder_epoch = 1;

struct alignas(64) SpinLock {
    std::atomic<bool> taken{false};
    void lock() {
        while (taken.exchange(true, std::memory_order_acquire))
            while (taken.load(std::memory_order_relaxed)) {
            }
    }
    void unlock() { taken.store(false, std::memory_order_release); }
};
SpinLock g_stripes[kStripes];
SpinLock& stripe(std::uintptr_t address) { return g_stripes[address / kStripe % kStripes]; }

Shadow& device_shadow(Worker& w, std::uintptr_t address) {
    const std::uintptr_t key = address / kPage;
    if (key != w.page_key || !w.page) {
        std::lock_guard lock(g_pages_mutex);
        auto& page = g_pages[key];
        if (!page) page = std::make_unique<Page>();
        w.page = page->bytes;
        w.page_key = key;
    }
    return w.page[address % kPage];
}

bool same_thread(const Access& a, const Access& b) {
    return a.dispatch == b.dispatch && a.threadgroup == b.threadgroup && a.thread == b.thread;
}

// What was released at an address, in one dispatch.
std::unordered_map<std::uintptr_t, std::vector<Release>> g_releases;
std::mutex g_releases_mutex;
constexpr int kDeviceMemory = 1, kDeviceScope = 3;   // mem_flags and thread_scope of the shim

// Another threadgroup's access a, by way of an atomic operation between fences.
bool passed_on(const Access& a, const Access& b) {
    const Worker* const w = current_worker();
    if (!w || a.shared) return false;   // of a shared access only the last thread is known
    for (const Acquired& q : w->acquired) {
        if (!q.fenced || q.from.dispatch != a.dispatch || q.from.threadgroup != a.threadgroup) continue;
        const bool released = a.epoch < q.from.epoch || (a.thread == q.from.thread && a.epoch == q.from.epoch);
        const bool seen = b.epoch > q.epoch || (b.thread == q.thread && b.epoch == q.epoch);
        if (released && seen) return true;
    }
    return false;
}

// a is known to come before b.
bool ordered(const Access& a, const Access& b) {
    if (a.dispatch != b.dispatch) return a.encoder_epoch != b.encoder_epoch;
    if (a.threadgroup != b.threadgroup) return passed_on(a, b);
    if (a.epoch < b.epoch) return true;
    return a.thread / kLanes == b.thread / kLanes && a.simdgroup_epoch < b.simdgroup_epoch;
}

// Who the other one was, for people. Hardware that runs a simdgroup in lockstep hides some races.
std::string other_side(const Access& a, const Access& b) {
    if (a.dispatch != b.dispatch) return " of an earlier dispatch with no memory barrier between";
    if (a.threadgroup != b.threadgroup) return " by another threadgroup";
    return !a.shared && a.thread / kLanes == b.thread / kLanes ? " by another lane of the same simdgroup"
                                                               : "";
}

bool inside(std::uintptr_t a, unsigned n, const void* low, std::size_t bytes) {
    const auto start = reinterpret_cast<std::uintptr_t>(low);
    return low && a >= start && a + n <= start + bytes;
}

bool in_threadgroup_memory(const Worker& w, std::uintptr_t a, unsigned n) {
    for (int i = 0; i < kThreadgroupArguments; i++)
        if (inside(a, n, w.arguments[i], w.launch->threadgroup_bytes[i])) return true;
    for (const Worker::Range& v : w.variables)
        if (v.low && inside(a, n, v.low, static_cast<std::size_t>(v.high - v.low))) return true;
    return false;
}

// The binding that holds the bytes, or -1. Bindings may overlap; a write belongs to one that may be written.
int find_buffer(Worker& w, std::uintptr_t a, unsigned n, bool write) {
    const Launch& l = *w.launch;
    const auto holds = [&](int i) { return inside(a, n, l.buffers[i], l.bytes[i]); };
    if (holds(w.last_buffer) && !(write && l.read_only[w.last_buffer])) return w.last_buffer;
    int found = -1;
    for (int i = 0; i < kBuffers; i++) {
        if (!holds(i)) continue;
        if (!write || !l.read_only[i]) return w.last_buffer = i;
        if (found < 0) found = i;
    }
    return found;
}

// Constants of the kernel's own code, and the arguments of its entry.
bool belongs_to_the_host(const Worker& w, std::uintptr_t a) {
    const Launch& l = *w.launch;
    const auto in = [&](const void* low, const void* high) {
        return a >= reinterpret_cast<std::uintptr_t>(low) && a < reinterpret_cast<std::uintptr_t>(high);
    };
    return in(l.image_low, l.image_high) || in(w.fibers.data(), w.fibers.data() + w.fibers.size()) ||
           in(&l, &l + 1) || in(&w, &w + 1);
}

std::string nearest_buffer(const Launch& l, std::uintptr_t a, unsigned n) {
    long best = -1;
    std::string text = "no buffer";
    for (int i = 0; i < kBuffers; i++) {
        if (!l.buffers[i]) continue;
        const auto start = static_cast<long>(reinterpret_cast<std::uintptr_t>(l.buffers[i])),
                   at = static_cast<long>(a);
        const long past = at + static_cast<long>(n) - start - static_cast<long>(l.bytes[i]);
        const long distance = past > 0 ? past : start - at;
        if (best >= 0 && distance >= best) continue;
        best = distance;
        text = "buffer(" + std::to_string(i) + ") of " + std::to_string(l.bytes[i]) + " bytes, " +
               std::to_string(at - start) + " from its start";
    }
    return text;
}

std::string name_of(const Touch& t) {
    return std::string(t.atomic ? "atomic " : "") + (t.write ? "write" : "read");
}

// Bounds and read-only bindings. False: nothing further to check.
bool check_place(Worker& w, const Fiber& f, std::uintptr_t a, const Touch& t, bool threadgroup) {
    if (threadgroup) {
        if (!in_threadgroup_memory(w, a, t.bytes))
            w.stop("out-of-bounds threadgroup " + name_of(t) + " of " + std::to_string(t.bytes) +
                   " bytes at " + source_line(t.code) + "; " + describe(w, f));
        return true;
    }
    const int buffer = find_buffer(w, a, t.bytes, t.write);
    if (buffer < 0) {
        if (belongs_to_the_host(w, a)) return false;
        w.stop("out-of-bounds device " + name_of(t) + " of " + std::to_string(t.bytes) + " bytes at " +
               source_line(t.code) + ": nearest " + nearest_buffer(*w.launch, a, t.bytes) + "; " +
               describe(w, f));
    }
    if (!t.write && w.launch->constant[buffer]) return false;
    if (t.write && w.launch->read_only[buffer])
        w.stop("write to read-only buffer(" + std::to_string(buffer) + ") at " + source_line(t.code) + "; " +
               describe(w, f));
    return true;
}

void race(Worker& w, const Touch& t, const Access& before, const Access& me, bool threadgroup,
          const std::string& what) {
    w.report("race: " + what + other_side(before, me) + " in " + (threadgroup ? "threadgroup" : "device") +
             " memory at " + source_line(t.code) + "; kernel " + w.launch->name);
}

void check_byte(Worker& w, Shadow& s, const Touch& t, const Access& me, bool threadgroup) {
    if (threadgroup && !t.write &&
        !(s.write.dispatch == me.dispatch && s.write.threadgroup == me.threadgroup))
        w.report("read of never-written threadgroup memory at " + source_line(t.code) + "; kernel " +
                 w.launch->name);
    if (s.write.dispatch && !same_thread(s.write, me) && !ordered(s.write, me) &&
        !(t.atomic && s.write.shared))
        race(w, t, s.write, me, threadgroup, name_of(t) + " after unordered write");
    if (t.write) {
        if (s.read.dispatch && !ordered(s.read, me) && (s.read.shared || !same_thread(s.read, me)) &&
            !t.atomic)
            race(w, t, s.read, me, threadgroup, "write after unordered read");
        s.write = me;
        s.write.shared = t.atomic;
    } else if (!t.atomic) {
        const bool unordered = s.read.dispatch && !ordered(s.read, me);
        const bool shared = unordered && (s.read.shared || !same_thread(s.read, me));
        s.read = me;
        s.read.shared = shared;
    }
}

}  // namespace

ReleaseExchange::ReleaseExchange(void* address) : address_(address) {
    const Worker* const w = current_worker();
    if (!w || !w->current || !w->launch->check || (address >= w->arena_low && address < w->arena_high)) address_ = nullptr;
    if (address_) g_releases_mutex.lock();
}

ReleaseExchange::~ReleaseExchange() {
    if (!address_) return;
    std::lock_guard lock(g_releases_mutex, std::adopt_lock);
    Worker* const w = current_worker();
    const Fiber& f = *w->current;
    std::vector<Release>& at = g_releases[reinterpret_cast<std::uintptr_t>(address_)];
    if (!at.empty() && at.front().dispatch != g_dispatch) at.clear();
    for (const Release& r : at)
        if (r.threadgroup != w->threadgroup) w->acquired.push_back({r, w->device_epoch, f.index, false});
    if (f.fence > 0) at.push_back({g_dispatch, w->threadgroup, f.fence, f.index});
}

void fence(int flags, int scope) {
    Worker* const w = current_worker();
    if (!w || !w->current || !(flags & kDeviceMemory) || scope < kDeviceScope) return;
    w->current->fence = w->device_epoch;
    for (Acquired& q : w->acquired)
        if (q.thread == w->current->index && !q.fenced) {
            q.fenced = true;
            q.epoch = w->device_epoch;
        }
}

void memory_barrier() { g_encoder_epoch++; }
void begin_dispatch() {
    g_dispatch++;
    g_releases.clear();
}

void touch(void* address, const Touch& t) {
    Worker* const worker = current_worker();
    if (!worker || !worker->current) return;
    Worker& w = *worker;
    w.statistics.accesses++;
    const Fiber& f = *w.current;
    const auto a = reinterpret_cast<std::uintptr_t>(address);
    if (a - reinterpret_cast<std::uintptr_t>(f.stack) < kStackBytes) return;
    const bool threadgroup = address >= w.arena_low && address < w.arena_high;
    if (!threadgroup && counting_touched()) mark_touched(w, a, t);
    if (!w.launch->check) return;
    if (!check_place(w, f, a, t, threadgroup)) return;
    const Simdgroup& g = w.simdgroups[f.simdgroup];
    Access me;
    me.dispatch = g_dispatch;
    me.threadgroup = w.threadgroup;
    me.thread = f.index;
    me.encoder_epoch = g_encoder_epoch;
    me.epoch = threadgroup ? w.threadgroup_epoch : w.device_epoch;
    me.simdgroup_epoch = threadgroup ? g.threadgroup_epoch : g.device_epoch;
    if (threadgroup) {
        for (unsigned k = 0; k < t.bytes; k++)
            check_byte(
                w, w.arena_shadow[static_cast<std::size_t>(static_cast<char*>(address) - w.arena_low) + k], t,
                me, true);
        return;
    }
    std::unique_lock<SpinLock> lock;
    for (unsigned k = 0; k < t.bytes; k++) {
        if (w.parallel && (k == 0 || (a + k) % kStripe == 0)) {
            if (lock.owns_lock()) lock.unlock();
            lock = std::unique_lock(stripe(a + k));
        }
        check_byte(w, device_shadow(w, a + k), t, me, false);
    }
}

void misaligned(void* address, const Touch& t) {
    Worker* const w = current_worker();
    if (!w || !w->current || !w->launch->check) return;
    const std::string finding = "misaligned " + name_of(t) + " of " + std::to_string(t.bytes) + " bytes at " +
                                source_line(t.code) + " (address is " +
                                std::to_string(reinterpret_cast<std::uintptr_t>(address) % t.bytes) +
                                " mod " + std::to_string(t.bytes) + "); kernel " + w->launch->name;
    if (t.bytes == 16) w->stop(finding);  // this CPU would fault
    w->report(finding);
}

}  // namespace metal_emu
