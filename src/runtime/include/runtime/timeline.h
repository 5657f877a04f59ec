// What a slot's cache holds, and how far it can go back. Keys and values are
// rolled back by length; recurrent states only to snapshots, which are taken
// at chunk borders and shortly before a prompt's end, within a byte budget,
// the least recently used leaving first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/engine.h"

namespace forge {

class Timeline {
  public:
    Timeline(std::shared_ptr<Engine> engine, int slot, std::size_t snapshot_budget = 512u << 20);

    const std::vector<std::int32_t>& tokens() const { return tokens_; }

    // How many leading tokens of `wanted` could be kept (always fewer than all of them).
    std::size_t reusable(std::span<const std::int32_t> wanted) const;
    // Rolls back so that exactly reusable(wanted) tokens stay; returns that number.
    std::size_t rewind(std::span<const std::int32_t> wanted);
    // Keeps exactly the first `length` tokens; not for recurrent models.
    void truncate(std::size_t length);
    // After the engine computed these tokens in the slot.
    void advance(std::span<const std::int32_t> computed);
    // Remembers the state after the tokens so far (nothing to do without recurrent layers).
    void snapshot();
    void clear();

    // Where a step from `first` towards the end of a prompt must end: chunks end at multiples of the chunk
    // size. Hybrids also stop where a snapshot is worth having: after the first message, which other conversations
    // may share, before the last one, some dozen tokens before the end (at a multiple of 64), and one token before it.
    int step_end(int first, std::span<const std::int32_t> prompt) const;
    // The largest number of leading tokens, `most` of them at most, that another slot can take over from this one.
    std::size_t copyable(std::size_t most) const;
    bool recurrent() const { return state_bytes_ > 0; }

    // The recurrent states after the first `length` tokens; the larger `use`, the later it was used.
    struct Snapshot {
        std::size_t length;
        std::uint64_t use;
        std::shared_ptr<std::byte[]> memory;
        std::span<std::byte> state;   // in it
    };
    const std::vector<Snapshot>& snapshots() const { return snapshots_; }
    const Snapshot* snapshot_at(std::size_t length) const;   // null when there is none
    // One that was saved with these tokens; `state` has Engine::state_bytes().
    void add_snapshot(std::size_t length, std::span<const std::byte> state);

  private:
    Snapshot& make_snapshot(std::size_t length);
    std::size_t snapshot_before(std::size_t length) const;   // index, or snapshots_.size()

    std::shared_ptr<Engine> engine_;
    int slot_;
    std::size_t budget_, state_bytes_;
    bool halves_short_steps_;
    std::vector<std::int32_t> tokens_;
    std::vector<Snapshot> snapshots_;
    mutable std::uint64_t uses_ = 0;
};

}  // namespace forge
