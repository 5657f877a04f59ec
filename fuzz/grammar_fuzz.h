// What a grammar does with a small vocabulary: masks, and the tokens that they allow.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "grammar/matcher.h"

inline void follow(forge::Grammar compiled) {
    static const auto vocabulary = [] {
        std::vector<std::string> tokens;
        for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
        for (const char* t : {"{\"", "\":", "\",\"", "ab", "\\u00", "1.5", "null", "}]", "\xC3\xA4z", "\xE6\x97"}) tokens.emplace_back(t);
        tokens.emplace_back();
        const auto end = static_cast<std::int32_t>(tokens.size() - 1);
        tokens.emplace_back("<|q|>");   // a special token
        return std::make_shared<const forge::Vocabulary>(std::move(tokens), std::vector<std::int32_t>{end}, std::vector<std::int32_t>{end + 1});
    }();
    forge::Matcher matcher(std::make_shared<const forge::Grammar>(std::move(compiled)), vocabulary);
    for (unsigned n = 0; n < 12 && !matcher.finished(); ++n) {
        const std::uint32_t* mask = matcher.mask();
        std::vector<std::int32_t> allowed;
        for (std::int32_t id = 0; id < static_cast<std::int32_t>(vocabulary->size()); ++id)
            if (mask[id / 32] >> (id % 32) & 1) allowed.push_back(id);
        if (allowed.empty()) __builtin_trap();   // every state of a grammar leads to an end
        const std::int32_t id = allowed[(n * 7919u + 3) % allowed.size()];
        if (vocabulary->bytes(id).empty()) break;
        if (!matcher.accept(id)) __builtin_trap();   // what the mask has fits
        matcher.forced_text();
    }
}
