#include "rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace forge {
namespace {

constexpr double two_pi = 2 * std::numbers::pi;

// An odd share of a head rotates one more dim.
std::size_t pairs(const RopeParams& p) { return static_cast<std::size_t>((p.rotary_dim + 1) / 2); }

// theta^(2i/divisor) for pair i. The reference raises an f32 base to an f32
// exponent; the power itself is taken in f64 and rounded once.
float power(double theta, int pair, int divisor) {
    const float exponent = static_cast<float>(2 * pair) / static_cast<float>(divisor);
    return static_cast<float>(std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent)));
}

void scale_llama3(const RopeParams& p, std::vector<float>& inv_freq) {
    const float factor = static_cast<float>(p.factor);
    const float original = static_cast<float>(p.original_context);
    const float low = static_cast<float>(p.low_freq_factor);
    const float long_wave = static_cast<float>(p.original_context / p.low_freq_factor);
    const float short_wave = static_cast<float>(p.original_context / p.high_freq_factor);
    const float span = static_cast<float>(p.high_freq_factor - p.low_freq_factor);
    for (float& f : inv_freq) {
        const float wave = static_cast<float>(two_pi) / f;
        if (wave < short_wave) continue;
        if (wave > long_wave) {
            f /= factor;
            continue;
        }
        const float smooth = (original / wave - low) / span;
        f = (1.0f - smooth) * f / factor + smooth * f;
    }
}

double yarn_magnitude(double factor, double mscale) {
    return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// The dim whose wave turns `turns` times within the original context.
double yarn_dim(const RopeParams& p, double turns) {
    return p.rotary_dim * std::log(p.original_context / (turns * two_pi)) / (2 * std::log(p.theta));
}

std::vector<float> yarn_frequencies(const RopeParams& p) {
    double low = yarn_dim(p, p.beta_fast), high = yarn_dim(p, p.beta_slow);
    if (p.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, p.rotary_dim - 1.0);
    if (low == high) high += 0.001;  // the ramp's slope must stay finite
    std::vector<float> inv_freq(pairs(p));
    for (std::size_t i = 0; i < inv_freq.size(); ++i) {
        const float pos = power(p.theta, static_cast<int>(i), p.rotary_dim);
        const float extrapolated = 1.0f / pos;
        const float interpolated = 1.0f / (static_cast<float>(p.factor) * pos);
        const float ramp = std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
        const float keep = 1.0f - ramp;
        inv_freq[i] = interpolated * (1.0f - keep) + extrapolated * keep;
    }
    return inv_freq;
}

float yarn_scale(const RopeParams& p) {
    double scale = 1;
    if (p.attention_factor) {
        scale = *p.attention_factor;
    } else if (p.mscale.value_or(0) != 0 && p.mscale_all_dim.value_or(0) != 0) {
        scale = yarn_magnitude(p.factor, *p.mscale) / yarn_magnitude(p.factor, *p.mscale_all_dim);
    } else {
        scale = yarn_magnitude(p.factor, 1);
    }
    return static_cast<float>(scale * p.extra_scale);
}

std::vector<float> plain_frequencies(const RopeParams& p) {
    std::vector<float> inv_freq(pairs(p));
    // Pairs beyond the rotated share keep frequency 0: they pass through unchanged.
    const int rotated = p.type == RopeType::proportional
                            ? static_cast<int>(std::floor(p.rotated_share * p.rotary_dim / 2))
                            : static_cast<int>(pairs(p));
    for (int i = 0; i < rotated; ++i) inv_freq[static_cast<std::size_t>(i)] = 1.0f / power(p.theta, i, p.rotary_dim);
    return inv_freq;
}

std::string describe(const RopeParams& p, float scale) {
    const auto out = [&] {
        switch (p.type) {
            case RopeType::standard: return fmt::format("default theta {:g}", p.theta);
            case RopeType::linear: return fmt::format("linear theta {:g} factor {:g}", p.theta, p.factor);
            case RopeType::llama3:
                return fmt::format("llama3 theta {:g} factor {:g} low {:g} high {:g} original context {:g}", p.theta,
                                   p.factor, p.low_freq_factor, p.high_freq_factor, p.original_context);
            case RopeType::yarn:
                return fmt::format("yarn theta {:g} factor {:g} original context {:g} scale {:g}", p.theta, p.factor,
                                   p.original_context, scale);
            case RopeType::proportional:
                return fmt::format("proportional theta {:g} share {:g} factor {:g}", p.theta, p.rotated_share, p.factor);
        }
        return std::string();
    }();
    return p.divisors.empty() ? out : out + " with the file's rope_freqs";
}

void check(const RopeParams& p, std::string_view where) {
    const auto positive = [&](double value, const char* what) {
        if (!(value > 0) || !std::isfinite(value)) fail("{}: rope {} should be a positive number, but it is {:g}", where, what, value);
    };
    positive(p.theta, "theta");
    positive(p.factor, "factor");
    if (p.rotary_dim < 1) fail("{}: no dimension of a head rotates", where);
    if (p.rotary_dim % 2 != 0 && (p.type == RopeType::yarn || p.type == RopeType::proportional))
        fail("{}: {} rotary dimensions cannot be paired", where, p.rotary_dim);
    if (p.type == RopeType::llama3 || p.type == RopeType::yarn) positive(p.original_context, "original context length");
    if (p.type == RopeType::llama3) {
        positive(p.low_freq_factor, "low_freq_factor");
        positive(p.high_freq_factor, "high_freq_factor");
        if (p.high_freq_factor <= p.low_freq_factor)
            fail("{}: rope high_freq_factor {:g} should be larger than low_freq_factor {:g}", where, p.high_freq_factor, p.low_freq_factor);
    }
    if (p.type == RopeType::yarn) {
        positive(p.beta_fast, "beta_fast");
        positive(p.beta_slow, "beta_slow");
        if (p.theta == 1) fail("{}: rope theta 1 has no wavelengths to stretch with yarn", where);
    }
    if (p.type == RopeType::proportional && !(p.rotated_share >= 0 && p.rotated_share <= 1))
        fail("{}: rope partial_rotary_factor should be between 0 and 1, but it is {:g}", where, p.rotated_share);
    if (!p.divisors.empty() && p.divisors.size() != pairs(p))
        fail("{}: rope_freqs has {} entries, but {} rotary dimensions need {}", where, p.divisors.size(), p.rotary_dim, pairs(p));
}

}  // namespace

RopeSpec resolve_rope(const RopeParams& p, std::string_view where) {
    check(p, where);
    RopeSpec spec;
    spec.inv_freq = p.type == RopeType::yarn ? yarn_frequencies(p) : plain_frequencies(p);
    if (p.type == RopeType::linear || p.type == RopeType::proportional)
        for (float& f : spec.inv_freq) f /= static_cast<float>(p.factor);
    if (p.type == RopeType::llama3) scale_llama3(p, spec.inv_freq);
    for (std::size_t i = 0; i < p.divisors.size(); ++i) spec.inv_freq[i] /= p.divisors[i];
    if (p.type == RopeType::yarn) spec.scale = yarn_scale(p);
    const auto usable = [](float f) { return std::isfinite(f) && f >= 0; };
    if (!std::all_of(spec.inv_freq.begin(), spec.inv_freq.end(), usable) || !std::isfinite(spec.scale))
        fail("{}: these rope parameters give frequencies that are not finite ({})", where, describe(p, spec.scale));
    spec.description = describe(p, spec.scale);
    return spec;
}

int add_rope(std::vector<RopeSpec>& ropes, RopeSpec rope) {
    for (std::size_t i = 0; i < ropes.size(); ++i)
        if (ropes[i].inv_freq == rope.inv_freq && ropes[i].scale == rope.scale) return static_cast<int>(i);
    ropes.push_back(std::move(rope));
    return static_cast<int>(ropes.size()) - 1;
}

}  // namespace forge
