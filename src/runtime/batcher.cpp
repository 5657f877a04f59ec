#include "runtime/batcher.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "draw.h"
#include "prefix_store.h"
#include "runtime/timeline.h"
#include "saved_timeline.h"

namespace forge {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

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
    Clock::time_point phase_start;
    bool decoding = false;
    std::int32_t next = 0;                  // drawn and reported, not yet in the cache
    std::vector<std::int32_t> ahead;        // likewise, after it: nothing else could come
    int made = 0;
    // The logits after the first `known` tokens of the timeline, which were a whole prompt; 0 = none.
    std::vector<float> prompt_logits;
    std::size_t known = 0;
    std::vector<float> pooled;              // sum of the hidden states so far, or the last one
};

// Fewer tokens than this are computed again rather than copied or waited for.
constexpr std::size_t worth_copying = 32;

}  // namespace

struct Batcher::State {
    std::shared_ptr<Engine> engine;
    std::size_t max_queue;
    mutable std::mutex mutex;
    std::condition_variable wake;
    struct Waiting { std::uint64_t id; BatchRequest request; Clock::time_point since; };
    std::deque<Waiting> queue;
    std::deque<std::function<void()>> tasks;   // for the thread, between two steps
    std::set<std::uint64_t> cancelled;
    bool stop = false;
    std::uint64_t next_id = 1;
    Load counters;
    Clock::time_point last_step = Clock::now();

    std::vector<Slot> slots;                // used by the thread only
    std::uint64_t uses = 0;
    std::size_t prefill_turn = 0;
    std::vector<StepInput> rows;
    PrefixStore store;
    std::thread thread;

    explicit State(std::size_t prefix_bytes) : store(prefix_bytes) {}

    void loop();
    void admit();
    void drop_cancelled();
    void run_tasks();
    Slot& choose_slot(std::span<const std::int32_t> prompt);
    void begin(Slot& slot, Waiting waiting);
    void keep(const Slot& slot, std::size_t kept);
    bool share_prefix(Slot& slot);
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
};

Batcher::Batcher(std::shared_ptr<Engine> engine, int max_queue, std::size_t prefix_bytes)
    : state_(std::make_unique<State>(prefix_bytes)) {
    State& s = *state_;
    s.engine = std::move(engine);
    s.max_queue = static_cast<std::size_t>(std::max(0, max_queue));
    for (int i = 0; i < s.engine->options().parallel; ++i) {
        s.slots.emplace_back();
        s.slots.back().index = s.engine->take_slot();
        s.slots.back().timeline = std::make_unique<Timeline>(s.engine, s.slots.back().index);
    }
    s.counters.slots = static_cast<int>(s.slots.size());
    s.rows.reserve(static_cast<std::size_t>(s.engine->options().chunk));
    s.thread = std::thread([this] { state_->loop(); });
}

Batcher::~Batcher() {
    close();
    for (const Slot& slot : state_->slots) state_->engine->give_slot(slot.index);
}

void Batcher::close() {
    {
        std::lock_guard lock(state_->mutex);
        state_->stop = true;
    }
    state_->wake.notify_all();
    if (state_->thread.joinable()) state_->thread.join();
}

std::uint64_t Batcher::submit(BatchRequest request) {
    const int context = state_->engine->options().ctx;
    if (request.prompt.empty()) fail("a prompt needs at least one token");
    if (static_cast<int>(request.prompt.size()) > context)
        fail("the prompt has {} tokens, and the context holds {}", request.prompt.size(), context);
    check_options(request.sampling);
    std::lock_guard lock(state_->mutex);
    if (state_->stop) throw QueueFull("the model is being unloaded");
    const auto idle = static_cast<std::size_t>(std::max(0, state_->counters.slots - state_->counters.running));
    if (state_->queue.size() >= state_->max_queue + idle)
        throw QueueFull(fmt::format("{} requests are running and {} wait; try again later", state_->counters.running, state_->queue.size()));
    const std::uint64_t id = state_->next_id++;
    if (state_->queue.empty() && state_->counters.running == 0) state_->last_step = Clock::now();
    state_->queue.push_back({id, std::move(request), Clock::now()});
    state_->wake.notify_all();
    return id;
}

void Batcher::cancel(std::uint64_t id) {
    std::lock_guard lock(state_->mutex);
    state_->cancelled.insert(id);
    state_->wake.notify_all();
}

Batcher::Load Batcher::load() const {
    std::lock_guard lock(state_->mutex);
    Load load = state_->counters;
    load.waiting = static_cast<int>(state_->queue.size());
    load.seconds_since_step = load.running + load.waiting > 0 ? since(state_->last_step) : 0;
    return load;
}

const std::shared_ptr<Engine>& Batcher::engine() const { return state_->engine; }

void Batcher::State::loop() {
    for (;;) {
        {
            std::unique_lock lock(mutex);
            wake.wait(lock, [&] { return stop || !queue.empty() || counters.running > 0 || !cancelled.empty() || !tasks.empty(); });
            if (stop) break;
        }
        run_tasks();
        drop_cancelled();
        admit();
        prefill_one();
        decode_all();
        std::lock_guard lock(mutex);
        last_step = Clock::now();
        ++counters.steps;
        counters.prefix_bytes = store.bytes();
    }
    for (Slot& slot : slots)
        if (slot.busy) finish(slot, FinishReason::cancelled);
    for (Waiting& waiting : queue)
        if (waiting.request.on_done) waiting.request.on_done(FinishReason::cancelled, {});
    queue.clear();
    run_tasks();   // whoever waits for one must hear of it
}

void Batcher::State::run_tasks() {
    std::deque<std::function<void()>> due;
    {
        std::lock_guard lock(mutex);
        due.swap(tasks);
    }
    for (const auto& task : due) task();
}

void Batcher::State::drop_cancelled() {
    std::set<std::uint64_t> ids;
    std::vector<Waiting> dropped;
    {
        std::lock_guard lock(mutex);
        ids.swap(cancelled);
        for (auto it = queue.begin(); it != queue.end();) {
            if (!ids.count(it->id)) { ++it; continue; }
            dropped.push_back(std::move(*it));
            it = queue.erase(it);
        }
    }
    for (Waiting& waiting : dropped)
        if (waiting.request.on_done) waiting.request.on_done(FinishReason::cancelled, {});
    for (Slot& slot : slots)
        if (slot.busy && ids.count(slot.id)) finish(slot, FinishReason::cancelled);
}

// First come, first served.
void Batcher::State::admit() {
    for (;;) {
        Waiting waiting;
        {
            std::lock_guard lock(mutex);
            const bool free = std::any_of(slots.begin(), slots.end(), [](const Slot& s) { return !s.busy; });
            if (queue.empty() || !free) return;
            waiting = std::move(queue.front());
            queue.pop_front();
            ++counters.running;
        }
        Slot& slot = choose_slot(waiting.request.pooling == Pooling::none ? waiting.request.prompt : std::span<const std::int32_t>());
        begin(slot, std::move(waiting));
    }
}

// Has the thread do it between two steps, and waits for what comes of it.
template <typename Work>
auto Batcher::State::between_steps(Work work) {
    auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
    auto result = task->get_future();
    {
        std::lock_guard lock(mutex);
        if (stop) throw QueueFull("the model is being unloaded");
        tasks.push_back([task] { (*task)(); });
    }
    wake.notify_all();
    return result.get();
}

Slot& Batcher::State::idle_slot(int index) {
    if (index < 0 || index >= static_cast<int>(slots.size()))
        fail(ErrorKind::not_found, "there is no slot {}; the slots are 0 to {}", index, slots.size() - 1);
    Slot& slot = slots[static_cast<std::size_t>(index)];
    if (slot.busy) fail("slot {} is answering a request; try again when it is done", index);
    return slot;
}

std::vector<Batcher::SlotInfo> Batcher::slots() {
    return state_->between_steps([s = state_.get()] {
        std::vector<SlotInfo> all;
        for (std::size_t i = 0; i < s->slots.size(); ++i)
            all.push_back({static_cast<int>(i), s->slots[i].busy, s->slots[i].timeline->tokens().size()});
        return all;
    });
}

std::size_t Batcher::save_slot(int index, const std::string& path) {
    return state_->between_steps([=, s = state_.get()] {
        const Slot& slot = s->idle_slot(index);
        save_timeline(*s->engine, slot.index, *slot.timeline, path);
        return slot.timeline->tokens().size();
    });
}

std::size_t Batcher::restore_slot(int index, const std::string& path) {
    return state_->between_steps([=, s = state_.get()] {
        Slot& slot = s->idle_slot(index);
        s->keep(slot, 0);
        slot.known = 0;
        restore_timeline(*s->engine, slot.index, *slot.timeline, path);
        slot.last_use = ++s->uses;
        return slot.timeline->tokens().size();
    });
}

std::size_t Batcher::erase_slot(int index) {
    return state_->between_steps([=, s = state_.get()] {
        Slot& slot = s->idle_slot(index);
        const std::size_t tokens = slot.timeline->tokens().size();
        slot.known = 0;
        slot.timeline->clear();
        return tokens;
    });
}

// The free slot whose timeline serves the prompt furthest, among equals the one unused for longest.
Slot& Batcher::State::choose_slot(std::span<const std::int32_t> prompt) {
    Slot* best = nullptr;
    std::size_t best_kept = 0;
    for (Slot& slot : slots) {
        if (slot.busy) continue;
        const std::size_t kept = slot.timeline->reusable(prompt);
        if (best && (kept < best_kept || (kept == best_kept && slot.last_use >= best->last_use))) continue;
        best = &slot;
        best_kept = kept;
    }
    return *best;
}

void Batcher::State::begin(Slot& slot, Waiting waiting) {
    const std::vector<std::int32_t>& prompt = waiting.request.prompt;
    const auto& tokens = slot.timeline->tokens();
    const bool embedding = waiting.request.pooling != Pooling::none;
    const bool repeated = !embedding && slot.known == prompt.size() && common_prefix(prompt, tokens) == prompt.size();
    std::size_t kept = repeated ? prompt.size() : embedding ? 0 : slot.timeline->reusable(prompt);
    keep(slot, kept);
    if (embedding) {   // every token's state is wanted, and none is kept
        slot.timeline->clear();
        slot.known = 0;
        slot.pooled.assign(static_cast<std::size_t>(engine->spec().hidden), 0);
    } else if (repeated) {
        slot.timeline->truncate(kept);
    } else {
        slot.timeline->rewind(prompt);
        if (kept < slot.known) slot.known = 0;
        std::size_t stored = 0;
        const PrefixStore::Entry* entry = slot.timeline->recurrent() ? nullptr : store.find(std::span(prompt).first(prompt.size() - 1), stored);
        if (entry && stored >= kept + worth_copying) {
            slot.known = 0;
            slot.timeline->clear();
            engine->load_cache(slot.index, static_cast<int>(entry->tokens.size()), entry->cache);
            slot.timeline->advance(std::span(prompt).first(stored));
            kept = stored;
        }
    }
    slot.busy = true;
    slot.decoding = false;
    slot.ahead.clear();
    slot.made = 0;
    slot.id = waiting.id;
    slot.last_use = ++uses;
    slot.stats = {};
    slot.stats.prompt_tokens = static_cast<int>(prompt.size());
    slot.stats.cached_tokens = static_cast<int>(kept);
    slot.stats.queue_seconds = since(waiting.since);
    slot.phase_start = Clock::now();
    slot.sampler = std::make_unique<Sampler>(waiting.request.sampling, waiting.request.id_limit > 0 ? waiting.request.id_limit : engine->spec().vocab);
    slot.request = std::move(waiting.request);
    std::lock_guard lock(mutex);
    counters.prompt_tokens += slot.request.prompt.size();
    counters.cached_tokens += kept;
}

// Saves what the slot is about to lose, when it is worth it: a copy is of the whole sequence and takes a sixteenth of the
// time of computing it, so that a short end after a long beginning that stays is rather computed again.
void Batcher::State::keep(const Slot& slot, std::size_t kept) {
    const auto& tokens = slot.timeline->tokens();
    if (!store.enabled() || slot.timeline->recurrent() || tokens.size() < kept + worth_copying || (tokens.size() - kept) * 4 < tokens.size() || store.holds(tokens)) return;
    store.put({tokens, engine->save_cache(slot.index, static_cast<int>(tokens.size()))});
}

// Takes a longer prefix over from another slot. True when the slot should wait, because an earlier
// request is computing more of this one's prefix.
bool Batcher::State::share_prefix(Slot& slot) {
    if (slot.timeline->recurrent()) return false;
    const std::size_t size = slot.timeline->tokens().size();
    const auto wanted = std::span(slot.request.prompt).first(slot.request.prompt.size() - 1);
    const Slot* donor = nullptr;
    std::size_t best = size + worth_copying - 1;
    for (const Slot& other : slots) {
        if (&other == &slot || (other.busy && other.request.pooling != Pooling::none)) continue;
        const std::size_t common = common_prefix(wanted, other.timeline->tokens());
        if (common > best) {
            donor = &other;
            best = common;
        }
        if (!other.busy || other.decoding || other.id > slot.id) continue;
        const std::size_t coming = common_prefix(wanted, other.request.prompt);
        if (coming > common && coming >= size + worth_copying) return true;
    }
    if (donor) {
        slot.known = 0;
        const std::vector<std::byte> cache = engine->save_cache(donor->index, static_cast<int>(best));
        slot.timeline->clear();
        engine->load_cache(slot.index, static_cast<int>(best), cache);
        slot.timeline->advance(wanted.first(best));
        slot.stats.cached_tokens += static_cast<int>(best - size);
        std::lock_guard lock(mutex);
        counters.cached_tokens += best - size;
    }
    return false;
}

// One chunk of one prompt, prompts in turn. Chunks end at multiples of the chunk size.
bool Batcher::State::prefill_one() {
    for (std::size_t tried = 0; tried < slots.size(); ++tried) {
        Slot& slot = slots[prefill_turn++ % slots.size()];
        if (!slot.busy || slot.decoding) continue;
        try {
            if (slot.request.pooling != Pooling::none) {
                embed_chunk(slot);
                return true;
            }
            const std::span<const std::int32_t> prompt = slot.request.prompt;
            const int total = static_cast<int>(prompt.size());
            std::span<const float> logits = slot.prompt_logits;
            if (slot.timeline->tokens().size() < prompt.size()) {
                if (share_prefix(slot)) continue;
                const int first = static_cast<int>(slot.timeline->tokens().size());
                const int last = slot.timeline->step_end(first, prompt);
                rows.clear();
                for (int i = first; i < last; ++i) rows.push_back({prompt[static_cast<std::size_t>(i)], slot.index, i, i + 1 == total});
                logits = engine->step(rows);
                slot.timeline->advance(prompt.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first)));
                if (last < total) {
                    slot.timeline->snapshot();
                    return true;
                }
                if (!slot.timeline->recurrent()) {
                    slot.prompt_logits.assign(logits.begin(), logits.end());
                    slot.known = prompt.size();
                }
            }
            slot.decoding = true;
            slot.stats.prompt_seconds = since(slot.phase_start);
            slot.phase_start = Clock::now();
            draw(slot, logits);
        } catch (const std::exception& e) {
            abandon(slot, e.what());
        }
        return true;
    }
    return false;
}

void Batcher::State::embed_chunk(Slot& slot) {
    const std::span<const std::int32_t> prompt = slot.request.prompt;
    const std::size_t first = slot.timeline->tokens().size(), last = std::min(prompt.size(), first + static_cast<std::size_t>(engine->options().chunk));
    const bool mean = slot.request.pooling == Pooling::mean;
    rows.clear();
    for (std::size_t i = first; i < last; ++i)
        rows.push_back({prompt[i], slot.index, static_cast<std::int32_t>(i), mean || i + 1 == prompt.size()});
    const std::span<const float> states = engine->embed(rows);
    slot.timeline->advance(prompt.subspan(first, last - first));
    for (std::size_t i = 0; i < states.size(); ++i) slot.pooled[i % slot.pooled.size()] += states[i];
    if (last < prompt.size()) return;
    double squares = 0;
    for (const float x : slot.pooled) squares += double(x) * x;
    const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
    for (float& x : slot.pooled) x = static_cast<float>(x * scale);
    slot.timeline->clear();   // these kernels' cache is nobody else's
    slot.stats.prompt_seconds = since(slot.phase_start);
    if (slot.request.on_embedding) slot.request.on_embedding(slot.pooled);
    finish(slot, FinishReason::stop);
}

void Batcher::State::decode_all() {
    const std::size_t vocab = static_cast<std::size_t>(engine->spec().vocab);
    constexpr std::size_t most = 8;   // rows that decode kernels take
    for (std::size_t first = 0; first < slots.size();) {
        rows.clear();
        std::size_t members[most];
        std::size_t count = 0;
        for (; first < slots.size() && count < std::min<std::size_t>(most, static_cast<std::size_t>(engine->options().max_outputs)); ++first) {
            Slot& slot = slots[first];
            if (!slot.busy || !slot.decoding) continue;
            if (slot.ahead.size() >= most) {
                const std::vector<StepInput> begun = rows;
                step_ahead(slot, most);
                rows = begun;
                if (!slot.busy) continue;
            }
            if (rows.size() + 1 + slot.ahead.size() > most) break;
            auto position = static_cast<std::int32_t>(slot.timeline->tokens().size());
            rows.push_back({slot.next, slot.index, position, slot.ahead.empty()});
            for (std::size_t i = 0; i < slot.ahead.size(); ++i) rows.push_back({slot.ahead[i], slot.index, ++position, i + 1 == slot.ahead.size()});
            members[count++] = first;
        }
        if (count == 0) return;
        try {
            const auto logits = engine->step(rows);
            for (std::size_t i = 0; i < count; ++i) {
                Slot& slot = slots[members[i]];
                slot.timeline->advance({&slot.next, 1});
                slot.timeline->advance(slot.ahead);
                slot.ahead.clear();
                draw(slot, logits.subspan(i * vocab, vocab));
            }
        } catch (const std::exception& e) {
            for (std::size_t i = 0; i < count; ++i) abandon(slots[members[i]], e.what());
        }
    }
}

// Computes the first of the tokens that wait, so that fewer than `most` are left besides the next one.
void Batcher::State::step_ahead(Slot& slot, std::size_t most) {
    try {
        while (slot.ahead.size() >= most) {
            rows.clear();
            std::vector<std::int32_t> part{slot.next};
            part.insert(part.end(), slot.ahead.begin(), slot.ahead.begin() + static_cast<std::ptrdiff_t>(most - 1));
            auto position = static_cast<std::int32_t>(slot.timeline->tokens().size());
            for (const std::int32_t token : part) rows.push_back({token, slot.index, position++, false});
            engine->step(rows);
            slot.timeline->advance(part);
            slot.next = slot.ahead[most - 1];
            slot.ahead.erase(slot.ahead.begin(), slot.ahead.begin() + static_cast<std::ptrdiff_t>(most));
        }
    } catch (const std::exception& e) {
        abandon(slot, e.what());
    }
}

// Draws the next token and reports it; ends the request when it must.
void Batcher::State::draw(Slot& slot, std::span<const float> logits) {
    Drawn drawn;
    try {
        const std::uint32_t* mask = slot.request.mask ? slot.request.mask() : nullptr;
        drawn = draw_token(*slot.sampler, slot.request.generate, logits, slot.timeline->tokens(), slot.made,
                           engine->options().ctx, mask, [&](std::int32_t token) {
                               return !slot.request.on_token || slot.request.on_token(token, logits);
                           });
    } catch (const std::exception& e) {
        return abandon(slot, e.what());
    }
    if (drawn.reported) {
        slot.stats.generated_tokens = ++slot.made;
        std::lock_guard lock(mutex);
        ++counters.generated_tokens;
    }
    if (drawn.end) return finish(slot, *drawn.end);
    slot.next = drawn.token;
    if (slot.request.forced) add_forced(slot);
}

// Reports the tokens that must follow the one drawn; they count like any other.
void Batcher::State::add_forced(Slot& slot) {
    try {
        const GenerateOptions& options = slot.request.generate;
        for (const std::int32_t token : slot.request.forced()) {
            if (options.max_tokens >= 0 && slot.made >= options.max_tokens) return finish(slot, FinishReason::length);
            slot.stats.generated_tokens = ++slot.made;
            {
                std::lock_guard lock(mutex);
                ++counters.generated_tokens;
            }
            slot.ahead.push_back(token);
            if (slot.request.on_token && !slot.request.on_token(token, {})) return finish(slot, FinishReason::cancelled);
            const std::size_t position = slot.timeline->tokens().size() + slot.ahead.size();   // of this token
            if ((options.max_tokens >= 0 && slot.made >= options.max_tokens) || position >= static_cast<std::size_t>(engine->options().ctx)) return finish(slot, FinishReason::length);
        }
    } catch (const std::exception& e) {
        abandon(slot, e.what());
    }
}

void Batcher::State::finish(Slot& slot, FinishReason reason) {
    if (slot.decoding) slot.stats.decode_seconds = since(slot.phase_start);
    BatchRequest request = std::move(slot.request);
    slot.request = {};
    slot.busy = slot.decoding = false;
    {
        std::lock_guard lock(mutex);
        --counters.running;
    }
    if (request.on_done) request.on_done(reason, slot.stats);
}

// The cache of a failed step is unknown: the slot starts afresh.
void Batcher::State::abandon(Slot& slot, const std::string& error) {
    slot.timeline->clear();
    slot.known = 0;
    BatchRequest request = std::move(slot.request);
    slot.request = {};
    slot.busy = slot.decoding = false;
    {
        std::lock_guard lock(mutex);
        --counters.running;
    }
    if (request.on_error) request.on_error(error);
}

}  // namespace forge
