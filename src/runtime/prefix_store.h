// Caches of finished sequences in ordinary memory, within a budget of bytes, the least recently used
// leaving first. A slot that takes another request up loses what it held; here it is found again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

namespace forge {

class PrefixStore {
  public:
    struct Entry {
        std::vector<std::int32_t> tokens;
        std::vector<std::byte> cache;  // Engine::save_cache of all tokens
    };

    explicit PrefixStore(std::size_t budget) : budget_(budget) {}

    bool enabled() const { return budget_ > 0; }
    // Whether some entry begins with all of `tokens`.
    bool holds(std::span<const std::int32_t> tokens) const;
    // Keeps an entry, dropping others for it; one beyond the budget is not kept.
    void put(Entry entry);
    // The entry that has most leading tokens in common with `wanted`, and how many; null when none has any.
    const Entry* find(std::span<const std::int32_t> wanted, std::size_t& common);
    std::size_t bytes() const { return bytes_; }

  private:
    static std::size_t size_of(const Entry& entry) { return entry.cache.size() + entry.tokens.size() * sizeof(std::int32_t); }
    std::size_t budget_, bytes_ = 0;
    std::list<Entry> entries_;  // most recently used first
};

// Length of the longest common prefix.
std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b);

}  // namespace forge
