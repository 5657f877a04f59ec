#include "transport/url.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace forge {
namespace {

int default_port(std::string_view scheme) { return scheme == "https" ? 443 : 80; }

// Control characters and spaces have no place in a URL; a newline would end a header.
void check_characters(std::string_view text) {
    for (const char c : text)
        if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) fail("the URL {} holds a space or a control character", shown_url(text));
}

}  // namespace

std::string Url::origin() const {
    return port == default_port(scheme) ? fmt::format("{}://{}", scheme, host) : fmt::format("{}://{}:{}", scheme, host, port);
}

bool Url::loopback() const {
    if (host == "localhost" || host == "[::1]") return true;
    if (!host.starts_with("127.")) return false;
    return host.find_first_not_of("0123456789.") == std::string::npos;
}

Url parse_url(std::string_view text) {
    check_characters(text);
    Url url;
    const std::size_t colon = text.find("://");
    if (colon == std::string_view::npos) fail("{} is no URL: http:// or https:// is wanted", shown_url(text));
    url.scheme = ascii_lower(text.substr(0, colon));
    if (url.scheme != "http" && url.scheme != "https") fail("{}: the scheme should be http or https", shown_url(text));
    std::string_view rest = text.substr(colon + 3);
    rest = rest.substr(0, rest.find('#'));
    const std::size_t end = std::min(rest.find_first_of("/?"), rest.size());
    std::string_view authority = rest.substr(0, end);
    url.target = std::string(rest.substr(end));
    if (url.target.empty() || url.target[0] != '/') url.target.insert(0, "/");
    if (authority.find('@') != std::string_view::npos)
        fail("a URL with a name or password inside is not used; forge login keeps them");
    const std::size_t after_brackets = authority.starts_with("[") ? authority.find(']') : 0;
    if (after_brackets == std::string_view::npos) fail("{}: the address should end with ]", shown_url(text));
    const std::size_t port = authority.find(':', after_brackets);
    url.host = ascii_lower(authority.substr(0, port));
    url.port = default_port(url.scheme);
    if (port != std::string_view::npos) {
        const std::string_view digits = authority.substr(port + 1);
        const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
        if (error != std::errc() || last != digits.data() + digits.size() || url.port < 1 || url.port > 65535)
            fail("{}: the port should be a number from 1 to 65535", shown_url(text));
    }
    if (url.host.empty()) fail("{} names no host", shown_url(text));
    return url;
}

Url resolve_url(const Url& base, std::string_view location) {
    check_characters(location);
    if (location.empty()) fail("{} redirects to nowhere", shown_url(base.text()));
    if (location.starts_with("//")) return parse_url(fmt::format("{}:{}", base.scheme, location));
    const std::size_t scheme = location.find("://");
    if (scheme != std::string_view::npos && scheme < location.find_first_of("/?#")) return parse_url(location);
    Url url = base;
    location = location.substr(0, location.find('#'));
    if (location.starts_with("/")) {
        url.target = std::string(location);
    } else if (location.starts_with("?")) {
        url.target = std::string(base.target, 0, base.target.find('?')) + std::string(location);
    } else {
        const std::string path(base.target, 0, base.target.find('?'));
        url.target = path.substr(0, path.rfind('/') + 1) + std::string(location);
    }
    return url;
}

std::string url_encode(std::string_view text, bool keep_slashes) {
    std::string out;
    for (const char c : text) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
                           c == '_' || c == '~' || (keep_slashes && c == '/');
        if (plain) {
            out += c;
        } else {
            out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        }
    }
    return out;
}

std::string shown_url(std::string_view text) {
    std::string shown(text.substr(0, text.find_first_of("?#")));
    const std::size_t scheme = shown.find("://");
    if (scheme != std::string::npos) {
        const std::size_t end = std::min(shown.find('/', scheme + 3), shown.size());
        const std::size_t at = shown.rfind('@', end);
        if (at != std::string::npos && at > scheme) shown.erase(scheme + 3, at - scheme - 2);
    }
    for (char& c : shown)
        if (static_cast<unsigned char>(c) < 0x20) c = '?';
    return shown;
}

}  // namespace forge
