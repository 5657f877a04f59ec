#include "cuda_weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/progress.h"

namespace forge::cuda {
namespace {

// One core copies slower than the bus: several fill pinned memory, each into two places in turn.
constexpr std::size_t kStaging = 2u << 20;
constexpr std::size_t kThreads = 8;

struct Wanted { const std::byte* data; std::size_t bytes; std::uint64_t offset; bool first; };
struct Piece { const std::byte* data; std::size_t bytes; Pointer to; };

void copy_pieces(const std::shared_ptr<GpuContext>& context, Stream stream, std::span<const Piece> pieces, std::atomic<std::size_t>& next, Progress& progress) {
    context->use();
    const Driver& d = context->driver();
    PinnedMemory staging[2] = {PinnedMemory(context, kStaging), PinnedMemory(context, kStaging)};
    struct Events {
        const Driver& driver;
        Event of[2] = {};
        ~Events() {
            for (Event e : of)
                if (e) {
                    driver.event_synchronize(e);   // the copy before it reads the staging memory
                    driver.event_destroy(e);
                }
        }
    } copied{d};
    for (Event& e : copied.of) check(d.event_create(&e, 0), "make an event");
    int turn = 0;
    for (std::size_t i; (i = next++) < pieces.size(); turn ^= 1) {
        const Piece& p = pieces[i];
        // This half is free once its last copy is done; the other one may still be under way.
        check(d.event_synchronize(copied.of[turn]), "copy weights");
        std::memcpy(staging[turn].data(), p.data, p.bytes);
        check(d.to_device(p.to, staging[turn].data(), p.bytes, stream), "copy weights");
        check(d.event_record(copied.of[turn], stream), "copy weights");
        progress.advance(p.bytes);
    }
}

// By several threads, through a stream of their own, so that nobody else waits for it.
void copy_all(const std::shared_ptr<GpuContext>& context, std::span<const Piece> pieces, std::uint64_t total) {
    context->use();
    struct Owner {
        const Driver& driver;
        Stream stream = nullptr;
        ~Owner() {
            if (stream) driver.stream_destroy(stream);
        }
    } own{context->driver()};
    check(own.driver.stream_create(&own.stream, 1), "make a stream");
    Progress progress("weights to the GPU", total);
    std::atomic<std::size_t> next{0};
    std::vector<std::exception_ptr> errors(std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, std::min(kThreads, pieces.size())));
    const auto work = [&](std::size_t t) {
        try {
            copy_pieces(context, own.stream, pieces, next, progress);
        } catch (...) {
            errors[t] = std::current_exception();
            next = pieces.size();   // the others stop too
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 1; t < errors.size(); ++t) threads.emplace_back(work, t);
    work(0);
    for (std::thread& t : threads) t.join();
    for (const std::exception_ptr& e : errors)
        if (e) std::rethrow_exception(e);
    check(own.driver.stream_synchronize(own.stream), "copy weights");
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
