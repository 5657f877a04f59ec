#include "grammar/string_tokens.h"

#include <algorithm>
#include <map>

#include "text_step.h"

namespace forge {

StringTokens::StringTokens(const std::vector<std::string>& bytes, const Grammar::Text& text) {
    const std::size_t words = (bytes.size() + 31) / 32;
    std::map<std::string, std::vector<Token>> groups;
    std::vector<std::pair<std::string, std::uint32_t>> whole;
    after_first.assign(words, 0);
    for (std::uint32_t id = 0; id < bytes.size(); ++id) {
        const std::string& token = bytes[id];
        std::uint8_t state = grammar::text_ground;
        std::uint32_t characters = 0;
        std::size_t i = 0;
        grammar::TextStep step{grammar::TextStep::inside, 0, false};
        for (; i < token.size() && step.kind == grammar::TextStep::inside; ++i) {
            step = grammar::text_step(text, state, static_cast<unsigned char>(token[i]));
            state = step.state;
            characters += step.begins;
        }
        if (token.empty() || step.kind == grammar::TextStep::dead) continue;
        if (step.kind == grammar::TextStep::closed) whole.emplace_back(token, id);
        if (step.kind == grammar::TextStep::inside) inside.push_back({characters, id});
        else if (i == token.size()) closing_exactly.push_back({characters, id});
        else groups[token.substr(i)].push_back({characters, id});
        if (text.between_specials() && static_cast<unsigned char>(token[0]) == text.second) after_first[id / 32] |= 1u << (id % 32);
    }
    std::stable_sort(inside.begin(), inside.end(), [](const Token& a, const Token& b) { return a.characters < b.characters; });
    inside_all.assign(words, 0);
    for (std::uint32_t n = 0, next = 0; n <= most_characters; ++n) {
        for (; next < inside.size() && inside[next].characters <= n; ++next) inside_all[inside[next].id / 32] |= 1u << (inside[next].id % 32);
        inside_masks.push_back(inside_all);
    }
    for (const Token& t : inside) inside_all[t.id / 32] |= 1u << (t.id % 32);
    std::vector<std::pair<std::string, std::uint32_t>> suffixes;
    for (auto& [suffix, tokens] : groups) {
        suffixes.emplace_back(suffix, static_cast<std::uint32_t>(closing.size()));
        closing.push_back(std::move(tokens));
    }
    after = ByteTrie::build(std::move(suffixes));
    closing_whole = ByteTrie::build(std::move(whole));
}

}  // namespace forge
