#include "text_step.h"

#include <array>

namespace forge::grammar {
namespace {

enum State : std::uint8_t {
    ground,
    more1, more2, more3,                // continuation bytes to come
    after_e0, after_ed, after_f0, after_f4,   // whose second byte has a narrower range (Unicode table 3-7)
    escape,                             // after a backslash
    hex4, hex3, hex2, hex1,             // digits of \u to come
    after_d,                            // \ud..: perhaps a surrogate
    high2, high1,                       // digits of the first half to come
    low_backslash, low_u, low_d, low_c, // the second half: \u d c..f
    states,
};
static_assert(ground == text_ground && states == text_after_first);

bool is_hex(unsigned char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

TextStep to(std::uint8_t state, bool begins = false) { return {TextStep::inside, state, begins}; }

// UTF-8 alone (`ground`: between two characters).
TextStep utf8_step(std::uint8_t state, unsigned char c) {
    const auto when = [&](bool ok, State s) { return ok ? to(s) : TextStep{}; };
    const auto within = [&](unsigned char lo, unsigned char hi) { return c >= lo && c <= hi; };
    switch (state) {
        case ground:
            if (c <= 0x7F) return to(ground, true);
            if (within(0xC2, 0xDF)) return to(more1, true);
            if (c == 0xE0) return to(after_e0, true);
            if (c == 0xED) return to(after_ed, true);
            if (within(0xE1, 0xEF)) return to(more2, true);
            if (c == 0xF0) return to(after_f0, true);
            if (within(0xF1, 0xF3)) return to(more3, true);
            if (c == 0xF4) return to(after_f4, true);
            return {};
        case more1: return when(within(0x80, 0xBF), ground);
        case more2: return when(within(0x80, 0xBF), more1);
        case more3: return when(within(0x80, 0xBF), more2);
        case after_e0: return when(within(0xA0, 0xBF), more1);
        case after_ed: return when(within(0x80, 0x9F), more1);
        case after_f0: return when(within(0x90, 0xBF), more2);
        case after_f4: return when(within(0x80, 0x8F), more2);
        default: return {};
    }
}

TextStep json_step(std::uint8_t state, unsigned char c) {
    const auto when = [&](bool ok, State s) { return ok ? to(s) : TextStep{}; };
    const auto within = [&](unsigned char lo, unsigned char hi) { return c >= lo && c <= hi; };
    switch (state) {
        case ground:
            if (c == '"') return {TextStep::closed, 0, false};
            if (c == '\\') return to(escape, true);
            return c < 0x20 ? TextStep{} : utf8_step(state, c);
        case escape:
            if (c == 'u') return to(hex4);
            return when(c == '"' || c == '\\' || c == '/' || c == 'b' || c == 'f' || c == 'n' || c == 'r' || c == 't', ground);
        case hex4: return c == 'd' || c == 'D' ? to(after_d) : when(is_hex(c), hex3);
        case hex3: return when(is_hex(c), hex2);
        case hex2: return when(is_hex(c), hex1);
        case hex1: return when(is_hex(c), ground);
        case after_d:
            if (within('0', '7')) return to(hex2);
            return when(c == '8' || c == '9' || c == 'a' || c == 'b' || c == 'A' || c == 'B', high2);
        case high2: return when(is_hex(c), high1);
        case high1: return when(is_hex(c), low_backslash);
        case low_backslash: return when(c == '\\', low_u);
        case low_u: return when(c == 'u', low_d);
        case low_d: return when(c == 'd' || c == 'D', low_c);
        case low_c: return when(within('c', 'f') || within('C', 'F'), hex2);
        default: return utf8_step(state, c);
    }
}

// What stands between special tokens stands as it is; `second` never follows `first`, so that nobody reads a quote in it.
TextStep plain_step(const Grammar::Text& text, std::uint8_t state, unsigned char c) {
    if (between_characters(state)) {
        if (c == closing_byte(text)) return {TextStep::closed, 0, false};
        if (c == text.first) return to(text_after_first, true);
        if (state == text_after_first && c == text.second) return {};
        state = ground;
    }
    return utf8_step(state, c);
}

}  // namespace

TextStep text_step(const Grammar::Text& text, std::uint8_t state, unsigned char byte) {
    static const auto table = [] {
        std::array<std::array<TextStep, 256>, states> t;
        for (std::uint8_t s = 0; s < states; ++s)
            for (unsigned c = 0; c < 256; ++c) t[s][c] = json_step(s, static_cast<unsigned char>(c));
        return t;
    }();
    return text.between_specials() ? plain_step(text, state, byte) : table[state][byte];
}

}  // namespace forge::grammar
