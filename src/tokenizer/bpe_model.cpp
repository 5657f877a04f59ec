#include "bpe_model.h"

#include "base/error.h"
#include "unicode.h"
#include "vocabulary.h"

namespace forge {

BpeModel::BpeModel(StringIds ids, BpeOptions options, std::string_view where)
    : ids_(std::move(ids)), options_(options), where_(where) {
    if (options_.byte_fallback) {
        byte_ids_.resize(256);
        for (unsigned b = 0; b < 256; ++b)
            byte_ids_[b] = ids_.find(byte_token_text(static_cast<std::uint8_t>(b)));
    }
    low_ids_.resize(0x180);
    for (char32_t c = 0; c < low_ids_.size(); ++c) {
        std::string text;
        unicode::append(text, c);
        low_ids_[c] = ids_.find(text);
    }
}

void BpeModel::reserve_merges(std::size_t count) {
    std::size_t size = 64;
    while (size < count * 3 / 2) size *= 2;
    if (size > slots_.size()) {
        std::vector<Slot> old(size);
        old.swap(slots_);
        for (const Slot& s : old)
            if (s.pair != kFree) insert(s.pair, s.merge);
    }
}

void BpeModel::insert(std::uint64_t pair, Merge merge) {
    std::size_t mask = slots_.size() - 1, slot = hash_pair(pair) & mask;
    while (slots_[slot].pair != kFree && slots_[slot].pair != pair) slot = (slot + 1) & mask;
    slots_[slot] = {pair, merge};  // of two equal merges the later one counts, as in the reference
}

void BpeModel::add_merge(std::string_view left, std::string_view right) {
    std::string joined(left);
    joined += right;
    auto id_of = [&](std::string_view text) {
        std::int32_t id = ids_.find(text);
        if (id < 0)
            fail("{}: merge {} (\"{}\" and \"{}\") needs the token \"{}\", which the vocabulary lacks.",
                 where_, next_rank_, left, right, text);
        return id;
    };
    std::int32_t a = id_of(left), b = id_of(right), c = id_of(joined);
    if (++merge_count_ * 3 > slots_.size() * 2) reserve_merges(merge_count_ * 2);
    insert(std::uint64_t{static_cast<std::uint32_t>(a)} << 32 | static_cast<std::uint32_t>(b),
           {next_rank_, c});
    ++next_rank_;
    borders_.note_merge(left, right);
    auto special = [&](std::int32_t id, std::string_view text) {
        return id == options_.unknown || (options_.byte_fallback && byte_token_value(text));
    };
    joins_special_ = joins_special_ || special(a, left) || special(b, right);
}

void BpeModel::finish() {
    // A dropped character would let its neighbours merge across a border.
    bool drops = !options_.unknown && !options_.byte_fallback;
    for (std::int32_t id : byte_ids_) drops = drops || (!options_.unknown && id < 0);
    if (!drops && !joins_special_ && !options_.ignore_merges && ids_.find(kEscapedSpace) >= 0)
        borders_.enable();
}

std::optional<Merge> BpeModel::find_merge(std::int32_t left, std::int32_t right) const {
    if (slots_.empty()) return std::nullopt;
    std::uint64_t pair =
        std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
    std::size_t mask = slots_.size() - 1, slot = hash_pair(pair) & mask;
    while (slots_[slot].pair != kFree) {
        if (slots_[slot].pair == pair) return slots_[slot].merge;
        slot = (slot + 1) & mask;
    }
    return std::nullopt;
}

void BpeModel::encode(std::string_view word, MergeScratch& s, std::vector<std::int32_t>& out) const {
    if (options_.ignore_merges) {
        std::int32_t id = (own_whole_words_ ? whole_words_ : ids_).find(word);
        if (id >= 0) return out.push_back(id);
    }
    s.start();
    // An unknown character is held back, because the next one may fuse with it.
    // Byte tokens do not flush it: the reference emits them before it.
    bool pending = false;
    std::uint32_t pending_begin = 0, pending_length = 0;
    auto flush = [&] {
        if (pending) s.push_symbol(*options_.unknown, pending_begin, pending_length);
        pending = false;
    };
    for (std::uint32_t at = 0; at < word.size();) {
        std::uint32_t length;
        char32_t c = unicode::decode_valid(word, at, length);
        std::int32_t id = c < low_ids_.size() ? low_ids_[c] : ids_.find(word.substr(at, length));
        if (id >= 0) {
            flush();
            s.push_symbol(id, at, length);
            at += length;
            continue;
        }
        bool bytes = options_.byte_fallback;
        for (std::uint32_t i = 0; bytes && i < length; ++i)
            bytes = byte_ids_[static_cast<unsigned char>(word[at + i])] >= 0;
        if (bytes) {
            for (std::uint32_t i = 0; i < length; ++i)
                s.push_symbol(byte_ids_[static_cast<unsigned char>(word[at + i])], at + i, 1);
        } else if (options_.unknown) {
            if (pending && options_.fuse_unknown) {
                pending_length += length;
            } else {
                flush();
                pending = true, pending_begin = at, pending_length = length;
            }
        }
        at += length;
    }
    flush();
    if (s.symbols.empty()) return;
    run_merges(s, [&](const Symbol& a, const Symbol& b) { return find_merge(a.id, b.id); });
    for (std::int32_t i = 0; i >= 0; i = s.symbols[static_cast<std::size_t>(i)].next)
        out.push_back(s.symbols[static_cast<std::size_t>(i)].id);
}

void RankModel::encode(std::string_view word, MergeScratch& s, std::vector<std::int32_t>& out) const {
    if (ignore_merges_) {
        std::int32_t id = ids_.find(word);
        if (id >= 0) return out.push_back(id);
    }
    s.start();
    for (std::uint32_t at = 0; at < word.size();) {
        std::uint32_t length = unicode::sequence_length(word[at]);
        std::int32_t id = ids_.find(word.substr(at, length));
        if (id >= 0) s.push_symbol(id, at, length);  // the loader has checked that all 256 bytes are there
        at += length;
    }
    if (s.symbols.empty()) return;
    run_merges(s, [&](const Symbol& a, const Symbol& b) -> std::optional<Merge> {
        std::int32_t id = ids_.find(word.substr(a.begin, a.length + b.length));
        if (id < 0) return std::nullopt;
        return Merge{static_cast<std::uint32_t>(id), id};
    });
    for (std::int32_t i = 0; i >= 0; i = s.symbols[static_cast<std::size_t>(i)].next)
        out.push_back(s.symbols[static_cast<std::size_t>(i)].id);
}

}  // namespace forge
