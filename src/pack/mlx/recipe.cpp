#include "recipe.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cctype>

#include "base/error.h"

namespace forge::mlx {
namespace {

struct Parsed {
    std::optional<MlxFormat> format;
    int high_bits = 0;
};

std::optional<int> number(std::string_view& text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
}

[[noreturn]] void refuse(const std::string& text) {
    fail("'{}' is no recipe; wanted q1, q2, q3, q4, q5, q6 or q8 with an optional group of 32, 64 or 128 (q4g32), mxfp4, mxfp8, nvfp4, plain, "
         "or mixed, mixed_2_6, mixed_3_4, mixed_3_6, mixed_4_6 (mixed_4_6g32)", text);
}

Parsed parse(const std::string& text) {
    if (text == "plain") return {};
    if (const auto mode = mlx_mode(text); mode && *mode != MlxMode::affine) return {mlx_default(*mode), 0};
    std::string_view rest = text;
    MlxFormat format;
    int high = 0;
    if (rest.starts_with("mixed")) {
        rest.remove_prefix(5);
        high = 6;
        if (rest.starts_with("_")) {
            rest.remove_prefix(1);
            const auto low = number(rest);
            if (!low || !rest.starts_with("_")) refuse(text);
            rest.remove_prefix(1);
            const auto wide = number(rest);
            const std::pair pair(*low, wide.value_or(0));
            if (pair != std::pair(2, 6) && pair != std::pair(3, 4) && pair != std::pair(3, 6) && pair != std::pair(4, 6)) refuse(text);
            format.bits = pair.first;
            high = pair.second;
        }
    } else if (rest.starts_with("q")) {
        rest.remove_prefix(1);
        const auto bits = number(rest);
        if (!bits || *bits < 1 || *bits > 8 || *bits == 7) refuse(text);
        format.bits = *bits;
    } else {
        refuse(text);
    }
    if (rest.starts_with("g")) {
        rest.remove_prefix(1);
        const auto group = number(rest);
        if (!group || (*group != 32 && *group != 64 && *group != 128)) refuse(text);
        format.group = *group;
    }
    if (!rest.empty()) refuse(text);
    return {format, high};
}

// The first number among the parts of a path: the layer. 0 outside the layers.
int layer_of(const std::string& path) {
    for (std::size_t at = 0; at < path.size();) {
        const std::size_t end = std::min(path.find('.', at), path.size());
        std::string_view part(path.data() + at, end - at);
        if (!part.empty() && std::isdigit(static_cast<unsigned char>(part.front())))
            if (const auto layer = number(part); layer && part.empty()) return *layer;
        at = end + 1;
    }
    return 0;
}

// Layers whose values and down projections are wider: the first and last eighth and every third between.
bool wider(int layer, int layers) {
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

bool holds(const std::string& path, std::string_view part) { return path.find(part) != std::string::npos; }

// Modules that decide between experts are read rarely and matter much.
bool routes(const std::string& path, const ModelSpec& spec) {
    const bool experts = std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return l.feed_forward.moe.experts > 0; });
    return experts && (path.ends_with("mlp.gate") || path.ends_with("shared_expert_gate") || path.ends_with("router.proj"));
}

}  // namespace

Recipe::Recipe(const std::vector<std::string>& recipes) {
    bool first = true;
    for (const std::string& text : recipes) {
        const std::size_t equals = text.rfind('=');
        if (equals != std::string::npos) {
            const Parsed parsed = parse(text.substr(equals + 1));
            if (equals == 0 || parsed.high_bits > 0) fail("'{}' should be PATTERN=RECIPE with a recipe that is not a mixed one", text);
            overrides_.emplace_back(text.substr(0, equals), parsed.format);
            continue;
        }
        if (!first) fail("two recipes for the whole model are given; '{}' is the second (others need a pattern, as in '*.lm_head=q8')", text);
        first = false;
        const Parsed parsed = parse(text);
        plain_ = !parsed.format;
        high_bits_ = parsed.high_bits;
        if (parsed.format) base_ = *parsed.format;
    }
}

Choice Recipe::choose(const std::string& path, std::int64_t cols, const ModelSpec& spec, const std::string& alias) const {
    using enum Choice::Entry;
    for (auto it = overrides_.rbegin(); it != overrides_.rend(); ++it) {
        if (fnmatch(it->first.c_str(), path.c_str(), 0) != 0 && (alias.empty() || fnmatch(it->first.c_str(), alias.c_str(), 0) != 0)) continue;
        if (!it->second) return {std::nullopt, denied};
        if (cols % it->second->group != 0)
            fail("{} has rows of {} numbers, which are no whole groups of {} as '{}' wants", path, cols, it->second->group, it->first);
        return {it->second, parameters};
    }
    if (plain_ || cols % base_.group != 0) return {};
    if (high_bits_ > 0) {
        MlxFormat format = base_;
        const bool wide = wider(layer_of(path), static_cast<int>(spec.layers.size()));
        if (holds(path, "lm_head") || (wide && (holds(path, "v_proj") || holds(path, "down_proj")))) format.bits = high_bits_;
        return {format, parameters};
    }
    if (routes(path, spec)) return cols % 64 == 0 ? Choice{MlxFormat{MlxMode::affine, 8, 64}, parameters_without_mode} : Choice{std::nullopt, denied};
    return {base_, none};
}

}  // namespace forge::mlx
