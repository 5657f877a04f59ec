// What the batcher's parts share; its thread alone uses everything below the lock's members.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "prefix_trie.h"
#include "runtime/batcher.h"
#include "runtime/timeline.h"

namespace forge {

// Fewer tokens than this are computed again rather than copied or waited for.
constexpr std::size_t worth_copying = 32;

using BatchClock = std::chrono::steady_clock;
inline double seconds_since(BatchClock::time_point start) { return std::chrono::duration<double>(BatchClock::now() - start).count(); }

struct Batcher::State {
    // A slot of the engine: what its cache holds, and the request it works for.
    struct Slot {
        int index = 0;
        std::unique_ptr<Timeline> timeline;     // what the cache holds
        bool busy = false;
        std::uint64_t last_use = 0;

        std::uint64_t id = 0;
        BatchRequest request;
        std::unique_ptr<Sampler> sampler;
        BatchStats stats;
        BatchClock::time_point phase_start;
        bool decoding = false;
        std::int32_t next = 0;                  // drawn and reported, not yet in the cache
        std::vector<std::int32_t> ahead;        // likewise, after it: nothing else could come
        int made = 0;
        // The logits after the first `known` tokens of the timeline, which were a whole prompt; 0 = none.
        std::vector<float> prompt_logits;
        std::size_t known = 0;
        std::vector<float> pooled;              // sum of the hidden states so far, or the last one
    };

    std::shared_ptr<Engine> engine;
    std::size_t max_queue;
    mutable std::mutex mutex;
    std::condition_variable wake;
    struct Waiting { std::uint64_t id; BatchRequest request; std::unique_ptr<Sampler> sampler; BatchClock::time_point since; };
    std::deque<Waiting> queue;
    std::deque<std::function<void()>> tasks;   // for the thread, between two steps
    std::set<std::uint64_t> cancelled;
    bool stop = false;
    std::uint64_t next_id = 1;
    Load counters;
    BatchClock::time_point last_step = BatchClock::now();

    std::vector<Slot> slots;                // used by the thread only
    std::uint64_t uses = 0;
    std::size_t prefill_turn = 0;
    std::vector<StepInput> rows;
    PrefixTrie prefixes;                    // a slot holds its prompt while it is answered, then its timeline
    std::vector<PrefixTrie::Held> held;     // for take_prefix
    std::thread thread;

    State(std::shared_ptr<Engine> e, std::size_t prefix_bytes)
        : engine(std::move(e)), prefixes({prefix_bytes, engine->row_bytes(), engine->state_bytes()}) {}

    void loop();
    void admit();
    void drop_cancelled();
    void run_tasks();
    Slot& choose_slot(std::span<const std::int32_t> prompt);
    void begin(Slot& slot, BatchClock::time_point since);
    void save_before_loss(Slot& slot, std::size_t kept);
    void keep_copy(const Slot& slot);
    bool take_prefix(Slot& slot);
    std::size_t coming(const Slot& slot, std::size_t common) const;
    void copy_from(const Slot& donor, Slot& slot, std::size_t length);
    void copy_kept(Slot& slot, std::span<const std::int32_t> wanted);
    void hold(const Slot& slot, std::span<const std::int32_t> tokens) { prefixes.hold(static_cast<int>(&slot - slots.data()), tokens); }
    bool prefill_one();
    void embed_chunk(Slot& slot);
    Slot& idle_slot(int index);
    template <typename Work> auto between_steps(Work work);
    void decode_all();
    void draw(Slot& slot, std::span<const float> logits);
    void add_forced(Slot& slot);
    void step_ahead(Slot& slot, std::size_t most);
    void finish(Slot& slot, FinishReason reason);
    void abandon(Slot& slot, const std::string& error);
    static void tell_end(const BatchRequest& request, FinishReason reason, const BatchStats& stats);
    static void tell_error(const BatchRequest& request, const std::string& error);
};

}  // namespace forge
