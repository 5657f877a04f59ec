#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace forge {
namespace {

TEST(ThreadPool, EveryIndexOnceForAnyGrain) {
    for (int threads : {1, 2, 5}) {
        ThreadPool pool(threads);
        for (std::size_t count : {0u, 1u, 7u, 1000u}) {
            for (std::size_t grain : {0u, 1u, 3u, 5000u}) {
                std::vector<std::atomic<int>> hits(count);
                pool.parallel_for(count, grain, [&](std::size_t a, std::size_t b) { for (; a < b; ++a) ++hits[a]; });
                for (auto& h : hits) ASSERT_EQ(h, 1);
            }
        }
    }
}

TEST(ThreadPool, RunReachesEveryWorkerManyTimes) {
    ThreadPool pool(3);
    std::atomic<int> calls[3] = {};
    for (int i = 0; i < 2000; ++i)
        pool.run([](void* c, int worker) { ++static_cast<std::atomic<int>*>(c)[worker]; }, calls);
    for (auto& c : calls) EXPECT_EQ(c, 2000);
}

TEST(ThreadPool, ExceptionReachesTheCaller) {
    ThreadPool pool(4);
    EXPECT_THROW(pool.parallel_for(100, 1, [](std::size_t a, std::size_t) { if (a == 37) throw std::runtime_error("x"); }),
                 std::runtime_error);
    std::atomic<int> sum{0};
    pool.parallel_for(10, 1, [&](std::size_t, std::size_t) { ++sum; });
    EXPECT_EQ(sum, 10);
}

}  // namespace
}  // namespace forge
