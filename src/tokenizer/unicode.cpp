#include "unicode.h"

#include <algorithm>

namespace forge::unicode {
namespace {

template <typename R>
const R* find_range(const R* begin, const R* end, char32_t c) {
    const R* r = std::upper_bound(begin, end, c, [](char32_t v, const R& x) { return v < x.first; });
    if (r == begin) return nullptr;
    --r;
    return c <= r->last ? r : nullptr;
}

template <typename R, std::size_t N>
bool in(const R (&ranges)[N], char32_t c) {
    return find_range(ranges, ranges + N, c) != nullptr;
}

}  // namespace

Decoded decode(std::string_view text, std::size_t at) {
    auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(text[at + i]); };
    std::size_t left = text.size() - at;
    unsigned lead = byte(0);
    if (lead < 0x80) return {lead, 1, true, false};
    // Allowed range of the second byte; the rest are 80..BF (Unicode table 3-7).
    unsigned low = 0x80, high = 0xBF;
    std::uint32_t length;
    if (lead >= 0xC2 && lead <= 0xDF) {
        length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        length = 3;
        if (lead == 0xE0) low = 0xA0;
        if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        length = 4;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F;
    } else {
        return {kReplacement, 1, false, false};
    }
    char32_t value = lead & (0x7F >> length);
    for (std::uint32_t i = 1; i < length; ++i) {
        if (i >= left) return {kReplacement, i, false, true};
        unsigned b = byte(i);
        if (b < low || b > high) return {kReplacement, i, false, false};
        low = 0x80, high = 0xBF;
        value = value << 6 | (b & 0x3F);
    }
    return {value, length, true, false};
}

void append(std::string& out, char32_t c) {
    auto push = [&](char32_t b) { out.push_back(static_cast<char>(static_cast<unsigned char>(b))); };
    if (c < 0x80) {
        push(c);
    } else if (c < 0x800) {
        push(0xC0 | c >> 6), push(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        push(0xE0 | c >> 12), push(0x80 | (c >> 6 & 0x3F)), push(0x80 | (c & 0x3F));
    } else {
        push(0xF0 | c >> 18), push(0x80 | (c >> 12 & 0x3F)), push(0x80 | (c >> 6 & 0x3F)),
            push(0x80 | (c & 0x3F));
    }
}

bool is_valid(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        if (static_cast<unsigned char>(text[i]) < 0x80) {
            ++i;
            continue;
        }
        Decoded d = decode(text, i);
        if (!d.valid) return false;
        i += d.length;
    }
    return true;
}

std::string replace_invalid(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        Decoded d = decode(text, i);
        if (d.valid) {
            out.append(text.substr(i, d.length));
        } else {
            append(out, kReplacement);
        }
        i += d.length;
    }
    return out;
}

Category category(char32_t c) {
    const CategoryRange* r = find_range(kCategoryRanges, kCategoryRanges + kCategoryRangeCount, c);
    return r ? r->category : Category::Cn;
}

bool is_white_space(char32_t c) { return in(kWhiteSpace, c); }

bool is_word(char32_t c) {
    switch (category(c)) {
        case Category::Lu:
        case Category::Ll:
        case Category::Lt:
        case Category::Lm:
        case Category::Lo:
        case Category::Mn:
        case Category::Mc:
        case Category::Me:
        case Category::Nd:
        case Category::Nl:
        case Category::Pc:
            return true;
        default:
            return c == 0x200C || c == 0x200D || in(kAlphabeticSymbols, c);
    }
}

bool is_numeric(char32_t c) {
    Category k = category(c);
    return k == Category::Nd || k == Category::Nl || k == Category::No || in(kNumericOf17, c);
}

bool is_younger_than_9(char32_t c) {
    return find_range(kYoungerThan9, kYoungerThan9 + kYoungerThan9Count, c) != nullptr;
}

}  // namespace forge::unicode
