#include "spm_model.h"

#include <bit>
#include <unordered_map>

#include "unicode.h"

namespace forge {
namespace {

// Orders floats descending as unsigned integers: the highest score gets the lowest rank.
std::uint32_t rank_of(float score) {
    auto bits = std::bit_cast<std::uint32_t>(score == 0.0f ? 0.0f : score);  // -0 and 0 are equal
    std::uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

}  // namespace

SpmModel::SpmModel(StringIds ids, std::vector<float> scores, std::vector<std::int32_t> byte_ids,
                   std::vector<bool> unused, std::optional<std::int32_t> unknown)
    : ids_(std::move(ids)), byte_ids_(std::move(byte_ids)), unused_(std::move(unused)), unknown_(unknown) {
    ranks_.reserve(scores.size());
    for (float s : scores) ranks_.push_back(rank_of(s));
    for (bool u : unused_) any_unused_ = any_unused_ || u;
    if (ids_.find(kEscapedSpace) >= 0) borders_.enable();
}

void SpmModel::encode_bytes(std::string_view text, std::vector<std::int32_t>& out,
                            bool& after_unknown) const {
    bool all = !byte_ids_.empty();
    for (char c : text) all = all && byte_ids_[static_cast<unsigned char>(c)] >= 0;
    if (all) {
        for (char c : text) out.push_back(byte_ids_[static_cast<unsigned char>(c)]);
        after_unknown = false;
    } else if (unknown_) {
        if (!after_unknown) out.push_back(*unknown_);  // neighbouring unknown characters are one token
        after_unknown = true;
    }
}

void SpmModel::encode(std::string_view word, MergeScratch& s, std::vector<std::int32_t>& out) const {
    s.start();
    for (std::uint32_t at = 0; at < word.size();) {
        std::uint32_t length = unicode::sequence_length(word[at]);
        s.push_symbol(ids_.find(word.substr(at, length)), at, length);
        at += length;
    }
    // How an unused token came about: its id at a place -> length of its left part.
    std::unordered_map<std::uint64_t, std::uint32_t> left_part;
    auto key = [](std::uint32_t begin, std::uint32_t length) { return std::uint64_t{begin} << 32 | length; };
    run_merges(s, [&](const Symbol& a, const Symbol& b) -> std::optional<Merge> {
        std::int32_t id = ids_.find(word.substr(a.begin, a.length + b.length));
        if (id < 0) return std::nullopt;
        if (any_unused_ && unused_[static_cast<std::size_t>(id)])
            left_part[key(a.begin, a.length + b.length)] = a.length;
        return Merge{ranks_[static_cast<std::size_t>(id)], id};
    });

    bool after_unknown = false;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> parts;  // stack of {begin, length}
    for (std::int32_t i = 0; i >= 0; i = s.symbols[static_cast<std::size_t>(i)].next) {
        const Symbol& symbol = s.symbols[static_cast<std::size_t>(i)];
        if (symbol.id >= 0 && !(any_unused_ && unused_[static_cast<std::size_t>(symbol.id)])) {
            out.push_back(symbol.id);
            after_unknown = false;
            continue;
        }
        parts.assign(1, {symbol.begin, symbol.length});
        while (!parts.empty()) {
            auto [begin, length] = parts.back();
            parts.pop_back();
            std::string_view text = word.substr(begin, length);
            std::int32_t id = ids_.find(text);
            if (id >= 0 && any_unused_ && unused_[static_cast<std::size_t>(id)]) {
                auto split = left_part.find(key(begin, length));
                if (split != left_part.end()) {
                    parts.push_back({begin + split->second, length - split->second});
                    parts.push_back({begin, split->second});
                    continue;
                }
            }
            if (id >= 0) {
                out.push_back(id);
                after_unknown = false;
            } else {
                encode_bytes(text, out, after_unknown);
            }
        }
    }
}

}  // namespace forge
