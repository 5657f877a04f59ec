#include "metal_emu/launch.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "runtime/overflow.h"
#include "runtime/worker.h"

namespace metal_emu {
namespace {

// Workers keep their stacks from launch to launch.
std::vector<std::unique_ptr<Worker>>& idle_workers() {
    static std::vector<std::unique_ptr<Worker>> pool;
    return pool;
}

std::unique_ptr<Worker> take_worker(const Launch& launch, int index, bool parallel) {
    std::unique_ptr<Worker> w;
    if (idle_workers().empty()) {
        w = std::make_unique<Worker>();
    } else {
        w = std::move(idle_workers().back());
        idle_workers().pop_back();
    }
    w->launch = &launch;
    w->findings.clear();
    w->seen.clear();
    w->statistics = {};
    w->random = launch.seed ? launch.seed * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(index) : 0;
    w->last_buffer = 0;
    w->page = nullptr;
    w->parallel = parallel;
    const std::size_t gaps = launch.check ? 8 * 1024 : 0;
    w->arena_high = w->arena_low + kThreadgroupMemory + gaps;
    w->arena_dirty = kThreadgroupMemory + gaps;
    if (launch.check && w->arena_shadow.size() < kThreadgroupMemory + gaps)
        w->arena_shadow.assign(kThreadgroupMemory + gaps, Shadow{});
    return w;
}

}  // namespace

std::vector<std::string> run(const Launch& launch, LaunchStatistics* statistics) {
    begin_dispatch();
    const std::uint32_t total = launch.grid[0] * launch.grid[1] * launch.grid[2];
    if (total == 0) return {};
    const int count =
        static_cast<int>(std::clamp<std::uint32_t>(static_cast<std::uint32_t>(launch.workers), 1u, total));
    std::vector<std::unique_ptr<Worker>> workers;
    for (int i = 0; i < count; i++) workers.push_back(take_worker(launch, i, count > 1));
    std::atomic<std::uint32_t> next{0};
    const auto work = [&](int i) {
        Worker& w = *workers[static_cast<std::size_t>(i)];
        const OverflowReport report;
        set_current_worker(&w);
        for (std::uint32_t k; !w.stopped && (k = next++) < total;) {
            const std::uint32_t position[3] = {k % launch.grid[0], k / launch.grid[0] % launch.grid[1],
                                               k / launch.grid[0] / launch.grid[1]};
            w.run_threadgroup(position);
        }
        w.stopped = false;
        set_current_worker(nullptr);
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < count; i++) threads.emplace_back(work, i);
    work(0);
    for (std::thread& t : threads) t.join();
    std::vector<std::string> findings;
    for (auto& w : workers) {
        for (const std::string& f : w->findings)
            if (std::find(findings.begin(), findings.end(), f) == findings.end()) findings.push_back(f);
        if (statistics) {
            statistics->switches += w->statistics.switches;
            statistics->exchanges += w->statistics.exchanges;
            statistics->barriers += w->statistics.barriers;
            statistics->accesses += w->statistics.accesses;
        }
        idle_workers().push_back(std::move(w));
    }
    return findings;
}

}  // namespace metal_emu
