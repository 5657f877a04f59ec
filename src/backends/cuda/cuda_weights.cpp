#include "cuda_weights.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"

namespace forge::cuda {
namespace {

// One core copies slower than the bus: several fill places of pinned memory, and one thread alone hands these to the
// driver, whose calls would wait for each other.
constexpr std::size_t kStaging = 4u << 20;
constexpr std::size_t kFillers = 8, kPlaces = 12;

struct Wanted { const std::byte* data; std::size_t bytes; std::uint64_t offset; bool first; };
struct Piece { const std::byte* data; std::size_t bytes; Pointer to; };

// Between two looks at what another thread does: short waits are the rule, and a slow disk makes long ones.
void pause(unsigned& turns) {
    if (++turns < 1000) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(50));
}

std::size_t largest(std::span<const Piece> pieces) {
    std::size_t bytes = 0;
    for (const Piece& p : pieces) bytes = std::max(bytes, p.bytes);
    return bytes;
}

// Pieces in their order, each through the place of its number. The destructor waits for threads and copies.
class Upload {
  public:
    Upload(std::shared_ptr<GpuContext> context, std::span<const Piece> pieces, std::uint64_t total)
        : context_(std::move(context)), driver_(context_->driver()), pieces_(pieces), places_(std::min(kPlaces, pieces.size())), place_bytes_(largest(pieces)),
          progress_("weights to the GPU", total) {
        context_->use();
        staging_ = PinnedMemory(context_, places_ * place_bytes_);
    }
    ~Upload() {
        stop_ = true;
        for (std::thread& t : fillers_) t.join();
        if (stream_) driver_.stream_synchronize(stream_);   // copies read the staging memory
        for (Event e : copied_)
            if (e) driver_.event_destroy(e);
        if (stream_) driver_.stream_destroy(stream_);
    }

    void run() {
        check(driver_.stream_create(&stream_, 1), "make a stream");   // of its own, so that nobody else waits for it
        for (std::size_t i = 0; i < places_; ++i) check(driver_.event_create(&copied_[i], kUntimed), "make an event");
        const std::size_t fillers = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, std::min(kFillers, pieces_.size()));
        for (std::size_t i = 0; i < fillers; ++i) fillers_.emplace_back([this] { fill(); });
        for (std::size_t i = 0, asked = 0; i < pieces_.size(); ++i) {
            // Meanwhile places become free.
            for (unsigned turns = 0; filled_[i % places_].load(std::memory_order_acquire) != i + 1;) {
                if (asked < i && is_copied(asked)) free_.store(++asked, std::memory_order_release);
                else pause(turns);
            }
            const Piece& p = pieces_[i];
            check(driver_.to_device(p.to, staging_.data() + i % places_ * place_bytes_, p.bytes, stream_), "copy weights");
            check(driver_.event_record(copied_[i % places_], stream_), "copy weights");
            progress_.advance(p.bytes);
            if (asked < i && is_copied(asked)) free_.store(++asked, std::memory_order_release);
        }
        check(driver_.stream_synchronize(stream_), "copy weights");
    }

  private:
    bool is_copied(std::size_t piece) const {
        const Result r = driver_.event_query(copied_[piece % places_]);
        if (r != kNotReady) check(r, "copy weights");
        return r != kNotReady;
    }
    void fill() {
        for (std::size_t i; !stop_ && (i = next_++) < pieces_.size();) {
            for (unsigned turns = 0; i >= free_.load(std::memory_order_acquire) + places_; pause(turns))
                if (stop_) return;
            std::memcpy(staging_.data() + i % places_ * place_bytes_, pieces_[i].data, pieces_[i].bytes);
            filled_[i % places_].store(i + 1, std::memory_order_release);
        }
    }

    std::shared_ptr<GpuContext> context_;
    const Driver& driver_;
    std::span<const Piece> pieces_;
    std::size_t places_, place_bytes_;
    Progress progress_;
    PinnedMemory staging_;
    Stream stream_ = nullptr;
    std::array<Event, kPlaces> copied_{};                        // the last copy from each place
    std::array<std::atomic<std::size_t>, kPlaces> filled_{};     // number of the piece in each place, from 1 on
    std::atomic<std::size_t> next_{0}, free_{0};                 // the next piece to fill; pieces that have left their places
    std::atomic<bool> stop_{false};
    std::vector<std::thread> fillers_;
};

void copy_all(const std::shared_ptr<GpuContext>& context, std::span<const Piece> pieces, std::uint64_t total) {
    if (pieces.empty()) return;
    const auto start = std::chrono::steady_clock::now();
    Upload(context, pieces, total).run();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    log_debug("{} of weights to the GPU in {:.2f} s, {:.1f} GB/s", format_bytes(total), seconds, static_cast<double>(total) / seconds / 1e9);
}

}  // namespace

std::future<void> Weights::upload(const gpu::GpuProgram& program, std::span<const Weight> weights) {
    std::vector<Wanted> wanted;
    std::uint64_t total = 0;
    gpu::for_each_plane(program, weights, [&](std::span<const Weight> stacked, int plane) {
        const std::byte* data = gpu::plane_of(stacked[0], plane).data;
        if (planes_.count(data)) return;
        planes_[data] = 0;
        for (const Weight& w : stacked) {
            wanted.push_back({gpu::plane_of(w, plane).data, gpu::plane_bytes(w, plane), total, &w == &stacked[0]});
            total += stacked.size() > 1 ? gpu::expert_stride(w, plane) : wanted.back().bytes;
        }
        total = (total + 255) / 256 * 256;
    });
    std::promise<void> nothing;
    if (wanted.empty()) {
        nothing.set_value();
        return nothing.get_future();
    }
    blocks_.emplace_back(context_, total);
    const Pointer base = blocks_.back().at();
    std::vector<Piece> pieces;
    for (const Wanted& w : wanted) {
        if (w.first) planes_[w.data] = base + w.offset;
        for (std::size_t at = 0; at < w.bytes; at += kStaging) pieces.push_back({w.data + at, std::min(kStaging, w.bytes - at), base + w.offset + at});
    }
    return std::async(std::launch::async, [context = context_, pieces = std::move(pieces), total] { copy_all(context, pieces, total); });
}

Pointer Weights::plane(const Weight& weight, int plane) const {
    const auto it = planes_.find(gpu::plane_of(weight, plane).data);
    if (it == planes_.end()) fail(ErrorKind::internal, "{}: plane {} was not copied to the GPU", weight.name, plane);
    return it->second;
}

}  // namespace forge::cuda
