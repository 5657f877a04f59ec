#include "base/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

namespace forge {

int available_cores() {
    int cores = static_cast<int>(std::thread::hardware_concurrency());
#ifdef __linux__
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
    std::ifstream quota("/sys/fs/cgroup/cpu.max");  // "<quota>|max <period>"
    std::string limit;
    double period = 0;
    if (quota >> limit >> period && limit != "max" && period > 0) {
        const double share = std::strtod(limit.c_str(), nullptr) / period;
        if (share > 0) cores = std::min(cores, std::max(1, static_cast<int>(share + 0.5)));
    }
#endif
    return std::max(1, cores);
}

// Workers spin for a short while after a job, because decode submits one job
// after another, and then sleep on a condition variable.
struct ThreadPool::State {
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable wake;
    std::atomic<std::uint64_t> generation{0};
    std::atomic<int> pending{0};
    std::atomic<bool> stop{false};
    void (*body)(void*, int) = nullptr;
    void* context = nullptr;

    void work(int worker) {
        std::uint64_t seen = 0;
        for (;;) {
            for (int spin = 0; spin < 20000 && generation.load(std::memory_order_acquire) == seen; ++spin) {
#if defined(__x86_64__)
                __builtin_ia32_pause();
#elif defined(__aarch64__)
                asm volatile("yield");
#endif
            }
            if (generation.load(std::memory_order_acquire) == seen) {
                std::unique_lock lock(mutex);
                wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
            }
            seen = generation.load(std::memory_order_acquire);
            if (stop.load(std::memory_order_acquire)) return;
            body(context, worker);
            pending.fetch_sub(1, std::memory_order_release);
        }
    }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
    if (threads <= 0) threads = available_cores();
    for (int i = 1; i < threads; ++i) state_->threads.emplace_back([this, i] { state_->work(i); });
}

ThreadPool::~ThreadPool() {
    {
        std::lock_guard lock(state_->mutex);
        state_->stop.store(true, std::memory_order_release);
        state_->generation.fetch_add(1, std::memory_order_release);
    }
    state_->wake.notify_all();
    for (auto& thread : state_->threads) thread.join();
}

int ThreadPool::size() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::run(void (*body)(void*, int), void* context) {
    State& state = *state_;
    if (!state.threads.empty()) {
        state.body = body;
        state.context = context;
        state.pending.store(static_cast<int>(state.threads.size()), std::memory_order_relaxed);
        {
            std::lock_guard lock(state.mutex);
            state.generation.fetch_add(1, std::memory_order_release);
        }
        state.wake.notify_all();
    }
    body(context, 0);
    for (int spin = 0; state.pending.load(std::memory_order_acquire) > 0; ++spin) {
        if (spin > 20000) std::this_thread::yield();
    }
}

void ThreadPool::parallel_for(std::size_t count, std::size_t grain,
                              const std::function<void(std::size_t, std::size_t)>& body) {
    struct Job {
        std::size_t count, grain;
        const std::function<void(std::size_t, std::size_t)>* body;
        std::atomic<std::size_t> next{0};
        std::atomic<bool> failed{false};
        std::exception_ptr error;
    } job{count, std::max<std::size_t>(1, grain), &body, {}, {}, {}};
    run([](void* context, int) {
        Job& job = *static_cast<Job*>(context);
        for (;;) {
            const std::size_t first = job.next.fetch_add(job.grain, std::memory_order_relaxed);
            if (first >= job.count || job.failed.load(std::memory_order_relaxed)) return;
            try {
                (*job.body)(first, std::min(job.count, first + job.grain));
            } catch (...) {
                if (!job.failed.exchange(true)) job.error = std::current_exception();
                return;
            }
        }
    }, &job);
    if (job.error) std::rethrow_exception(job.error);
}

}  // namespace forge
