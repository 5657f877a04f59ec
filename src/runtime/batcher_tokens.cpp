// A token for each answer a step: drawn, forced, and the end.
#include <algorithm>

#include "base/log.h"
#include "batcher_state.h"
#include "draw.h"

namespace forge {

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
    if (slot.decoding) slot.stats.decode_seconds = seconds_since(slot.phase_start);
    BatchRequest request = std::move(slot.request);
    slot.request = {};
    slot.busy = slot.decoding = false;
    hold(slot, slot.timeline->tokens());
    {
        std::lock_guard lock(mutex);
        --counters.running;
    }
    tell_end(request, reason, slot.stats);
}

// What goes wrong in telling it must not end the thread that serves all others.
void Batcher::State::tell_end(const BatchRequest& request, FinishReason reason, const BatchStats& stats) {
    try {
        if (request.on_done) request.on_done(reason, stats);
    } catch (const std::exception& e) {
        tell_error(request, e.what());
    }
}

void Batcher::State::tell_error(const BatchRequest& request, const std::string& error) {
    try {
        if (request.on_error) request.on_error(error);
    } catch (const std::exception& e) {
        log_message(LogLevel::error, fmt::format("a request failed ({}), and so did telling it: {}", error, e.what()));
    }
}

// The cache of a failed step is unknown: the slot starts afresh.
void Batcher::State::abandon(Slot& slot, const std::string& error) {
    slot.timeline->clear();
    slot.known = 0;
    hold(slot, {});
    BatchRequest request = std::move(slot.request);
    slot.request = {};
    slot.busy = slot.decoding = false;
    {
        std::lock_guard lock(mutex);
        --counters.running;
    }
    tell_error(request, error);
}

}  // namespace forge
