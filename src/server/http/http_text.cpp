#include "base/error.h"
#include "http.h"

namespace forge::http {

std::string_view Request::header(std::string_view name) const {
    for (const auto& [key, value] : headers)
        if (key == name) return value;
    return {};
}

bool is_loopback(std::string_view host) {
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    return host == "localhost" || host == "::1" || (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos);
}

std::string percent_decoded(std::string_view text, bool plus_is_space) {
    const auto digit = [&](std::size_t i) {
        const char c = i < text.size() ? text[i] : ' ';
        if (c >= '0' && c <= '9') return c - '0';
        if (c >= 'a' && c <= 'f') return c - 'a' + 10;
        if (c >= 'A' && c <= 'F') return c - 'A' + 10;
        fail("the target of the request has a % without two hexadecimal digits after it");
    };
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '%') {
            out += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
            i += 2;
        } else {
            out += plus_is_space && text[i] == '+' ? ' ' : text[i];
        }
    }
    return out;
}

}  // namespace forge::http
