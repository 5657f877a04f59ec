#include "prefix_store.h"

#include <algorithm>
#include <utility>

namespace forge {

std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
    return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

bool PrefixStore::holds(std::span<const std::int32_t> tokens) const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const Entry& e) { return common_prefix(tokens, e.tokens) == tokens.size(); });
}

void PrefixStore::put(Entry entry) {
    const std::size_t size = size_of(entry);
    if (size > budget_) return;
    // What the new one continues is not needed any more.
    for (auto it = entries_.begin(); it != entries_.end();) {
        if (common_prefix(it->tokens, entry.tokens) != it->tokens.size()) { ++it; continue; }
        bytes_ -= size_of(*it);
        it = entries_.erase(it);
    }
    while (bytes_ + size > budget_) {
        bytes_ -= size_of(entries_.back());
        entries_.pop_back();
    }
    bytes_ += size;
    entries_.push_front(std::move(entry));
}

const PrefixStore::Entry* PrefixStore::find(std::span<const std::int32_t> wanted, std::size_t& common) {
    common = 0;
    auto best = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
        const std::size_t n = common_prefix(wanted, it->tokens);
        if (n <= common) continue;
        common = n;
        best = it;
    }
    if (best == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, best);
    return &entries_.front();
}

}  // namespace forge
