#include "byte_alphabet.h"

#include "unicode.h"

namespace forge::byte_alphabet {
namespace {

constexpr char32_t kEnd = 0x144;  // all mapped code points are below

struct Tables {
    std::array<char32_t, 256> to{};
    std::array<std::string, 256> utf8;
    std::array<int, kEnd> from{};
    Tables() {
        from.fill(-1);
        char32_t next = 0x100;
        for (unsigned b = 0; b < 256; ++b) {
            bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
            to[b] = itself ? b : next++;
            from[to[b]] = static_cast<int>(b);
            unicode::append(utf8[b], to[b]);
        }
    }
};

const Tables& tables() {
    static const Tables t;
    return t;
}

}  // namespace

const std::array<char32_t, 256>& code_points() { return tables().to; }

int byte_of(char32_t c) { return c < kEnd ? tables().from[c] : -1; }

void append_mapped(std::string& out, std::string_view bytes) {
    const Tables& t = tables();
    for (char c : bytes) out += t.utf8[static_cast<unsigned char>(c)];
}

void append_unmapped(std::string& out, std::string_view token) {
    std::size_t before = out.size();
    for (std::size_t i = 0; i < token.size();) {
        unicode::Decoded d = unicode::decode(token, i);
        int b = d.valid ? byte_of(d.code_point) : -1;
        if (b < 0) {
            out.resize(before);
            out.append(token);
            return;
        }
        out.push_back(static_cast<char>(b));
        i += d.length;
    }
}

}  // namespace forge::byte_alphabet
