// The merge loop of byte-pair encoding: repeatedly join the adjacent pair with
// the lowest rank, the leftmost of equal ones, in O(n log n).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace forge {

struct Symbol {
    std::int32_t id;
    std::uint32_t begin, length;  // bytes of the word; length 0: merged away
    std::int32_t previous, next;  // indices; -1 at the ends
};

struct Merge {
    std::uint32_t rank;
    std::int32_t id;
};

struct MergeScratch {
    struct Candidate {
        std::uint64_t key;   // rank << 32 | index of the left symbol
        std::uint32_t span;  // bytes of both symbols when it was queued
        std::int32_t id;
    };
    std::vector<Symbol> symbols;
    // Candidates in order, taken from the front, and a heap of those that came
    // since. In a run of one letter all new pairs rank behind the sorted ones, so
    // the heap only grows at its end and becomes the next sorted list as it is:
    // linear time where a heap alone would sift a million times.
    std::vector<Candidate> sorted, heap;

    void start() { symbols.clear(), sorted.clear(), heap.clear(); }
    void push_symbol(std::int32_t id, std::uint32_t begin, std::uint32_t length) {
        auto index = static_cast<std::int32_t>(symbols.size());
        if (index) symbols.back().next = index;
        symbols.push_back({id, begin, length, index - 1, -1});
    }
};

// `find(left, right)` gives the merge of two adjacent symbols, if there is one.
// Afterwards the result is the chain that starts at symbol 0.
template <typename Find>
void run_merges(MergeScratch& s, const Find& find) {
    using Candidate = MergeScratch::Candidate;
    auto later = [](const Candidate& a, const Candidate& b) { return a.key > b.key; };
    auto& symbols = s.symbols;
    auto candidate = [&](std::int32_t left) -> std::optional<Candidate> {
        const Symbol& a = symbols[static_cast<std::size_t>(left)];
        if (a.next < 0) return std::nullopt;
        const Symbol& b = symbols[static_cast<std::size_t>(a.next)];
        std::optional<Merge> m = find(a, b);
        if (!m) return std::nullopt;
        return Candidate{std::uint64_t{m->rank} << 32 | static_cast<std::uint32_t>(left), a.length + b.length,
                         m->id};
    };
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
        if (auto c = candidate(static_cast<std::int32_t>(i))) s.sorted.push_back(*c);
    auto earlier = [](const Candidate& a, const Candidate& b) { return a.key < b.key; };
    std::sort(s.sorted.begin(), s.sorted.end(), earlier);
    auto push = [&](std::int32_t left) {
        if (auto c = candidate(left)) {
            s.heap.push_back(*c);
            std::push_heap(s.heap.begin(), s.heap.end(), later);
        }
    };
    std::size_t front = 0;
    while (true) {
        if (front == s.sorted.size()) {
            if (s.heap.empty()) break;
            s.sorted.swap(s.heap);
            s.heap.clear();
            if (!std::is_sorted(s.sorted.begin(), s.sorted.end(), earlier))
                std::sort(s.sorted.begin(), s.sorted.end(), earlier);
            front = 0;
        }
        Candidate top;
        if (!s.heap.empty() && s.heap.front().key < s.sorted[front].key) {
            std::pop_heap(s.heap.begin(), s.heap.end(), later);
            top = s.heap.back();
            s.heap.pop_back();
        } else {
            top = s.sorted[front++];
        }
        auto left = static_cast<std::int32_t>(top.key & 0xFFFFFFFF);
        Symbol& a = symbols[static_cast<std::size_t>(left)];
        if (a.length == 0 || a.next < 0) continue;
        Symbol& b = symbols[static_cast<std::size_t>(a.next)];
        // Symbols only ever grow, so the same span means the same two symbols.
        if (a.length + b.length != top.span) continue;
        a.id = top.id;
        a.length = top.span;
        a.next = b.next;
        b.length = 0;
        if (a.next >= 0) symbols[static_cast<std::size_t>(a.next)].previous = left;
        if (a.previous >= 0) push(a.previous);
        push(left);
    }
}

}  // namespace forge
