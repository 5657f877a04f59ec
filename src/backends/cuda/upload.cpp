#include "upload.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace forge::cuda {
namespace {

// Between two looks at what another thread does: short waits are the rule, and a slow disk makes long ones.
void pause(unsigned& turns) {
    if (++turns < 1000)
        std::this_thread::yield();
    else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
}

// The destructor waits for threads and copies.
class Upload {
  public:
    Upload(const Driver& driver, std::span<const Piece> pieces, std::byte* staging, std::size_t places,
           std::size_t place_bytes)
        : driver_(driver), pieces_(pieces), staging_(staging), place_bytes_(place_bytes), places_(places) {}
    ~Upload() {
        stop_ = true;
        for (std::thread& t : fillers_) t.join();
        if (stream_) driver_.stream_synchronize(stream_);  // copies read the staging memory
        for (const Place& p : places_)
            if (p.copied) driver_.event_destroy(p.copied);
        if (stream_) driver_.stream_destroy(stream_);
    }

    void run(std::size_t fillers, const std::function<void(std::size_t)>& submitted) {
        check(driver_.stream_create(&stream_, 1),
              "make a stream");  // of its own, so that nobody else waits for it
        for (Place& p : places_) check(driver_.event_create(&p.copied, kUntimed), "make an event");
        for (std::size_t i = 0; i < fillers; ++i) fillers_.emplace_back([this] { fill(); });
        std::size_t left = 0;  // pieces that have left their places
        const auto look = [&](std::size_t asked_for) {
            if (left == asked_for || !is_copied(left)) return false;
            left_.store(++left, std::memory_order_release);
            return true;
        };
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            Place& place = places_[i % places_.size()];
            for (unsigned turns = 0; place.filled.load(std::memory_order_acquire) != i + 1;)
                if (!look(i)) pause(turns);
            check(driver_.to_device(pieces_[i].to, memory(i), pieces_[i].bytes, stream_), "copy weights");
            check(driver_.event_record(place.copied, stream_), "copy weights");
            submitted(pieces_[i].bytes);
            look(i);
        }
        check(driver_.stream_synchronize(stream_), "copy weights");
    }

  private:
    struct Place {
        Event copied = nullptr;              // the last copy from here
        std::atomic<std::size_t> filled{0};  // number of the piece that is here, from 1 on
    };

    std::byte* memory(std::size_t piece) const { return staging_ + piece % places_.size() * place_bytes_; }
    bool is_copied(std::size_t piece) const {
        const Result r = driver_.event_query(places_[piece % places_.size()].copied);
        if (r != kNotReady) check(r, "copy weights");
        return r != kNotReady;
    }
    void fill() {
        for (std::size_t i; !stop_ && (i = next_++) < pieces_.size();) {
            for (unsigned turns = 0; i >= left_.load(std::memory_order_acquire) + places_.size();
                 pause(turns))
                if (stop_) return;
            std::memcpy(memory(i), pieces_[i].data, pieces_[i].bytes);
            places_[i % places_.size()].filled.store(i + 1, std::memory_order_release);
        }
    }

    const Driver& driver_;
    std::span<const Piece> pieces_;
    std::byte* staging_;
    std::size_t place_bytes_;
    std::vector<Place> places_;
    Stream stream_ = nullptr;
    std::atomic<std::size_t> next_{0},
        left_{0};  // the next piece to fill; pieces that have left their places
    std::atomic<bool> stop_{false};
    std::vector<std::thread> fillers_;
};

}  // namespace

void upload(const Driver& driver, std::span<const Piece> pieces, std::byte* staging, std::size_t places,
            std::size_t place_bytes, std::size_t fillers, const std::function<void(std::size_t)>& submitted) {
    Upload(driver, pieces, staging, places, place_bytes).run(fillers, submitted);
}

}  // namespace forge::cuda
