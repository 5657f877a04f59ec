#include "runtime/batcher.h"

#include <algorithm>
#include <future>

#include "batcher_state.h"
#include "saved_timeline.h"

namespace forge {

Batcher::Batcher(std::shared_ptr<Engine> engine, int max_queue, std::size_t prefix_bytes)
    : state_(std::make_unique<State>(std::move(engine), prefix_bytes)) {
    State& s = *state_;
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
    for (const State::Slot& slot : state_->slots) state_->engine->give_slot(slot.index);
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
    // What is wrong with the options is said here, to who asks: on the thread it would have nobody to tell.
    auto sampler = std::make_unique<Sampler>(request.sampling, request.id_limit > 0 ? request.id_limit : state_->engine->spec().vocab);
    std::lock_guard lock(state_->mutex);
    if (state_->stop) throw QueueFull("the model is being unloaded");
    const auto idle = static_cast<std::size_t>(std::max(0, state_->counters.slots - state_->counters.running));
    if (state_->queue.size() >= state_->max_queue + idle)
        throw QueueFull(fmt::format("{} requests are running and {} wait; try again later", state_->counters.running, state_->queue.size()));
    const std::uint64_t id = state_->next_id++;
    if (state_->queue.empty() && state_->counters.running == 0) state_->last_step = BatchClock::now();
    state_->queue.push_back({id, std::move(request), std::move(sampler), BatchClock::now()});
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
    load.seconds_since_step = load.running + load.waiting > 0 ? seconds_since(state_->last_step) : 0;
    return load;
}

const std::shared_ptr<Engine>& Batcher::engine() const { return state_->engine; }

void Batcher::State::loop() {
    for (bool news = false, stepped = false;;) {
        {
            std::unique_lock lock(mutex);
            if (stepped) {
                last_step = BatchClock::now();
                ++counters.steps;
                counters.prefix_bytes = prefixes.bytes();
            }
            wake.wait(lock, [&] { return stop || !queue.empty() || counters.running > 0 || !cancelled.empty() || !tasks.empty(); });
            if (stop) break;
            news = !queue.empty() || !cancelled.empty() || !tasks.empty();
        }
        // Between two tokens there is mostly nothing else to do.
        if (news) {
            run_tasks();
            drop_cancelled();
            admit();
        }
        prefill_one();
        decode_all();
        stepped = true;
    }
    for (Slot& slot : slots)
        if (slot.busy) finish(slot, FinishReason::cancelled);
    for (Waiting& waiting : queue)
        tell_end(waiting.request, FinishReason::cancelled, {});
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
        tell_end(waiting.request, FinishReason::cancelled, {});
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
        slot.id = waiting.id;
        slot.request = std::move(waiting.request);
        slot.sampler = std::move(waiting.sampler);
        try {
            begin(slot, waiting.since);
        } catch (const std::exception& e) {
            abandon(slot, e.what());
        }
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

Batcher::State::Slot& Batcher::State::idle_slot(int index) {
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
        const State::Slot& slot = s->idle_slot(index);
        save_timeline(*s->engine, slot.index, *slot.timeline, path);
        return slot.timeline->tokens().size();
    });
}

std::size_t Batcher::restore_slot(int index, const std::string& path) {
    return state_->between_steps([=, s = state_.get()] {
        State::Slot& slot = s->idle_slot(index);
        s->save_before_loss(slot, 0);
        slot.known = 0;
        try {
            restore_timeline(*s->engine, slot.index, *slot.timeline, path);
        } catch (...) {
            s->hold(slot, slot.timeline->tokens());
            throw;
        }
        s->hold(slot, slot.timeline->tokens());
        slot.last_use = ++s->uses;
        return slot.timeline->tokens().size();
    });
}

std::size_t Batcher::erase_slot(int index) {
    return state_->between_steps([=, s = state_.get()] {
        State::Slot& slot = s->idle_slot(index);
        const std::size_t tokens = slot.timeline->tokens().size();
        slot.known = 0;
        slot.timeline->clear();
        s->hold(slot, {});
        return tokens;
    });
}

}  // namespace forge
