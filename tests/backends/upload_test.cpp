// Weights on their way to a GPU that is not there: a driver whose copies take their time, or fail.
#include "upload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace forge::cuda {
namespace {

// One stream whose work another thread does, in order, some time later. Device memory is memory of the test.
class SlowDriver {
  public:
    explicit SlowDriver(unsigned seed) : random_(seed) {
        one_ = this;
        table.stream_create = [](Stream* s, unsigned) {
            return *s = reinterpret_cast<Stream>(one_), one_->begin();
        };
        table.stream_destroy = [](Stream) { return one_->end(); };
        table.stream_synchronize = [](Stream) { return one_->synchronize(); };
        table.event_create = [](Event* e, unsigned flags) {
            EXPECT_EQ(flags, kUntimed);
            ++one_->events;
            *e = reinterpret_cast<Event>(new std::atomic<int>(0));
            return 0;
        };
        table.event_destroy = [](Event e) {
            --one_->events;
            delete counter(e);
            return 0;
        };
        table.event_record = [](Event e, Stream) {
            ++*counter(e);
            one_->later([e] { --*counter(e); });
            return 0;
        };
        table.event_query = [](Event e) {
            return one_->calls++ == one_->failing ? 700 : *counter(e) > 0 ? kNotReady : 0;
        };
        table.to_device = [](Pointer to, const void* from, std::size_t bytes, Stream) {
            EXPECT_EQ(std::this_thread::get_id(), one_->caller) << "one thread alone calls the driver";
            if (one_->calls++ == one_->failing) return 700;
            one_->later([=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
            return 0;
        };
    }

    Driver table{};
    std::atomic<int> events{0}, streams{0};
    long failing = -1;  // the number of the call that fails
    std::atomic<long> calls{0};
    std::thread::id caller = std::this_thread::get_id();

  private:
    static std::atomic<int>* counter(Event e) { return reinterpret_cast<std::atomic<int>*>(e); }
    Result begin() {
        ++streams;
        ended_ = false;
        thread_ = std::thread([this] {
            for (std::unique_lock lock(mutex_);;) {
                news_.wait(lock, [&] { return ended_ || !work_.empty(); });
                if (work_.empty()) return;
                const std::function<void()> fn = work_.front();
                const unsigned delay = random_() % 4 == 0 ? random_() % 300 : 0;
                lock.unlock();
                if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
                fn();
                lock.lock();
                work_.pop_front();
                news_.notify_all();
            }
        });
        return 0;
    }
    Result end() {
        --streams;
        {
            std::lock_guard lock(mutex_);
            ended_ = true;
        }
        news_.notify_all();
        thread_.join();
        return 0;
    }
    Result synchronize() {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [&] { return work_.empty(); });
        return 0;
    }
    void later(std::function<void()> fn) {
        {
            std::lock_guard lock(mutex_);
            work_.push_back(std::move(fn));
        }
        news_.notify_all();
    }

    static inline SlowDriver* one_ = nullptr;
    std::mutex mutex_;
    std::condition_variable news_;
    std::deque<std::function<void()>> work_;
    bool ended_ = false;
    std::thread thread_;
    std::mt19937 random_;
};

// Random bytes, cut into pieces of up to `largest`.
struct Load {
    std::vector<std::byte> from, to;
    std::vector<Piece> pieces;
    Load(std::size_t count, std::size_t largest, unsigned seed) {
        std::mt19937 random(seed);
        std::vector<std::size_t> sizes(count);
        std::size_t total = 0;
        for (std::size_t& s : sizes) total += s = 1 + random() % largest;
        from.resize(total);
        to.assign(total, std::byte{0xee});
        for (std::byte& b : from) b = static_cast<std::byte>(random());
        std::size_t at = 0;
        for (const std::size_t s : sizes) {
            pieces.push_back({from.data() + at, s, reinterpret_cast<Pointer>(to.data() + at)});
            at += s;
        }
    }
};

TEST(CudaUpload, EveryByteArrives) {
    constexpr std::size_t largest = 4096;
    for (const std::size_t places : {1, 2, 3, 12})
        for (const std::size_t fillers : {1, 2, 8})
            for (const std::size_t count : {1, 2, 11, 12, 13, 200}) {
                SCOPED_TRACE(std::to_string(places) + " places, " + std::to_string(fillers) + " fillers, " +
                             std::to_string(count) + " pieces");
                SlowDriver driver(static_cast<unsigned>(places * 100 + count));
                Load load(count, largest, static_cast<unsigned>(fillers + count));
                std::vector<std::byte> staging(places * largest);
                std::size_t told = 0;
                upload(driver.table, load.pieces, staging.data(), places, largest, fillers,
                       [&](std::size_t bytes) { told += bytes; });
                EXPECT_EQ(told, load.from.size());
                EXPECT_TRUE(load.to == load.from);
                EXPECT_EQ(driver.events, 0);
                EXPECT_EQ(driver.streams, 0);
            }
}

// Whichever call fails: a sentence, no thread or copy that goes on, nothing left behind.
TEST(CudaUpload, AFailedCopyEndsIt) {
    constexpr std::size_t largest = 2048, places = 4;
    for (long failing = 0; failing < 60; ++failing) {
        SCOPED_TRACE(failing);
        SlowDriver driver(static_cast<unsigned>(failing));
        driver.failing = failing;
        Load load(40, largest, 3);
        std::vector<std::byte> staging(places * largest);
        try {
            upload(driver.table, load.pieces, staging.data(), places, largest, 3, [](std::size_t) {});
            ADD_FAILURE() << "it went on";
        } catch (const Error& e) {
            EXPECT_NE(std::string(e.what()).find("copy weights"), std::string::npos) << e.what();
        }
        EXPECT_EQ(driver.events, 0);
        EXPECT_EQ(driver.streams, 0);
    }
}

TEST(CudaUpload, WhoIsToldMayThrow) {
    SlowDriver driver(1);
    Load load(30, 512, 4);
    std::vector<std::byte> staging(6 * 512);
    int pieces = 0;
    EXPECT_THROW(upload(driver.table, load.pieces, staging.data(), 6, 512, 2,
                        [&](std::size_t) {
                            if (++pieces == 9) throw std::runtime_error("enough");
                        }),
                 std::runtime_error);
    EXPECT_EQ(driver.events, 0);
    EXPECT_EQ(driver.streams, 0);
}

}  // namespace
}  // namespace forge::cuda
