// The tree of token sequences against plain lists of them.
#include "../../src/runtime/prefix_trie.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

namespace forge {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::size_t row = 8, state_size = 40;

// Keys, values and states are told apart by all tokens up to them.
std::uint64_t hash_of(std::span<const std::int32_t> tokens) {
    std::uint64_t hash = 1469598103934665603ull;
    for (const std::int32_t t : tokens) hash = (hash ^ static_cast<std::uint64_t>(t + 1)) * 1099511628211ull;
    return hash;
}

std::vector<std::byte> state_of(std::span<const std::int32_t> tokens) {
    std::vector<std::byte> state(state_size);
    const std::uint64_t hash = hash_of(tokens);
    for (std::size_t i = 0; i < state_size; i += sizeof hash) std::memcpy(state.data() + i, &hash, sizeof hash);
    return state;
}

// Returns how many rows were read.
std::size_t keep(PrefixTrie& trie, const Ids& tokens, const std::vector<std::size_t>& lengths = {}) {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<PrefixTrie::State> states;
    for (const std::size_t n : lengths) bytes.push_back(state_of(std::span(tokens).first(n)));
    for (std::size_t i = 0; i < lengths.size(); ++i) states.push_back({lengths[i], bytes[i]});
    std::size_t read = 0;
    trie.keep(tokens, states, [&](std::size_t first, std::size_t last, std::byte* out) {
        ASSERT_LT(first, last);
        ASSERT_LE(last, tokens.size());
        read += last - first;
        for (std::size_t i = first; i < last; ++i, out += row) {
            const std::uint64_t hash = hash_of(std::span(tokens).first(i + 1));
            std::memcpy(out, &hash, row);
        }
    });
    return read;
}

// Loads what there is of `wanted` from `from` on and checks every row; returns how many tokens that are.
std::size_t load(PrefixTrie& trie, const Ids& wanted, std::size_t from = 0, bool states = false) {
    const std::size_t promised = trie.kept(wanted);
    std::size_t next = from;
    std::span<const std::byte> state;
    const std::size_t length = trie.load(wanted, from, [&](std::size_t first, std::size_t last, const std::byte* rows) {
        EXPECT_EQ(first, next);
        next = last;
        for (std::size_t i = first; i < last; ++i, rows += row) {
            std::uint64_t hash = 0;
            std::memcpy(&hash, rows, row);
            ASSERT_EQ(hash, hash_of(std::span(wanted).first(i + 1))) << i;
        }
    }, &state);
    EXPECT_EQ(length, promised);
    EXPECT_EQ(next, std::max(length, from));
    EXPECT_EQ(state.empty(), !states || length == 0);
    if (!state.empty()) {
        const auto expected = state_of(std::span(wanted).first(length));
        EXPECT_TRUE(std::equal(state.begin(), state.end(), expected.begin(), expected.end()));
    }
    return length;
}

Ids ids(int seed, std::size_t count) {
    Ids out;
    for (std::size_t i = 0; i < count; ++i) out.push_back(static_cast<std::int32_t>((static_cast<std::size_t>(seed) * 31 + i * 17 + i * i) % 1000));
    return out;
}

Ids joined(Ids a, const Ids& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

TEST(PrefixTrie, FindsTheLongestPrefixAndKeepsWhatIsSharedOnce) {
    PrefixTrie trie({1 << 20, row, 0});
    const Ids beginning = ids(1, 600), a = joined(beginning, ids(2, 50)), b = joined(beginning, ids(3, 70));
    EXPECT_EQ(trie.kept(a), 0u);
    EXPECT_EQ(keep(trie, a), 650u);
    EXPECT_EQ(keep(trie, b), 70u);       // the rest is there
    EXPECT_EQ(keep(trie, a), 0u);
    EXPECT_EQ(trie.bytes(), 720 * (row + sizeof(std::int32_t)));
    EXPECT_EQ(load(trie, a), 650u);
    EXPECT_EQ(load(trie, b, 599), 670u);
    EXPECT_EQ(load(trie, joined(a, ids(9, 9))), 650u);
    EXPECT_EQ(load(trie, joined(beginning, ids(4, 10))), 600u);
    EXPECT_EQ(load(trie, ids(1, 300)), 300u);   // in the middle of an edge
    EXPECT_EQ(load(trie, ids(7, 30)), 0u);
    EXPECT_EQ(load(trie, {}), 0u);
}

TEST(PrefixTrie, TheLeastRecentlyUsedLeaveEndsFirst) {
    const std::size_t one = 100 * (row + sizeof(std::int32_t));
    PrefixTrie trie({3 * one, row, 0});
    for (int seed : {1, 2, 3}) keep(trie, ids(seed, 100));
    EXPECT_EQ(trie.bytes(), 3 * one);
    EXPECT_EQ(load(trie, ids(1, 40)), 40u);     // used: 2 is the oldest now
    keep(trie, ids(4, 100));
    EXPECT_EQ(trie.bytes(), 3 * one);
    EXPECT_EQ(trie.kept(ids(2, 100)), 0u);
    for (int seed : {1, 3, 4}) EXPECT_EQ(trie.kept(ids(seed, 100)), 100u) << seed;
    // A branch leaves before the beginning that another one needs.
    PrefixTrie tree({3 * one, row, 0});
    keep(tree, joined(ids(1, 100), ids(5, 100)));
    keep(tree, joined(ids(1, 100), ids(6, 100)));
    keep(tree, ids(7, 50));
    EXPECT_EQ(tree.kept(joined(ids(1, 100), ids(5, 100))), 100u);
    EXPECT_EQ(tree.kept(joined(ids(1, 100), ids(6, 100))), 200u);
}

TEST(PrefixTrie, WhatDoesNotFitKeepsItsBeginning) {
    PrefixTrie trie({600 * (row + sizeof(std::int32_t)), row, 0});
    keep(trie, ids(1, 100));
    keep(trie, ids(2, 2000));
    const std::size_t kept = load(trie, ids(2, 2000));
    EXPECT_GE(kept, 256u);
    EXPECT_LE(kept, 600u);
    EXPECT_LE(trie.bytes(), 600 * (row + sizeof(std::int32_t)));
    PrefixTrie none({0, row, 0});
    EXPECT_FALSE(none.keeps_any());
    EXPECT_EQ(keep(none, ids(1, 100)), 0u);
    EXPECT_EQ(none.bytes(), 0u);
    PrefixTrie small({20, row, 0});
    keep(small, ids(1, 100));
    EXPECT_EQ(small.kept(ids(1, 100)), 0u);
    EXPECT_EQ(small.bytes(), 0u);
}

TEST(PrefixTrie, RecurrentModelsLoadAtStatesOnly) {
    PrefixTrie trie({1 << 20, row, state_size});
    const Ids a = ids(1, 500);
    EXPECT_EQ(keep(trie, a), 0u);                    // nothing could be loaded of it
    EXPECT_EQ(keep(trie, a, {300, 100}), 300u);      // nor of what is behind the last
    EXPECT_EQ(load(trie, a, 0, true), 300u);
    EXPECT_EQ(load(trie, ids(1, 299), 0, true), 100u);
    EXPECT_EQ(load(trie, ids(1, 99), 0, true), 0u);
    EXPECT_EQ(trie.bytes(), 300 * (row + sizeof(std::int32_t)) + 2 * state_size);
    // Within a budget the state unused for longest leaves, and then the rows that nothing needs.
    const std::size_t both = 200 * (row + sizeof(std::int32_t)) + 2 * state_size;
    PrefixTrie small({both, row, state_size});
    keep(small, ids(1, 100), {100});
    keep(small, ids(2, 100), {100});
    EXPECT_EQ(load(small, ids(1, 100), 0, true), 100u);
    keep(small, ids(3, 60), {60});
    EXPECT_EQ(small.kept(ids(2, 100)), 0u);
    EXPECT_EQ(small.kept(ids(1, 100)), 100u);
    EXPECT_EQ(small.kept(ids(3, 60)), 60u);
    EXPECT_EQ(small.bytes(), 160 * (row + sizeof(std::int32_t)) + 2 * state_size);
    // A state with more tokens than fit is none.
    keep(small, ids(4, 1000), {1000});
    EXPECT_EQ(small.kept(ids(4, 1000)), 0u);
    EXPECT_EQ(small.kept(ids(1, 100)), 100u);
}

TEST(PrefixTrie, SlotsAreFoundByWhatTheyHold) {
    PrefixTrie trie({0, row, 0});
    const auto common = [&](const Ids& wanted, int slot) {
        std::vector<PrefixTrie::Held> found;
        trie.held(wanted, found);
        for (const auto& h : found)
            if (h.slot == slot) return h.common;
        return std::size_t{0};
    };
    trie.hold(0, joined(ids(1, 100), ids(2, 10)));
    trie.hold(1, joined(ids(1, 100), ids(3, 10)));
    trie.hold(2, ids(1, 60));
    const Ids wanted = joined(ids(1, 100), ids(2, 5));
    EXPECT_EQ(common(wanted, 0), 105u);
    EXPECT_EQ(common(wanted, 1), 100u);
    EXPECT_EQ(common(wanted, 2), 60u);
    EXPECT_EQ(common(wanted, 3), 0u);
    trie.hold(0, {});
    EXPECT_EQ(common(wanted, 0), 0u);
    EXPECT_EQ(common(wanted, 1), 100u);
    trie.hold(1, ids(9, 40));
    EXPECT_EQ(common(wanted, 1), 0u);
    EXPECT_EQ(common(ids(9, 50), 1), 40u);
}

// Sequences from few tokens, so that they share beginnings of every length and branch everywhere.
Ids random_ids(std::mt19937& rng, const std::vector<Ids>& known) {
    Ids out;
    if (!known.empty() && rng() % 4 != 0) {
        const Ids& from = known[rng() % known.size()];
        out.assign(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(rng() % (from.size() + 1)));
    }
    const std::size_t more = rng() % (rng() % 5 == 0 ? 700 : 20);
    for (std::size_t i = 0; i < more; ++i) out.push_back(static_cast<std::int32_t>(rng() % 3));
    return out;
}

std::size_t common_of(const Ids& a, const Ids& b) { return common_prefix(a, b); }

// Without a limit everything is found that a list of all sequences has, and what is kept is each prefix once.
TEST(PrefixTrie, IsWhatAListIs) {
    for (unsigned seed = 0; seed < 60; ++seed) {
        std::mt19937 rng(seed);
        PrefixTrie trie({1 << 30, row, 0});
        std::vector<Ids> kept;
        std::vector<Ids> held(4);
        std::set<std::uint64_t> prefixes;
        for (int step = 0; step < 80; ++step) {
            const Ids tokens = random_ids(rng, kept);
            switch (rng() % 4) {
                case 0:
                    keep(trie, tokens);
                    kept.push_back(tokens);
                    for (std::size_t i = 1; i <= tokens.size(); ++i) prefixes.insert(hash_of(std::span(tokens).first(i)));
                    break;
                case 1: {
                    const std::size_t slot = rng() % held.size();
                    held[slot] = tokens;
                    trie.hold(static_cast<int>(slot), tokens);
                    break;
                }
                case 2: {
                    std::size_t best = 0;
                    for (const Ids& k : kept) best = std::max(best, common_of(k, tokens));
                    ASSERT_EQ(load(trie, tokens, best > 0 ? rng() % best : 0), best) << seed << " " << step;
                    break;
                }
                default: {
                    std::vector<PrefixTrie::Held> found;
                    trie.held(tokens, found);
                    std::vector<std::size_t> common(held.size(), 0);
                    for (const auto& h : found) common.at(static_cast<std::size_t>(h.slot)) = h.common;
                    for (std::size_t i = 0; i < held.size(); ++i) ASSERT_EQ(common[i], common_of(held[i], tokens)) << seed << " " << step;
                }
            }
            ASSERT_EQ(trie.bytes(), prefixes.size() * (row + sizeof(std::int32_t)));
        }
    }
}

// The same with recurrent states: what can be loaded is the longest prefix that has one.
TEST(PrefixTrie, IsWhatAListOfStatesIs) {
    for (unsigned seed = 0; seed < 60; ++seed) {
        std::mt19937 rng(1000 + seed);
        PrefixTrie trie({1 << 30, row, state_size});
        std::vector<Ids> kept;
        std::set<std::uint64_t> states;
        for (int step = 0; step < 60; ++step) {
            const Ids tokens = random_ids(rng, kept);
            if (rng() % 2 == 0 && !tokens.empty()) {
                std::vector<std::size_t> lengths;
                for (std::size_t i = 0; i < rng() % 4; ++i) lengths.push_back(1 + rng() % tokens.size());
                keep(trie, tokens, lengths);
                for (const std::size_t n : lengths) states.insert(hash_of(std::span(tokens).first(n)));
                kept.push_back(tokens);
            } else {
                std::size_t best = 0;
                for (std::size_t n = 1; n <= tokens.size(); ++n)
                    if (states.count(hash_of(std::span(tokens).first(n)))) best = n;
                ASSERT_EQ(load(trie, tokens, 0, true), best) << seed << " " << step;
            }
        }
    }
}

// Within a budget: never more than that, never anything wrong, and what was kept last is there.
TEST(PrefixTrie, StaysWithinItsBudget) {
    for (const std::size_t state : {std::size_t{0}, state_size})
        for (unsigned seed = 0; seed < 60; ++seed) {
            std::mt19937 rng(2000 + seed);
            const std::size_t budget = 200 + rng() % 12000;
            PrefixTrie trie({budget, row, state});
            std::vector<Ids> kept;
            for (int step = 0; step < 150; ++step) {
                const Ids tokens = random_ids(rng, kept);
                switch (rng() % 3) {
                    case 0:
                        keep(trie, tokens, state > 0 && !tokens.empty() ? std::vector<std::size_t>{1 + rng() % tokens.size(), tokens.size()} : std::vector<std::size_t>());
                        if (tokens.size() * (row + sizeof(std::int32_t)) + 2 * state <= budget) {
                            ASSERT_EQ(trie.kept(tokens), tokens.size()) << seed << " " << step;
                        }
                        kept.push_back(tokens);
                        break;
                    case 1: trie.hold(static_cast<int>(rng() % 3), tokens); break;
                    default: {
                        std::size_t most = 0;
                        for (const Ids& k : kept) most = std::max(most, common_of(k, tokens));
                        ASSERT_LE(load(trie, tokens, 0, state > 0), most);
                    }
                }
                ASSERT_LE(trie.bytes(), budget);
            }
            for (int slot = 0; slot < 3; ++slot) trie.hold(slot, {});
        }
}

}  // namespace
}  // namespace forge
