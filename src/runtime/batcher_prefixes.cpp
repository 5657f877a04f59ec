// What is computed once: prefixes between slots, and from and to the copies of finished sequences.
#include <algorithm>

#include "base/log.h"
#include "batcher_state.h"

namespace forge {

// The slot is about to lose what follows its first `kept` tokens.
void Batcher::State::save_before_loss(Slot& slot, std::size_t kept) {
    const std::vector<std::int32_t>& tokens = slot.timeline->tokens();
    if (tokens.size() < kept + worth_copying) return;
    // Requests that waited for it (whose own was cancelled, it may be) take it now.
    for (Slot& other : slots) {
        if (&other == &slot || !other.busy || other.decoding || other.request.pooling != Pooling::none) continue;
        try {
            take_prefix(other);
        } catch (const std::exception& e) {
            abandon(other, e.what());
        }
    }
    if (!prefixes.keeps_any()) return;
    // A copy takes a sixteenth of the time of computing it: a short end after a long beginning that stays is
    // rather computed again.
    const std::size_t missing = tokens.size() - prefixes.kept(tokens);
    if (missing == 0 || (tokens.size() - kept) * 4 < missing) return;
    try {
        keep_copy(slot);
    } catch (const std::exception& e) {
        log_warn("a prompt's cache could not be kept: {}", e.what());
    }
}

void Batcher::State::keep_copy(const Slot& slot) {
    constexpr std::size_t most = 4;   // snapshots: a state can take tens of megabytes
    std::vector<const Timeline::Snapshot*> snapshots;
    for (const Timeline::Snapshot& s : slot.timeline->snapshots()) snapshots.push_back(&s);
    std::sort(snapshots.begin(), snapshots.end(), [](const auto* a, const auto* b) { return a->use > b->use; });
    if (snapshots.size() > most) snapshots.resize(most);
    std::vector<PrefixTrie::State> states;
    for (const Timeline::Snapshot* s : snapshots) states.push_back({s->length, s->state});
    prefixes.keep(slot.timeline->tokens(), states, [&](std::size_t first, std::size_t last, std::byte* out) {
        engine->read_rows(slot.index, static_cast<int>(first), static_cast<int>(last), out);
    });
}

// How many of the first `common` tokens of a slot's prompt others will be able to take, once it has computed them.
std::size_t Batcher::State::coming(const Slot& slot, std::size_t common) const {
    if (!slot.timeline->recurrent()) return common;
    const int total = static_cast<int>(slot.request.prompt.size());
    std::size_t best = 0;
    for (int at = static_cast<int>(slot.timeline->tokens().size()); at < total;) {
        at = slot.timeline->step_end(at, slot.request.prompt);
        if (at < total && static_cast<std::size_t>(at) <= common) best = static_cast<std::size_t>(at);
        else break;
    }
    return best;
}

// Takes what another slot or the copies have of the prompt beyond what the slot has. True when it should wait instead,
// because an earlier request is computing more of it.
bool Batcher::State::take_prefix(Slot& slot) {
    const std::size_t size = slot.timeline->tokens().size();
    const auto wanted = std::span<const std::int32_t>(slot.request.prompt).first(slot.request.prompt.size() - 1);
    if (wanted.size() < size + worth_copying) return false;
    const Slot* donor = nullptr;
    std::size_t best = size + worth_copying - 1, awaited = 0;
    prefixes.held(wanted, held);
    for (const auto& [number, common] : held) {
        const Slot& other = slots[static_cast<std::size_t>(number)];
        if (&other == &slot) continue;
        if (const std::size_t now = other.timeline->copyable(common); now > best) {
            donor = &other;
            best = now;
        }
        if (other.busy && !other.decoding && other.id < slot.id) awaited = std::max(awaited, coming(other, common));
    }
    const std::size_t kept = prefixes.kept(wanted);
    if (awaited > std::max(best, kept)) return true;
    if (kept > best) copy_kept(slot, wanted);
    else if (donor) copy_from(*donor, slot, best);
    const std::size_t gained = slot.timeline->tokens().size() - size;
    slot.stats.cached_tokens += static_cast<int>(gained);
    std::lock_guard lock(mutex);
    counters.cached_tokens += gained;
    return false;
}

void Batcher::State::copy_from(const Slot& donor, Slot& slot, std::size_t length) {
    const std::size_t size = slot.timeline->tokens().size();
    engine->copy_rows(donor.index, slot.index, static_cast<int>(size), static_cast<int>(length));
    const Timeline::Snapshot* snapshot = donor.timeline->snapshot_at(length);
    if (snapshot) engine->write_state(slot.index, snapshot->state.data());
    slot.timeline->advance(std::span<const std::int32_t>(slot.request.prompt).subspan(size, length - size));
    if (snapshot) slot.timeline->add_snapshot(length, snapshot->state);
}

void Batcher::State::copy_kept(Slot& slot, std::span<const std::int32_t> wanted) {
    const std::size_t size = slot.timeline->tokens().size();
    std::span<const std::byte> state;
    const std::size_t length = prefixes.load(wanted, size, [&](std::size_t first, std::size_t last, const std::byte* rows) {
        engine->write_rows(slot.index, static_cast<int>(first), static_cast<int>(last), rows);
    }, &state);
    if (!state.empty()) engine->write_state(slot.index, state.data());
    slot.timeline->advance(wanted.subspan(size, length - size));
    if (!state.empty()) slot.timeline->add_snapshot(length, state);
}

}  // namespace forge
