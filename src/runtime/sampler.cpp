#include "runtime/sampler.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace forge {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t kBlock = 32;  // logits looked at together; wide enough for any vector unit

constexpr std::size_t kPiece = 128 * kBlock;  // logits among which the largest is looked for one by one

// Largest value, and whether a value is NaN or +inf. Lane-wise, so that compilers vectorise it.
struct Scan {
    float largest;
    bool bad;
    std::size_t piece = 0;  // where the first piece begins that holds the largest
};
Scan scan_piece(const float* x, std::size_t n) {
    std::array<float, kBlock> largest;
    std::array<int, kBlock> bad{};
    largest.fill(kMinusInfinity);
    std::size_t i = 0;
    for (; i + kBlock <= n; i += kBlock) {
        for (std::size_t j = 0; j < kBlock; ++j) {
            largest[j] = x[i + j] > largest[j] ? x[i + j] : largest[j];
            bad[j] |= !(x[i + j] <= FLT_MAX);
        }
    }
    for (; i < n; ++i) {
        largest[0] = x[i] > largest[0] ? x[i] : largest[0];
        bad[0] |= !(x[i] <= FLT_MAX);
    }
    return {*std::max_element(largest.begin(), largest.end()),
            std::any_of(bad.begin(), bad.end(), [](int b) { return b != 0; })};
}
Scan scan(const float* x, std::size_t n) {
    Scan all{kMinusInfinity, false};
    for (std::size_t i = 0; i < n; i += kPiece) {
        const Scan piece = scan_piece(x + i, std::min(kPiece, n - i));
        all.bad |= piece.bad;
        if (piece.largest > all.largest) all.largest = piece.largest, all.piece = i;
    }
    return all;
}

// A logit that is not a number is a bug or a damaged file; choosing around it would hide it.
[[noreturn]] void report_bad(const float* x, std::size_t n, std::uint64_t position) {
    std::size_t id = 0;
    while (id + 1 < n && x[id] <= FLT_MAX) ++id;
    fail(ErrorKind::internal,
         "the logit of token {} at position {} is {}, so no token can be chosen; "
         "the model file may be damaged, or the activation type overflowed (try --dtype f32)",
         id, position, x[id]);
}

std::uint64_t mix(std::uint64_t z) {  // SplitMix64's finaliser
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void check_range(const char* name, double value, double low, double high) {
    if (!(value >= low && value <= high)) fail("{} must be between {} and {}, found {}", name, low, high, value);
}

}  // namespace

double uniform(std::uint64_t seed, std::uint64_t position) {
    constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ull;
    const std::uint64_t bits = mix(mix(seed + golden) + (position + 1) * golden);
    return static_cast<double>(bits >> 11) * 0x1p-53;
}

void check_options(const SamplingOptions& o) {
    check_range("temperature", o.temperature, 0, 1000);
    if (o.top_k < 0) fail("top-k must be 0 (off) or more, found {}", o.top_k);
    check_range("typical-p", o.typical_p, 0, 1);
    check_range("top-p", o.top_p, 0, 1);
    check_range("min-p", o.min_p, 0, 1);
    if (!(o.repetition_penalty > 0)) fail("the repetition penalty must be above 0 (1 is off), found {}", o.repetition_penalty);
    check_range("the repetition penalty", o.repetition_penalty, 0, 1000);
    check_range("the presence penalty", o.presence_penalty, -1000, 1000);
    check_range("the frequency penalty", o.frequency_penalty, -1000, 1000);
    if (o.penalty_window < -1) fail("the penalty window must be -1 (all), 0 (off) or a count of tokens, found {}", o.penalty_window);
    for (const auto& [id, bias] : o.logit_bias) {
        if (id < 0) fail("a logit bias names token {}; ids start at 0", id);
        if (!(bias <= 1e6f)) fail("the logit bias of token {} must be at most 1e6, found {}", id, bias);
    }
}

Sampler::Sampler(SamplingOptions options, std::int32_t limit) : options_(std::move(options)), limit_(limit) {
    check_options(options_);
    if (limit_ <= 0) fail(ErrorKind::internal, "a sampler needs at least one token id to choose from, found a limit of {}", limit_);
    for (const auto& [id, bias] : options_.logit_bias) {
        (void)bias;
        if (id >= limit_) fail("a logit bias names token {}, but the vocabulary has {} tokens", id, limit_);
    }
}

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> history,
                             std::uint64_t position, const std::uint32_t* mask) {
    const auto n = static_cast<std::size_t>(limit_);
    if (logits.size() < n) fail(ErrorKind::internal, "{} logits are too few for a vocabulary of {}", logits.size(), n);
    const Scan raw = scan(logits.data(), n);
    if (raw.bad) report_bad(logits.data(), n, position);

    const float* x = adjust(logits.data(), history, mask);
    const Scan seen = x == logits.data() ? raw : scan(x, n);
    if (seen.bad) report_bad(x, n, position);
    if (seen.largest == kMinusInfinity)
        fail("no token can follow at position {}: {}", position,
             mask ? "the grammar forbids every token that the model allows" : "every logit is -inf");
    if (options_.temperature == 0)  // the first of equals
        return static_cast<std::int32_t>(std::find(x + seen.piece, x + n, seen.largest) - x);

    const double u = uniform(options_.seed, position);
    // Weights are exp((x - largest) / temperature): the largest has weight 1, nothing overflows.
    const auto weight = [&](float logit) { return std::exp((logit - seen.largest) / options_.temperature); };
    const std::size_t top_k = options_.top_k > 0 ? std::min<std::size_t>(static_cast<std::size_t>(options_.top_k), n) : n;

    if (options_.typical_p < 1) {
        if (top_k < n) {
            select(x, top_k);
        } else {
            gather(x);
        }
        keep_typical(seen.largest);
        return draw(u, seen.largest, -1);
    }
    if (top_k < n) {
        select(x, top_k);
        return draw(u, seen.largest, -1);
    }
    if (options_.top_p >= 1) {
        // Only min-p is left, a plain threshold: its few survivors are drawn from in order of id,
        // and so is the whole vocabulary when it is off.
        gather(x);
        if (options_.min_p > 0)
            std::erase_if(candidates_, [&](const Candidate& c) { return weight(c.logit) < options_.min_p; });
        return pick(u, seen.largest);
    }
    // Top-p over the whole vocabulary: its total needs every weight, its nucleus only the first few.
    double total = 0;
    for (std::size_t i = 0; i < n; ++i) total += weight(x[i]);
    for (std::size_t k = std::min<std::size_t>(256, n);; k = std::min(k * 8, n)) {
        select(x, k);
        double sum = 0;
        for (const Candidate& c : candidates_) sum += weight(c.logit);
        if (candidates_.size() < k || k == n || sum >= options_.top_p * total ||
            weight(candidates_.back().logit) < options_.min_p)
            return draw(u, seen.largest, total);
    }
}

// Penalties, bias and mask, in that order; the caller's logits when there is nothing to do.
const float* Sampler::adjust(const float* logits, std::span<const std::int32_t> history, const std::uint32_t* mask) {
    const SamplingOptions& o = options_;
    if (o.penalty_window >= 0 && history.size() > static_cast<std::size_t>(o.penalty_window))
        history = history.last(static_cast<std::size_t>(o.penalty_window));
    const bool penalties = !history.empty() &&
        (o.repetition_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0);
    if (!penalties && o.logit_bias.empty() && !mask) return logits;

    const auto n = static_cast<std::size_t>(limit_);
    scratch_.assign(logits, logits + n);
    if (penalties) {
        counts_.resize(n);  // all zero between calls
        const auto known = [&](std::int32_t id) { return id >= 0 && id < limit_; };
        for (std::int32_t id : history)
            if (known(id)) ++counts_[static_cast<std::size_t>(id)];
        for (std::int32_t id : history) {
            if (!known(id) || counts_[static_cast<std::size_t>(id)] == 0) continue;
            float& logit = scratch_[static_cast<std::size_t>(id)];
            logit = logit > 0 ? logit / o.repetition_penalty : logit * o.repetition_penalty;
            logit -= o.presence_penalty + o.frequency_penalty * static_cast<float>(counts_[static_cast<std::size_t>(id)]);
            counts_[static_cast<std::size_t>(id)] = 0;
        }
    }
    for (const auto& [id, bias] : o.logit_bias) scratch_[static_cast<std::size_t>(id)] += bias;
    if (mask) {
        for (std::size_t i = 0; i < n; ++i)
            if (!(mask[i / 32] >> (i % 32) & 1u)) scratch_[i] = kMinusInfinity;
    }
    return scratch_.data();
}

// candidates_ = the k largest logits (-inf is never one), falling, equal ones by id.
// One pass: a buffer of 2k takes what beats the k-th best so far and is cut when full.
void Sampler::select(const float* x, std::size_t k) {
    const auto n = static_cast<std::size_t>(limit_);
    const auto before = [](const Candidate& a, const Candidate& b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    };
    const std::size_t full = std::min(2 * k + kBlock, n + kBlock);
    candidates_.clear();
    candidates_.reserve(full + kBlock);
    float threshold = kMinusInfinity;
    const auto cut = [&] {
        if (candidates_.size() <= k) return;
        std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k) - 1, candidates_.end(), before);
        candidates_.resize(k);
        threshold = candidates_[k - 1].logit;  // a later equal one has a larger id and loses
    };
    for (std::size_t i = 0; i < n; i += kBlock) {
        const std::size_t end = std::min(i + kBlock, n);
        int any = 0;
        for (std::size_t j = i; j < end; ++j) any |= x[j] > threshold;
        if (!any) continue;
        for (std::size_t j = i; j < end; ++j)
            if (x[j] > threshold) candidates_.push_back({x[j], static_cast<std::int32_t>(j)});
        if (candidates_.size() >= full) cut();
    }
    cut();
    std::sort(candidates_.begin(), candidates_.end(), before);
}

// candidates_ = every logit but -inf, in order of id.
void Sampler::gather(const float* x) {
    candidates_.clear();
    candidates_.reserve(static_cast<std::size_t>(limit_));
    for (std::int32_t id = 0; id < limit_; ++id)
        if (x[id] > kMinusInfinity) candidates_.push_back({x[id], id});
}

// Locally typical sampling: the tokens whose surprise is nearest to the entropy, until their
// probabilities reach typical_p.
void Sampler::keep_typical(float largest) {
    double total = 0, weighted = 0;
    for (const Candidate& c : candidates_) {
        const float scaled = (c.logit - largest) / options_.temperature;
        const double w = std::exp(scaled);
        total += w;
        if (w > 0) weighted += w * static_cast<double>(scaled);
    }
    // surprise = log(total) - scaled, entropy = log(total) - weighted / total: the logarithm cancels.
    const auto mean = static_cast<float>(weighted / total);
    const auto distance = [&](const Candidate& c) { return std::fabs((c.logit - largest) / options_.temperature - mean); };
    const auto nearer = [&](const Candidate& a, const Candidate& b) {
        const float da = distance(a), db = distance(b);
        return da != db ? da < db : a.id < b.id;
    };
    // Sorted piece by piece, so that a peaked distribution sorts only its first piece.
    const std::size_t count = candidates_.size();
    std::size_t kept = 0, sorted = 0;
    double sum = 0;
    for (std::size_t piece = 256; kept < count; piece *= 8) {
        const auto first = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted);
        const std::size_t end = std::min(sorted + piece, count);
        const auto last = candidates_.begin() + static_cast<std::ptrdiff_t>(end);
        if (end < count) std::nth_element(first, last, candidates_.end(), nearer);
        std::sort(first, last, nearer);
        sorted = end;
        while (kept < sorted) {
            sum += std::exp((candidates_[kept].logit - largest) / options_.temperature);
            ++kept;
            if (sum >= options_.typical_p * total) {
                candidates_.resize(kept);
                kept = count;
            }
        }
    }
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    });
}

// Top-p and min-p over candidates_, which fall, then the draw. total: the weights that top-p is a
// share of, or -1 for those of the candidates.
std::int32_t Sampler::draw(double u, float largest, double total) {
    const auto weight = [&](const Candidate& c) { return std::exp((c.logit - largest) / options_.temperature); };
    if (total < 0) {
        total = 0;
        for (const Candidate& c : candidates_) total += weight(c);
    }
    const double least = static_cast<double>(options_.min_p) * weight(candidates_.front());
    double sum = 0;
    std::size_t kept = 0;
    for (; kept < candidates_.size(); ++kept) {
        const double w = weight(candidates_[kept]);
        if (kept > 0 && (w < least || (options_.top_p < 1 && sum >= options_.top_p * total))) break;
        sum += w;
    }
    candidates_.resize(kept);
    return pick(u, largest);
}

// The candidate in which the share `u` of all weights falls.
std::int32_t Sampler::pick(double u, float largest) const {
    double total = 0, sum = 0;
    for (const Candidate& c : candidates_) total += std::exp((c.logit - largest) / options_.temperature);
    const double target = u * total;
    for (const Candidate& c : candidates_) {
        sum += std::exp((c.logit - largest) / options_.temperature);
        if (sum > target) return c.id;
    }
    return candidates_.back().id;  // u * total rounded up to total
}

std::vector<TokenProbability> top_logprobs(std::span<const float> logits, std::int32_t chosen, int n,
                                           std::int32_t limit, float* chosen_logprob) {
    const auto count = static_cast<std::size_t>(std::max(limit, 0));
    if (count == 0 || logits.size() < count)
        fail(ErrorKind::internal, "{} logits are too few for a vocabulary of {}", logits.size(), limit);
    const Scan seen = scan(logits.data(), count);
    if (seen.bad) report_bad(logits.data(), count, 0);
    double total = 0;
    for (std::size_t i = 0; i < count; ++i) total += std::exp(logits[i] - seen.largest);
    const double log_total = std::log(total) + seen.largest;
    if (chosen_logprob) {
        *chosen_logprob = chosen >= 0 && chosen < limit
            ? static_cast<float>(logits[static_cast<std::size_t>(chosen)] - log_total)
            : kMinusInfinity;
    }
    std::vector<TokenProbability> best;
    if (n <= 0) return best;
    const auto before = [&](std::int32_t a, std::int32_t b) {
        const float la = logits[static_cast<std::size_t>(a)], lb = logits[static_cast<std::size_t>(b)];
        return la != lb ? la > lb : a < b;
    };
    std::vector<std::int32_t> ids(count);
    for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>(i);
    const auto wanted = static_cast<std::ptrdiff_t>(std::min<std::size_t>(static_cast<std::size_t>(n), count));
    std::partial_sort(ids.begin(), ids.begin() + wanted, ids.end(), before);
    for (std::ptrdiff_t i = 0; i < wanted; ++i) {
        const std::int32_t id = ids[static_cast<std::size_t>(i)];
        best.push_back({id, static_cast<float>(logits[static_cast<std::size_t>(id)] - log_total)});
    }
    return best;
}

}  // namespace forge
