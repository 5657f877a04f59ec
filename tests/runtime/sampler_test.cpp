#include "runtime/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "allocation_count.h"
#include "base/error.h"

namespace forge {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

SamplingOptions plain() {  // temperature 1, every filter off
    SamplingOptions o;
    o.temperature = 1;
    o.top_k = 0;
    o.top_p = 1;
    o.min_p = 0;
    return o;
}

std::vector<float> random_logits(std::size_t n, unsigned seed, float spread = 3) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> logits(n);
    for (float& x : logits) x = normal(random);
    return logits;
}

// What the filters leave, by full sorts in double: id -> probability.
std::map<int, double> reference(const std::vector<float>& logits, const SamplingOptions& o) {
    std::vector<int> ids;
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (logits[i] > -kInf) ids.push_back(static_cast<int>(i));
    const auto at = [&](int id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
    std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return at(a) > at(b); });
    const auto probabilities = [&](const std::vector<int>& set) {
        std::map<int, double> p;
        double total = 0;
        for (int id : set) total += p[id] = std::exp((at(id) - at(ids[0])) / o.temperature);
        for (auto& [id, value] : p) value /= total;
        return p;
    };
    if (o.top_k > 0 && ids.size() > static_cast<std::size_t>(o.top_k)) ids.resize(static_cast<std::size_t>(o.top_k));
    if (o.typical_p < 1) {
        auto p = probabilities(ids);
        double entropy = 0;
        for (auto& [id, value] : p)
            if (value > 0) entropy -= value * std::log(value);
        std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) {
            return std::fabs(-std::log(p[a]) - entropy) < std::fabs(-std::log(p[b]) - entropy);
        });
        double sum = 0;
        std::size_t kept = 0;
        while (kept < ids.size() && (kept == 0 || sum < o.typical_p)) sum += p[ids[kept++]];
        ids.resize(kept);
        std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return at(a) > at(b); });
    }
    if (o.top_p < 1) {
        auto p = probabilities(ids);
        double sum = 0;
        std::size_t kept = 0;
        while (kept < ids.size() && (kept == 0 || sum < o.top_p)) sum += p[ids[kept++]];
        ids.resize(kept);
    }
    if (o.min_p > 0) {
        auto p = probabilities(ids);
        const double least = o.min_p * p[ids[0]];
        std::erase_if(ids, [&](int id) { return p[id] < least && id != ids[0]; });
    }
    return probabilities(ids);
}

// Pearson's statistic over the cells with at least 5 expected draws (the rest pooled), and its
// degrees of freedom. A draw outside the reference's support fails at once.
void expect_distribution(const std::vector<float>& logits, const SamplingOptions& options, int draws) {
    const auto expected = reference(logits, options);
    Sampler sampler(options, static_cast<std::int32_t>(logits.size()));
    std::map<int, int> seen;
    for (int i = 0; i < draws; ++i) ++seen[sampler.sample(logits, {}, static_cast<std::uint64_t>(i))];
    for (auto [id, count] : seen) ASSERT_TRUE(expected.count(id)) << "token " << id << " was filtered away but drawn " << count << " times";
    double statistic = 0, pooled_expected = 0, pooled_seen = 0;
    int cells = 0;
    const auto add = [&](double want, double got) {
        statistic += (got - want) * (got - want) / want;
        ++cells;
    };
    for (auto [id, p] : expected) {
        if (p * draws >= 5) {
            add(p * draws, seen[id]);
        } else {
            pooled_expected += p * draws;
            pooled_seen += seen[id];
        }
    }
    if (pooled_expected >= 5) add(pooled_expected, pooled_seen);
    if (cells < 2) return;
    // The statistic is about normal with mean df, variance 2 df: 5 sigma, with fixed seeds.
    const double df = cells - 1;
    EXPECT_LT(statistic, df + 5 * std::sqrt(2 * df) + 3) << cells << " cells";
}

TEST(Uniform, IsInRangeEvenAndIndependentOfNeighbours) {
    int cells[16][16] = {};
    for (std::uint64_t i = 0; i < 100000; ++i) {
        const double a = uniform(7, i), b = uniform(7, i + 1);
        ASSERT_GE(a, 0);
        ASSERT_LT(a, 1);
        ++cells[static_cast<int>(a * 16)][static_cast<int>(b * 16)];
    }
    double statistic = 0;
    const double want = 100000 / 256.0;
    for (auto& row : cells)
        for (int seen : row) statistic += (seen - want) * (seen - want) / want;
    EXPECT_LT(statistic, 255 + 5 * std::sqrt(2 * 255.0));
    EXPECT_GT(statistic, 255 - 5 * std::sqrt(2 * 255.0));
}

TEST(Uniform, SeedsAndPositionsDoNotShiftIntoEachOther) {
    std::set<double> seen;
    for (std::uint64_t seed = 0; seed < 100; ++seed)
        for (std::uint64_t position = 0; position < 100; ++position) seen.insert(uniform(seed, position));
    EXPECT_EQ(seen.size(), 10000u);
}

TEST(Sampler, GreedyTakesTheFirstOfEquals) {
    SamplingOptions o;
    o.temperature = 0;
    const std::vector<float> logits{1, 5, 2, 5, 5};
    EXPECT_EQ(Sampler(o, 5).sample(logits, {}, 0), 1);
    const std::vector<float> minus{-kInf, -3, -2, -2};
    EXPECT_EQ(Sampler(o, 4).sample(minus, {}, 0), 2);
}

TEST(Sampler, GreedyOnEverySizeAroundTheBlocks) {
    SamplingOptions o;
    o.temperature = 0;
    for (std::size_t n = 1; n < 100; ++n) {
        for (std::size_t best : {std::size_t{0}, n / 2, n - 1}) {
            std::vector<float> logits(n, -1.0f);
            logits[best] = 1;
            EXPECT_EQ(Sampler(o, static_cast<std::int32_t>(n)).sample(logits, {}, 0), static_cast<std::int32_t>(best));
        }
    }
}

TEST(Sampler, NeverChoosesPaddingRows) {
    std::vector<float> logits(64, 0.0f);
    for (std::size_t i = 40; i < 64; ++i) logits[i] = i % 2 ? std::nanf("") : 100.0f;
    for (float temperature : {0.0f, 1.0f}) {
        SamplingOptions o = plain();
        o.temperature = temperature;
        Sampler sampler(o, 40);
        for (std::uint64_t i = 0; i < 200; ++i) EXPECT_LT(sampler.sample(logits, {}, i), 40);
    }
}

TEST(Sampler, SameSeedAndPositionSameToken) {
    const auto logits = random_logits(1000, 1);
    SamplingOptions o;
    o.seed = 42;
    Sampler a(o, 1000), b(o, 1000);
    std::vector<int> first, second;
    for (std::uint64_t i = 0; i < 200; ++i) first.push_back(a.sample(logits, {}, i));
    for (std::uint64_t i = 200; i-- > 0;) second.push_back(b.sample(logits, {}, i));  // in another order
    std::reverse(second.begin(), second.end());
    EXPECT_EQ(first, second);
    o.seed = 43;
    Sampler c(o, 1000);
    std::vector<int> other;
    for (std::uint64_t i = 0; i < 200; ++i) other.push_back(c.sample(logits, {}, i));
    EXPECT_NE(first, other);
}

TEST(Sampler, DrawsTheSoftmax) {
    const auto logits = random_logits(50, 2, 1);
    SamplingOptions o = plain();
    expect_distribution(logits, o, 20000);
    o.temperature = 0.5f;
    expect_distribution(logits, o, 20000);
    o.temperature = 3;
    expect_distribution(logits, o, 20000);
}

TEST(Sampler, TopK) {
    const auto logits = random_logits(300, 3, 1);
    SamplingOptions o = plain();
    for (int k : {1, 2, 40, 299, 300, 1000}) {
        o.top_k = k;
        expect_distribution(logits, o, 20000);
    }
}

TEST(Sampler, TopKBreaksTiesByTheFirst) {
    std::vector<float> logits(500, 1.0f);
    for (std::size_t i : {100, 200, 300}) logits[i] = 2;
    SamplingOptions o = plain();
    o.top_k = 5;  // the three, then ids 0 and 1
    Sampler sampler(o, 500);
    std::set<int> seen;
    for (std::uint64_t i = 0; i < 2000; ++i) seen.insert(sampler.sample(logits, {}, i));
    EXPECT_THAT(seen, testing::ElementsAre(0, 1, 100, 200, 300));
}

TEST(Sampler, TopKOfRisingAndFallingLogits) {  // every block beats the threshold, or none does
    std::vector<float> rising(5000), falling(5000);
    std::iota(rising.begin(), rising.end(), 0.0f);
    std::reverse_copy(rising.begin(), rising.end(), falling.begin());
    SamplingOptions o = plain();
    o.temperature = 100;
    o.top_k = 7;
    expect_distribution(rising, o, 5000);
    expect_distribution(falling, o, 5000);
}

TEST(Sampler, TopP) {
    const auto logits = random_logits(1000, 4, 2);
    SamplingOptions o = plain();
    for (float p : {0.0f, 0.1f, 0.5f, 0.9f, 0.999f}) {
        o.top_p = p;
        expect_distribution(logits, o, 10000);
        o.top_k = 100;
        expect_distribution(logits, o, 10000);
        o.top_k = 0;
    }
}

TEST(Sampler, TopPOfAFlatDistributionNeedsMoreThanOnePiece) {
    const std::vector<float> logits(5000, 0.0f);
    SamplingOptions o = plain();
    o.top_p = 0.5f;
    Sampler sampler(o, 5000);
    int largest = 0;
    for (std::uint64_t i = 0; i < 5000; ++i) largest = std::max(largest, sampler.sample(logits, {}, i));
    EXPECT_GE(largest, 2400);
    EXPECT_LE(largest, 2500);
}

TEST(Sampler, MinP) {
    const auto logits = random_logits(2000, 5, 1);
    SamplingOptions o = plain();
    for (float p : {0.01f, 0.2f, 1.0f}) {
        o.min_p = p;
        expect_distribution(logits, o, 20000);
    }
}

TEST(Sampler, TypicalP) {
    SamplingOptions o = plain();
    for (float p : {0.05f, 0.5f, 0.9f}) {
        o.typical_p = p;
        expect_distribution(random_logits(100, 6, 2), o, 20000);
        expect_distribution(random_logits(1000, 7, 2), o, 20000);
    }
}

TEST(Sampler, FiltersTogetherInTheirOrder) {
    const auto logits = random_logits(2000, 8, 2);
    SamplingOptions o;  // the defaults
    expect_distribution(logits, o, 10000);
    o.typical_p = 0.7f;
    o.top_k = 200;
    o.min_p = 0.2f;
    expect_distribution(logits, o, 10000);
    o.typical_p = 1;
    o.top_k = 0;
    o.top_p = 0.8f;
    expect_distribution(logits, o, 10000);
}

TEST(Sampler, TinyAndHugeTemperaturesStayFinite) {
    const auto logits = random_logits(500, 9, 10);
    const auto best = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    SamplingOptions o;
    for (float typical : {1.0f, 0.5f}) {
        o.typical_p = typical;
        o.temperature = 1e-42f;
        EXPECT_EQ(Sampler(o, 500).sample(logits, {}, 3), best);
        o.temperature = 1000;
        const auto id = Sampler(o, 500).sample(logits, {}, 3);
        EXPECT_TRUE(id >= 0 && id < 500);
    }
    const std::vector<float> extreme{std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(), 0};
    o = plain();
    EXPECT_EQ(Sampler(o, 3).sample(extreme, {}, 0), 0);
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
    SamplingOptions o = plain();
    o.temperature = 0;
    o.repetition_penalty = 2;
    const std::vector<std::int32_t> history{0, 0, 0};
    EXPECT_EQ(Sampler(o, 3).sample(std::vector<float>{4, 2.5f, 0}, history, 0), 1);  // 4 / 2 = 2
    EXPECT_EQ(Sampler(o, 3).sample(std::vector<float>{4, 1.5f, 0}, history, 0), 0);  // once, however often seen
    EXPECT_EQ(Sampler(o, 3).sample(std::vector<float>{-1, -1.5f, -9}, history, 0), 1);  // -1 * 2 = -2
}

TEST(Sampler, PresenceOnceFrequencyPerOccurrence) {
    SamplingOptions o = plain();
    o.temperature = 0;
    o.presence_penalty = 1;
    const std::vector<std::int32_t> history{0, 0, 0, 1};
    EXPECT_EQ(Sampler(o, 3).sample(std::vector<float>{3, 0, 1.9f}, history, 0), 0);
    EXPECT_EQ(Sampler(o, 3).sample(std::vector<float>{3, 0, 2.1f}, history, 0), 2);
    o.presence_penalty = 0;
    o.frequency_penalty = 1;
    EXPECT_EQ(Sampler(o, 3).sample(std::vector<float>{3, 2, 0.5f}, history, 0), 1);  // 0, 1, 0.5
    EXPECT_EQ(Sampler(o, 3).sample(std::vector<float>{5, 2, 0.5f}, history, 0), 0);  // 2, 1, 0.5
}

TEST(Sampler, PenaltyWindowCountsTheLastTokens) {
    SamplingOptions o = plain();
    o.temperature = 0;
    o.presence_penalty = 10;
    const std::vector<std::int32_t> history{0, 1, 1};
    const std::vector<float> logits{3, 2, 1};
    o.penalty_window = 2;
    EXPECT_EQ(Sampler(o, 3).sample(logits, history, 0), 0);
    o.penalty_window = -1;
    EXPECT_EQ(Sampler(o, 3).sample(logits, history, 0), 2);
    o.penalty_window = 0;
    EXPECT_EQ(Sampler(o, 3).sample(logits, history, 0), 0);
    o.penalty_window = 64;
    Sampler sampler(o, 3);
    EXPECT_EQ(sampler.sample(logits, history, 0), 2);
    EXPECT_EQ(sampler.sample(logits, {}, 0), 0) << "counts of an earlier call must not remain";
    const std::vector<std::int32_t> strange{-1, 3, 1 << 30};
    EXPECT_EQ(sampler.sample(logits, strange, 0), 0);
}

TEST(Sampler, BiasBeforeMaskAndTemperature) {
    SamplingOptions o = plain();
    o.temperature = 0;
    o.logit_bias = {{0, -kInf}, {2, 0.5f}};
    EXPECT_EQ(Sampler(o, 3).sample(std::vector<float>{9, 1, 0.6f}, {}, 0), 2);
    const std::uint32_t mask = 0b011;
    EXPECT_EQ(Sampler(o, 3).sample(std::vector<float>{9, 1, 0.6f}, {}, 0, &mask), 1);
}

TEST(Sampler, MaskLeavesOnlyItsTokens) {
    const auto logits = random_logits(100, 10, 1);
    std::vector<std::uint32_t> mask(4, 0);
    auto masked = logits;
    for (std::size_t i = 0; i < 100; ++i) {
        if (i % 7 == 3) {
            mask[i / 32] |= 1u << (i % 32);
        } else {
            masked[i] = -kInf;
        }
    }
    SamplingOptions o = plain();
    Sampler with_mask(o, 100), by_hand(o, 100);
    for (std::uint64_t i = 0; i < 500; ++i) {
        const auto id = with_mask.sample(logits, {}, i, mask.data());
        EXPECT_EQ(id % 7, 3);
        EXPECT_EQ(id, by_hand.sample(masked, {}, i));
    }
    std::fill(mask.begin(), mask.end(), 0);
    try {
        with_mask.sample(logits, {}, 12, mask.data());
        FAIL() << "an empty mask was accepted";
    } catch (const Error& e) {
        EXPECT_THAT(e.what(), testing::HasSubstr("no token can follow at position 12: the grammar forbids every token"));
    }
}

TEST(Sampler, LogitsThatAreNotNumbersAreErrors) {
    for (float bad : {std::nanf(""), kInf}) {
        for (float temperature : {0.0f, 0.8f}) {
            for (std::size_t at : {std::size_t{0}, std::size_t{17}, std::size_t{98}}) {
                auto logits = random_logits(99, 11);
                logits[at] = bad;
                SamplingOptions o;
                o.temperature = temperature;
                try {
                    Sampler(o, 99).sample(logits, {}, 5);
                    FAIL() << bad << " was accepted";
                } catch (const Error& e) {
                    EXPECT_THAT(e.what(), testing::HasSubstr(fmt::format("the logit of token {} at position 5", at)));
                }
            }
        }
    }
    const std::vector<float> none(10, -kInf);
    EXPECT_THROW(Sampler(SamplingOptions{}, 10).sample(none, {}, 0), Error);
    EXPECT_THROW(Sampler(SamplingOptions{}, 11).sample(none, {}, 0), Error);
}

TEST(Sampler, OptionsOutOfRangeAreNamed) {
    const auto message = [](auto change) -> std::string {
        SamplingOptions o;
        change(o);
        try {
            Sampler(o, 100);
        } catch (const Error& e) {
            return e.what();
        }
        return "accepted";
    };
    using O = SamplingOptions;
    EXPECT_EQ(message([](O& o) { o.temperature = -1; }), "temperature must be between 0 and 1000, found -1");
    EXPECT_EQ(message([](O& o) { o.temperature = std::nanf(""); }), "temperature must be between 0 and 1000, found nan");
    EXPECT_EQ(message([](O& o) { o.top_k = -2; }), "top-k must be 0 (off) or more, found -2");
    EXPECT_EQ(message([](O& o) { o.top_p = 1.5f; }), "top-p must be between 0 and 1, found 1.5");
    EXPECT_EQ(message([](O& o) { o.min_p = -0.5f; }), "min-p must be between 0 and 1, found -0.5");
    EXPECT_EQ(message([](O& o) { o.typical_p = 2; }), "typical-p must be between 0 and 1, found 2");
    EXPECT_EQ(message([](O& o) { o.repetition_penalty = 0; }), "the repetition penalty must be above 0 (1 is off), found 0");
    EXPECT_EQ(message([](O& o) { o.penalty_window = -2; }), "the penalty window must be -1 (all), 0 (off) or a count of tokens, found -2");
    EXPECT_EQ(message([](O& o) { o.logit_bias = {{100, 1.0f}}; }), "a logit bias names token 100, but the vocabulary has 100 tokens");
    EXPECT_EQ(message([](O& o) { o.logit_bias = {{1, kInf}}; }), "the logit bias of token 1 must be at most 1e6, found inf");
    EXPECT_EQ(message([](O&) {}), "accepted");
}

TEST(Sampler, AllocatesOnlyInTheFirstCalls) {
    const auto logits = random_logits(20000, 12);
    std::vector<std::uint32_t> mask(20000 / 32, ~0u);
    std::vector<std::int32_t> history(500);
    std::iota(history.begin(), history.end(), 0);
    std::vector<SamplingOptions> cases(5);
    cases[1].temperature = 0;
    cases[2].typical_p = 0.5f;
    cases[2].repetition_penalty = 1.1f;
    cases[3] = plain();
    cases[4].top_k = 0;
    for (const auto& o : cases) {
        Sampler sampler(o, 20000);
        const std::vector<float> flat(20000, 1.0f);  // the shape that keeps the most candidates
        sampler.sample(flat, history, 0, mask.data());
        const std::size_t before = test::allocations();
        for (std::uint64_t i = 0; i < 20; ++i) sampler.sample(logits, history, i, mask.data());
        EXPECT_EQ(test::allocations() - before, 0u);
    }
}

TEST(TopLogprobs, AreTheLogSoftmaxFalling) {
    const auto logits = random_logits(1000, 13);
    double total = 0;
    for (std::size_t i = 0; i < 900; ++i) total += std::exp(static_cast<double>(logits[i]));
    float chosen = 0;
    const auto best = top_logprobs(logits, 17, 5, 900, &chosen);
    EXPECT_NEAR(chosen, logits[17] - std::log(total), 1e-4);
    ASSERT_EQ(best.size(), 5u);
    std::vector<float> sorted(logits.begin(), logits.begin() + 900);
    std::sort(sorted.rbegin(), sorted.rend());
    for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(best[i].logprob, sorted[i] - std::log(total), 1e-4);
    EXPECT_TRUE(top_logprobs(logits, 17, 0, 900, nullptr).empty());
    EXPECT_EQ(top_logprobs(logits, 17, 2000, 900, nullptr).size(), 900u);
}

}  // namespace
}  // namespace forge
