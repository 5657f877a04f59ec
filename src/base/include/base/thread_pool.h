// Worker threads that stay alive between calls. One pool serves loading and
// the CPU backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace forge {

class ThreadPool {
  public:
    // threads: workers including the calling thread; 0 = one per available core.
    explicit ThreadPool(int threads = 0);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const;

    // Calls body(context, worker) once on every worker 0..size()-1 (0 is the
    // caller) and returns when all are done. No allocation. Not re-entrant.
    // A body must not throw.
    void run(void (*body)(void* context, int worker), void* context);

    // Calls body(first, last) over [0, count) in ranges of at most `grain`,
    // taken dynamically. The first exception thrown is rethrown here.
    void parallel_for(std::size_t count, std::size_t grain,
                      const std::function<void(std::size_t, std::size_t)>& body);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// Cores this process may use (its affinity mask and cgroup quota, at least 1).
int available_cores();

}  // namespace forge
