#include "runtime/timeline.h"

#include <algorithm>

#include "lower/lower.h"

namespace forge {

Timeline::Timeline(std::shared_ptr<Engine> engine, int slot, std::size_t snapshot_budget)
    : engine_(std::move(engine)), slot_(slot), budget_(snapshot_budget), state_bytes_(engine_->state_bytes()),
      halves_short_steps_(engine_->backend_name().starts_with("CPU")) {
    tokens_.reserve(static_cast<std::size_t>(engine_->options().ctx));
}

std::size_t Timeline::snapshot_before(std::size_t length) const {
    std::size_t best = snapshots_.size();
    for (std::size_t i = 0; i < snapshots_.size(); ++i)
        if (snapshots_[i].length <= length && (best == snapshots_.size() || snapshots_[i].length > snapshots_[best].length)) best = i;
    return best;
}

std::size_t Timeline::reusable(std::span<const std::int32_t> wanted) const {
    const auto split = std::mismatch(wanted.begin(), wanted.end(), tokens_.begin(), tokens_.end());
    const std::size_t common = std::min(static_cast<std::size_t>(split.first - wanted.begin()), wanted.empty() ? 0 : wanted.size() - 1);
    if (!recurrent() || common == tokens_.size()) return common;
    const std::size_t i = snapshot_before(common);
    return i == snapshots_.size() ? 0 : snapshots_[i].length;
}

std::size_t Timeline::rewind(std::span<const std::int32_t> wanted) {
    const std::size_t kept = reusable(wanted);
    if (kept == tokens_.size()) return kept;
    if (recurrent() && kept > 0) {
        Snapshot& snapshot = snapshots_[snapshot_before(kept)];
        engine_->write_state(slot_, snapshot.state.data());
        snapshot.use = ++uses_;
    }
    // Later snapshots belong to a timeline that is gone. (A row at position 0 starts from a zero state.)
    std::erase_if(snapshots_, [&](const Snapshot& s) { return s.length > kept; });
    tokens_.resize(kept);
    return kept;
}

std::size_t Timeline::copyable(std::size_t most) const {
    most = std::min(most, tokens_.size());
    if (!recurrent()) return most;
    const std::size_t i = snapshot_before(most);
    return i == snapshots_.size() ? 0 : snapshots_[i].length;
}

const Timeline::Snapshot* Timeline::snapshot_at(std::size_t length) const {
    const auto it = std::find_if(snapshots_.begin(), snapshots_.end(), [&](const Snapshot& s) { return s.length == length; });
    return it == snapshots_.end() ? nullptr : &*it;
}

void Timeline::truncate(std::size_t length) { tokens_.resize(std::min(length, tokens_.size())); }

void Timeline::advance(std::span<const std::int32_t> computed) { tokens_.insert(tokens_.end(), computed.begin(), computed.end()); }

void Timeline::snapshot() {
    if (!recurrent() || tokens_.empty()) return;
    for (Snapshot& s : snapshots_) {
        if (s.length != tokens_.size()) continue;
        s.use = ++uses_;
        return;
    }
    engine_->read_state(slot_, make_snapshot(tokens_.size()).state.data());
}

void Timeline::add_snapshot(std::size_t length, std::span<const std::byte> state) {
    if (!recurrent() || length == 0 || length > tokens_.size() || state.size() != state_bytes_) return;
    std::erase_if(snapshots_, [&](const Snapshot& s) { return s.length == length; });
    std::copy(state.begin(), state.end(), make_snapshot(length).state.begin());
}

// Room for one more, in place of the least recently used where the budget is spent.
Timeline::Snapshot& Timeline::make_snapshot(std::size_t length) {
    Snapshot made{length, ++uses_, nullptr, {}};
    if ((snapshots_.size() + 1) * state_bytes_ > budget_ && !snapshots_.empty()) {
        auto oldest = std::min_element(snapshots_.begin(), snapshots_.end(), [](auto& a, auto& b) { return a.use < b.use; });
        made.memory = std::move(oldest->memory);
        snapshots_.erase(oldest);
    }
    if (!made.memory) made.memory = engine_->state_memory();
    made.state = {made.memory.get(), state_bytes_};
    snapshots_.push_back(std::move(made));
    return snapshots_.back();
}

void Timeline::clear() {
    tokens_.clear();
    snapshots_.clear();
}

namespace {

// The next prompt may repeat this one but for its last words: from a snapshot this far before the end at
// least, and a grid's step more at most, fewer than a hundred tokens are computed again. On a grid, so that
// prompts of different lengths are cut alike.
constexpr int tail = 32, grid = 64;

}  // namespace

int Timeline::step_end(int first, std::span<const std::int32_t> prompt) const {
    const int chunk = engine_->options().chunk, total = static_cast<int>(prompt.size());
    int end = std::min(total, (first / chunk + 1) * chunk);
    if (!recurrent()) {
        // On a CPU two steps of matrix-vector kernels take less than one of matrix kernels for a short rest.
        const int rows = end - first;
        return halves_short_steps_ && rows > matvec_rows && rows <= 2 * matvec_rows && rows < chunk ? first + (rows + 1) / 2 : end;
    }
    const auto stop_at = [&](int position) {
        if (position > first && position < end) end = position;
    };
    stop_at(total - 1);
    stop_at((total - tail) / grid * grid);
    for (int i = total - 1; i > first; --i) {
        if (!engine_->starts_message(prompt[static_cast<std::size_t>(i)])) continue;
        stop_at(i);
        break;
    }
    for (int i = 1; i < end; ++i) {
        if (!engine_->starts_message(prompt[static_cast<std::size_t>(i)])) continue;
        if (i >= grid) stop_at(i);
        break;
    }
    return end;
}

}  // namespace forge
