#include "jinja/unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace forge::jinja {
namespace {

struct CodeRange {
    char32_t first, last;
};
// c in {first, first + step, ..., last} maps to c + delta.
struct CaseRun {
    char32_t first, last;
    std::uint32_t step;
    std::int32_t delta;
};
struct CaseMany {
    char32_t from;
    char32_t to[3];  // zero-padded
};

#include "jinja/unicode_tables.inc"

template <std::size_t N>
bool contains(const CodeRange (&table)[N], char32_t c) {
    auto it = std::upper_bound(std::begin(table), std::end(table), c,
                               [](char32_t x, const CodeRange& r) { return x < r.first; });
    return it != std::begin(table) && c <= std::prev(it)->last;
}

template <std::size_t N, std::size_t M>
void append_mapped(std::string& out, const CaseRun (&runs)[N], const CaseMany (&many)[M], char32_t c) {
    for (const CaseMany& m : many) {
        if (m.from != c) continue;
        for (char32_t t : m.to)
            if (t) append_code_point(out, t);
        return;
    }
    // Runs with step 2 may interleave with others, so look back over a few of them.
    auto it = std::upper_bound(std::begin(runs), std::end(runs), c,
                               [](char32_t x, const CaseRun& r) { return x < r.first; });
    for (int back = 0; back < 4 && it != std::begin(runs); ++back) {
        --it;
        if (c <= it->last && (c - it->first) % it->step == 0) {
            append_code_point(out, static_cast<char32_t>(static_cast<std::int64_t>(c) + it->delta));
            return;
        }
    }
    append_code_point(out, c);
}

void append_upper(std::string& out, char32_t c) {
    if (c < 0x80)
        out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    else
        append_mapped(out, upper_runs, upper_many, c);
}
void append_lower(std::string& out, char32_t c) {
    if (c < 0x80)
        out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    else
        append_mapped(out, lower_runs, lower_many, c);
}
void append_title(std::string& out, char32_t c) {
    if (c < 0x80)
        append_upper(out, c);
    else
        append_mapped(out, title_runs, title_many, c);
}

bool is_cased(char32_t c) { return is_upper_case(c) || is_lower_case(c) || is_title_case(c); }

// U+03A3 becomes the final form after a letter and before no letter.
bool is_final_sigma(std::string_view text, std::size_t at, std::size_t after) {
    bool letter_before = false;
    for (std::size_t i = at; i > 0;) {
        do --i;
        while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80);
        std::size_t p = i;
        const char32_t c = next_code_point(text, p);
        if (contains(ignorable, c)) continue;
        letter_before = is_cased(c);
        break;
    }
    if (!letter_before) return false;
    for (std::size_t i = after; i < text.size();) {
        const char32_t c = next_code_point(text, i);
        if (contains(ignorable, c)) continue;
        return !is_cased(c);
    }
    return true;
}

void append_lower_at(std::string& out, std::string_view text, char32_t c, std::size_t at, std::size_t after) {
    if (c == 0x3a3)
        append_code_point(out, is_final_sigma(text, at, after) ? 0x3c2 : 0x3c3);
    else
        append_lower(out, c);
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& position) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const std::size_t left = text.size() - position;
    const unsigned char b = byte(position);
    if (b < 0x80) {
        ++position;
        return b;
    }
    const auto tail = [&](std::size_t i) { return i < left && (byte(position + i) & 0xc0) == 0x80; };
    if (b >= 0xc2 && b <= 0xdf && tail(1)) {
        const char32_t c = (b & 0x1fu) << 6 | (byte(position + 1) & 0x3fu);
        position += 2;
        return c;
    }
    if (b >= 0xe0 && b <= 0xef && tail(1) && tail(2)) {
        const char32_t c =
            (b & 0x0fu) << 12 | (byte(position + 1) & 0x3fu) << 6 | (byte(position + 2) & 0x3fu);
        if (c >= 0x800 && (c < 0xd800 || c > 0xdfff)) {
            position += 3;
            return c;
        }
    }
    if (b >= 0xf0 && b <= 0xf4 && tail(1) && tail(2) && tail(3)) {
        const char32_t c = (b & 0x07u) << 18 | (byte(position + 1) & 0x3fu) << 12 |
                           (byte(position + 2) & 0x3fu) << 6 | (byte(position + 3) & 0x3fu);
        if (c >= 0x10000 && c <= 0x10ffff) {
            position += 4;
            return c;
        }
    }
    ++position;
    return 0xfffd;
}

void append_code_point(std::string& out, char32_t c) {
    if ((c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff) c = 0xfffd;
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += static_cast<char>(0xc0 | c >> 6);
        out += static_cast<char>(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        out += static_cast<char>(0xe0 | c >> 12);
        out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (c & 0x3f));
    } else {
        out += static_cast<char>(0xf0 | c >> 18);
        out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
        out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (c & 0x3f));
    }
}

std::string valid_utf8(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) append_code_point(out, next_code_point(text, i));
    return out;
}

bool is_ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::size_t code_point_count(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::size_t code_point_offset(std::string_view text, std::size_t index) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        if ((static_cast<unsigned char>(text[i]) & 0xc0) == 0x80) continue;
        if (index == 0) return i;
        --index;
    }
    return text.size();
}

bool is_space(char32_t c) {
    if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}
bool is_printable(char32_t c) { return !contains(unprintable, c); }
bool is_alpha(char32_t c) { return contains(alpha, c); }
bool is_decimal(char32_t c) { return contains(decimal, c); }
bool is_digit(char32_t c) { return contains(digit, c); }
bool is_numeric(char32_t c) { return contains(numeric, c); }
bool is_identifier_part(char32_t c) { return contains(identifier, c); }
bool is_upper_case(char32_t c) { return contains(is_upper, c); }
bool is_lower_case(char32_t c) { return contains(is_lower, c); }
bool is_title_case(char32_t c) { return contains(is_title, c); }

std::string to_upper(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) append_upper(out, next_code_point(text, i));
    return out;
}

std::string to_lower(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t at = i;
        const char32_t c = next_code_point(text, i);
        append_lower_at(out, text, c, at, i);
    }
    return out;
}

std::string to_title(std::string_view text) {
    std::string out;
    bool inside_word = false;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t at = i;
        const char32_t c = next_code_point(text, i);
        if (inside_word)
            append_lower_at(out, text, c, at, i);
        else
            append_title(out, c);
        inside_word = is_cased(c);
    }
    return out;
}

std::string to_capitalized(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t at = i;
        const char32_t c = next_code_point(text, i);
        if (at == 0)
            append_title(out, c);
        else
            append_lower_at(out, text, c, at, i);
    }
    return out;
}

namespace {
template <typename Drop>
std::string_view strip_if(std::string_view text, bool left, bool right, Drop drop) {
    while (left && !text.empty()) {
        std::size_t p = 0;
        if (!drop(next_code_point(text, p))) break;
        text.remove_prefix(p);
    }
    while (right && !text.empty()) {
        std::size_t start = text.size() - 1;
        while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
        std::size_t p = start;
        if (!drop(next_code_point(text, p))) break;
        text.remove_suffix(text.size() - start);
    }
    return text;
}
}  // namespace

std::string_view strip(std::string_view text, bool left, bool right) {
    return strip_if(text, left, right, is_space);
}

std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right) {
    std::u32string set;
    for (std::size_t i = 0; i < characters.size();) set += next_code_point(characters, i);
    return strip_if(text, left, right, [&](char32_t c) { return set.find(c) != std::u32string::npos; });
}

}  // namespace forge::jinja
