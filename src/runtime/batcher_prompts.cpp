// Requests into slots, and their prompts through the engine.
#include <algorithm>
#include <cmath>

#include "batcher_state.h"

namespace forge {
namespace {

// Fewer tokens than this are computed again rather than copied or waited for.
constexpr std::size_t worth_copying = 32;

}  // namespace

// The free slot whose timeline serves the prompt furthest, among equals the one unused for longest.
Batcher::State::Slot& Batcher::State::choose_slot(std::span<const std::int32_t> prompt) {
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
    slot.stats.queue_seconds = seconds_since(waiting.since);
    slot.phase_start = BatchClock::now();
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
