// Requests into slots, and their prompts through the engine.
#include <algorithm>
#include <cmath>

#include "batcher_state.h"

namespace forge {

// A slot that goes on with what it holds, or repeats it; else the one unused for longest, which takes what other slots
// have of the prompt over: a slot that would lose most of a long conversation for a beginning that is copied soon
// is better left alone.
Batcher::State::Slot& Batcher::State::choose_slot(std::span<const std::int32_t> prompt) {
    Slot *best = nullptr, *oldest = nullptr;
    std::size_t best_kept = 0;
    for (Slot& slot : slots) {
        if (slot.busy) continue;
        if (!oldest || slot.last_use < oldest->last_use) oldest = &slot;
        const std::size_t holds = slot.timeline->tokens().size();
        const bool repeated = slot.known > 0 && slot.known == prompt.size() && common_prefix(prompt, slot.timeline->tokens()) == prompt.size();
        const std::size_t kept = repeated ? prompt.size() : slot.timeline->reusable(prompt);
        if (kept > best_kept && (repeated || kept * 2 >= holds)) {
            best = &slot;
            best_kept = kept;
        }
    }
    return best ? *best : *oldest;
}

// The slot has its request, which came at `since`.
void Batcher::State::begin(Slot& slot, BatchClock::time_point since) {
    const std::vector<std::int32_t>& prompt = slot.request.prompt;
    const bool embedding = slot.request.pooling != Pooling::none;
    const bool repeated = !embedding && slot.known == prompt.size() && common_prefix(prompt, slot.timeline->tokens()) == prompt.size();
    const std::size_t kept = repeated ? prompt.size() : embedding ? 0 : slot.timeline->reusable(prompt);
    save_before_loss(slot, kept);
    if (embedding) {   // every token's state is wanted, and none is kept
        slot.timeline->clear();
        slot.known = 0;
        slot.pooled.assign(static_cast<std::size_t>(engine->spec().hidden), 0);
    } else if (repeated) {
        slot.timeline->truncate(kept);
    } else {
        slot.timeline->rewind(prompt);
        if (kept < slot.known) slot.known = 0;
    }
    hold(slot, embedding ? std::span<const std::int32_t>() : prompt);
    slot.busy = true;
    slot.decoding = false;
    slot.ahead.clear();
    slot.made = 0;
    slot.last_use = ++uses;
    slot.stats = {};
    slot.stats.prompt_tokens = static_cast<int>(prompt.size());
    slot.stats.cached_tokens = static_cast<int>(kept);
    slot.stats.queue_seconds = seconds_since(since);
    slot.phase_start = BatchClock::now();
    std::lock_guard lock(mutex);
    counters.prompt_tokens += slot.request.prompt.size();
    counters.cached_tokens += kept;
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
                if (take_prefix(slot)) continue;
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
            slot.stats.prompt_seconds = seconds_since(slot.phase_start);
            slot.phase_start = BatchClock::now();
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
    slot.stats.prompt_seconds = seconds_since(slot.phase_start);
    if (slot.request.on_embedding) slot.request.on_embedding(slot.pooled);
    finish(slot, FinishReason::stop);
}

}  // namespace forge
