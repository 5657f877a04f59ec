// A map from strings to ids: one arena for the characters, one flat table of
// slots. Made once, then read by many threads.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

inline std::uint64_t hash_bytes(std::string_view s) {
    constexpr std::uint64_t k = 0x9E3779B97F4A7C15ull;
    std::uint64_t h = s.size() * k;
    const char* p = s.data();
    std::size_t n = s.size();
    for (; n >= 8; p += 8, n -= 8) {
        std::uint64_t word;
        std::memcpy(&word, p, 8);
        h = (h ^ word) * k;
        h ^= h >> 29;
    }
    std::uint64_t tail = 0;
    std::memcpy(&tail, p, n);
    h = (h ^ tail) * k;
    return h ^ h >> 32;
}

class StringIds {
  public:
    static constexpr std::int32_t kNone = -1;

    // Returns false, and changes nothing, when `text` is already there.
    bool add(std::string_view text, std::int32_t id) {
        if ((entries_.size() + 1) * 3 > slots_.size() * 2) grow();
        std::size_t slot = find_slot(text);
        if (slots_[slot]) return false;
        entries_.push_back(
            {static_cast<std::uint64_t>(arena_.size()), static_cast<std::uint32_t>(text.size()), id});
        arena_.append(text);
        slots_[slot] = static_cast<std::uint32_t>(entries_.size());
        return true;
    }
    std::int32_t find(std::string_view text) const {
        if (entries_.empty()) return kNone;
        std::uint32_t entry = slots_[find_slot(text)];
        return entry ? entries_[entry - 1].id : kNone;
    }
    std::size_t size() const { return entries_.size(); }
    void clear() { entries_.clear(), slots_.clear(), arena_.clear(); }

  private:
    struct Entry {
        std::uint64_t offset;
        std::uint32_t length;
        std::int32_t id;
    };
    std::string_view text_of(const Entry& e) const { return {arena_.data() + e.offset, e.length}; }
    // The slot that holds `text`, or the free one where it belongs.
    std::size_t find_slot(std::string_view text) const {
        std::size_t mask = slots_.size() - 1;
        std::size_t slot = hash_bytes(text) & mask;
        while (slots_[slot] && text_of(entries_[slots_[slot] - 1]) != text) slot = (slot + 1) & mask;
        return slot;
    }
    void grow() {
        slots_.assign(slots_.empty() ? 64 : slots_.size() * 2, 0);
        std::size_t mask = slots_.size() - 1;
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            std::size_t slot = hash_bytes(text_of(entries_[i])) & mask;
            while (slots_[slot]) slot = (slot + 1) & mask;
            slots_[slot] = static_cast<std::uint32_t>(i + 1);
        }
    }

    std::string arena_;
    std::vector<Entry> entries_;
    std::vector<std::uint32_t> slots_;  // entry index + 1; 0 is free; a power of two
};

}  // namespace forge
