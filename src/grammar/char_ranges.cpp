#include "char_ranges.h"

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/tokenizer.h"

namespace forge::grammar {

void normalize(Ranges& ranges) {
    Ranges cut;
    for (const Range& r : ranges) {   // without surrogates
        if (r.lo > r.hi) continue;
        if (r.lo < 0xD800) cut.push_back({r.lo, std::min(r.hi, 0xD7FFu)});
        if (r.hi > 0xDFFF) cut.push_back({std::max(r.lo, 0xE000u), std::min(r.hi, last_code_point)});
    }
    std::erase_if(cut, [](const Range& r) { return r.lo > r.hi; });
    std::sort(cut.begin(), cut.end());
    ranges.clear();
    for (const Range& r : cut) {
        if (!ranges.empty() && r.lo <= ranges.back().hi + 1) ranges.back().hi = std::max(ranges.back().hi, r.hi);
        else ranges.push_back(r);
    }
}

Ranges complement(const Ranges& ranges) {
    Ranges sorted = ranges, out;
    normalize(sorted);
    std::uint32_t next = 0;
    for (const Range& r : sorted) {
        if (r.lo > next) out.push_back({next, r.lo - 1});
        next = r.hi + 1;
    }
    if (next <= last_code_point) out.push_back({next, last_code_point});
    normalize(out);
    return out;
}

std::string utf8(std::uint32_t c) {
    std::string out;
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += static_cast<char>(0xC0 | c >> 6);
        out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        out += static_cast<char>(0xE0 | c >> 12);
        out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
        out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
        out += static_cast<char>(0xF0 | c >> 18);
        out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
        out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
        out += static_cast<char>(0x80 | (c & 0x3F));
    }
    return out;
}

std::string json_character(std::uint32_t c) {
    switch (c) {
        case '"': return "\\\"";
        case '\\': return "\\\\";
        case '\b': return "\\b";
        case '\f': return "\\f";
        case '\n': return "\\n";
        case '\r': return "\\r";
        case '\t': return "\\t";
        default: return c < 0x20 ? fmt::format("\\u{:04x}", c) : utf8(c);
    }
}

std::string json_string(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) out += static_cast<signed char>(c) < 0 ? std::string(1, c) : json_character(static_cast<std::uint32_t>(c));
    return out + '"';
}

NodeId CharacterEdges::rest(int count, NodeId to) {
    if (count == 0) return to;
    const auto [it, added] = rests_.try_emplace({count, to}, 0);
    if (added) {
        const NodeId next = rest(count - 1, to);
        const NodeId node = builder_.node();
        builder_.bytes(node, 0x80, 0xBF, next);
        rests_[{count, to}] = node;
        return node;
    }
    return it->second;
}

void CharacterEdges::sequence(NodeId from, const std::vector<Range>& bytes, NodeId to) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool free_rest = std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(i) + 1, bytes.end(), [](const Range& r) { return r.lo == 0x80 && r.hi == 0xBF; });
        const NodeId next = free_rest ? rest(static_cast<int>(bytes.size() - i - 1), to) : builder_.node();
        builder_.bytes(from, static_cast<unsigned char>(bytes[i].lo), static_cast<unsigned char>(bytes[i].hi), next);
        if (free_rest) return;
        from = next;
    }
}

// Cuts the range where the UTF-8 length or a byte other than the last changes its free part.
void CharacterEdges::add_utf8(NodeId from, Range r, NodeId to) {
    for (const std::uint32_t limit : {0x7Fu, 0x7FFu, 0xFFFFu}) {
        if (r.lo <= limit && r.hi > limit) {
            add_utf8(from, {r.lo, limit}, to);
            add_utf8(from, {limit + 1, r.hi}, to);
            return;
        }
    }
    for (int i = 1; i < 4; ++i) {
        const std::uint32_t m = (1u << (6 * i)) - 1;
        if ((r.lo & ~m) == (r.hi & ~m)) continue;
        if (r.hi <= 0x7F) break;
        if ((r.lo & m) != 0) {
            add_utf8(from, {r.lo, r.lo | m}, to);
            add_utf8(from, {(r.lo | m) + 1, r.hi}, to);
            return;
        }
        if ((r.hi & m) != m) {
            add_utf8(from, {r.lo, (r.hi & ~m) - 1}, to);
            add_utf8(from, {r.hi & ~m, r.hi}, to);
            return;
        }
    }
    const std::string lo = utf8(r.lo), hi = utf8(r.hi);
    std::vector<Range> bytes;
    for (std::size_t i = 0; i < lo.size(); ++i) bytes.push_back({static_cast<unsigned char>(lo[i]), static_cast<unsigned char>(hi[i])});
    sequence(from, bytes, to);
}

void CharacterEdges::add(NodeId from, const Ranges& ranges, NodeId to) {
    if (!json_) {
        for (const Range& r : ranges) add_utf8(from, r, to);
        return;
    }
    for (const Range& r : ranges) {
        std::uint32_t next = r.lo;
        for (std::uint32_t c = r.lo; c <= std::min(r.hi, std::uint32_t{'\\'}); ++c) {
            if (c >= 0x20 && c != '"' && c != '\\') continue;
            if (next < c) add_utf8(from, {next, c - 1}, to);
            const std::string escape = json_character(c);
            const NodeId before = builder_.literal(from, std::string_view(escape).substr(0, escape.size() - 1));
            builder_.bytes(before, static_cast<unsigned char>(escape.back()), static_cast<unsigned char>(escape.back()), to);
            next = c + 1;
        }
        if (next <= r.hi) add_utf8(from, {next, r.hi}, to);
    }
}

}  // namespace forge::grammar
