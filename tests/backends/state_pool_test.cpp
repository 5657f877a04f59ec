#include "state_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace forge::cuda {
namespace {

// Counts what is there.
struct Made {
    std::vector<std::unique_ptr<std::byte[]>> memory;
    std::size_t most = 100;
    std::byte* operator()() {
        if (memory.size() == most) return nullptr;
        memory.push_back(std::make_unique<std::byte[]>(8));
        return memory.back().get();
    }
};

TEST(StatePool, UsesMemoryAgainAndMakesNoMoreThanItMay) {
    const auto made = std::make_shared<Made>();
    const auto pool = std::make_shared<StatePool>([made] { return (*made)(); }, 2, 4);
    EXPECT_EQ(made->memory.size(), 2u);
    std::vector<std::shared_ptr<std::byte[]>> taken;
    std::set<std::byte*> all;
    for (int i = 0; i < 4; ++i) {
        taken.push_back(pool->take());
        ASSERT_NE(taken.back(), nullptr);
        all.insert(taken.back().get());
    }
    EXPECT_EQ(all.size(), 4u);
    EXPECT_EQ(pool->take(), nullptr);
    std::byte* const back = taken[1].get();
    taken.erase(taken.begin() + 1);
    const auto again = pool->take();
    EXPECT_EQ(again.get(), back);
    EXPECT_EQ(pool->take(), nullptr);
    EXPECT_EQ(made->memory.size(), 4u);
}

TEST(StatePool, HasWhatTheMachineGives) {
    const auto made = std::make_shared<Made>();
    made->most = 1;
    const auto pool = std::make_shared<StatePool>([made] { return (*made)(); }, 3, 8);
    const auto one = pool->take();
    EXPECT_NE(one, nullptr);
    EXPECT_EQ(pool->take(), nullptr);
    made->most = 2;   // later there is more
    EXPECT_NE(pool->take(), nullptr);
}

TEST(StatePool, OutlivesWhoeverMadeIt) {
    auto made = std::make_shared<Made>();
    const std::weak_ptr<Made> alive = made;
    auto pool = std::make_shared<StatePool>([made] { return (*made)(); }, 1, 2);
    made.reset();
    auto state = pool->take();
    pool.reset();
    state[7] = std::byte{1};
    EXPECT_FALSE(alive.expired());
    state.reset();
    EXPECT_TRUE(alive.expired());
}

TEST(StatePool, ThreadsTakeAndReturn) {
    const auto made = std::make_shared<Made>();
    const auto pool = std::make_shared<StatePool>([made] { return (*made)(); }, 0, 3);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
        threads.emplace_back([&pool] {
            for (int i = 0; i < 2000; ++i) {
                const auto state = pool->take();
                ASSERT_NE(state, nullptr);
                state[i % 8] = std::byte{7};
            }
        });
    for (std::thread& t : threads) t.join();
    EXPECT_LE(made->memory.size(), 3u);
}

}  // namespace
}  // namespace forge::cuda
