// Serves several requests on one engine from one thread: all decoding
// sequences step together, one waiting prompt advances by a chunk in between.
// What a sequence computes does not depend on the others (docs/numerics.md).
//
// What was computed is computed once: a request begins with the longest prefix that its slot, another
// slot or the store of finished sequences holds, waits while another one computes that prefix, and
// a prompt that was the last one in its slot starts from the logits kept of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/engine.h"
#include "runtime/sampler.h"
#include "runtime/session.h"

namespace forge {

struct BatchStats {
    int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
    double queue_seconds = 0, prompt_seconds = 0, decode_seconds = 0;
};

// What becomes of a text's hidden states after the last norm: the last one, or the mean of all.
enum class Pooling { none, last, mean };

struct BatchRequest {
    std::vector<std::int32_t> prompt;
    SamplingOptions sampling;
    std::int32_t id_limit = 0;   // ids from here on are never drawn; 0 = the vocabulary's size
    GenerateOptions generate;
    // Called on the batcher's thread; they must not block long.
    // on_token sees the raw logits that the token was drawn from; false ends the request.
    std::function<bool(std::int32_t token, std::span<const float> logits)> on_token;
    std::function<void(FinishReason reason, const BatchStats& stats)> on_done;
    std::function<void(const std::string& error)> on_error;
    // Optional: the allowed tokens before each draw, one bit an id, or null for all.
    std::function<const std::uint32_t*()> mask;
    // Not none: nothing is generated; on_embedding gets the pooled states, scaled to length 1, before on_done.
    Pooling pooling = Pooling::none;
    std::function<void(std::span<const float>)> on_embedding;
    // Optional: after each token, those that must follow it. They are reported (without logits) and computed
    // together, up to eight a step, which gives the same bits as one after the other.
    std::function<std::vector<std::int32_t>()> forced;
};

// Too many requests wait already; later there may be room.
class QueueFull : public Error {
  public:
    explicit QueueFull(const std::string& message) : Error(ErrorKind::out_of_memory, message) {}
};

class Batcher {
  public:
    // max_queue: requests that may wait for a slot; submit() throws QueueFull for more.
    // prefix_bytes: memory for caches of sequences that lost their slot; 0 = none are kept.
    Batcher(std::shared_ptr<Engine> engine, int max_queue, std::size_t prefix_bytes = 0);
    ~Batcher();   // close()
    void close();   // cancels everything and joins the thread; nothing is taken afterwards

    // Throws Error when the prompt cannot fit the context, QueueFull when the queue is full.
    std::uint64_t submit(BatchRequest request);
    void cancel(std::uint64_t id);   // on_done(cancelled) follows unless it already ended

    struct Load {
        int waiting = 0, running = 0, slots = 0;
        double seconds_since_step = 0;    // 0 when nothing is to do
        std::uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, steps = 0;
        std::uint64_t prefix_bytes = 0;   // in the store
    };
    Load load() const;

    // Slots and files of theirs (Session's format). These wait for the step in progress. Error when there is no
    // such slot, it is busy, or the file is not one of this model; the numbers are tokens.
    struct SlotInfo { int index = 0; bool busy = false; std::size_t tokens = 0; };
    std::vector<SlotInfo> slots();
    std::size_t save_slot(int slot, const std::string& path);
    std::size_t restore_slot(int slot, const std::string& path);
    std::size_t erase_slot(int slot);

    const std::shared_ptr<Engine>& engine() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace forge
