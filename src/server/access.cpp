#include "access.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "fields.h"

namespace forge::server {
namespace {

// "[::1]:8080" -> "[::1]", "localhost:8080" -> "localhost".
std::string without_port(std::string_view host) {
    const std::size_t bracket = host.rfind(']'), colon = host.rfind(':');
    if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) host = host.substr(0, colon);
    return ascii_lower(host);
}

}  // namespace

bool equal_in_constant_time(std::string_view a, std::string_view b) {
    unsigned difference = a.size() != b.size();
    for (std::size_t i = 0; i < a.size(); ++i)
        difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
    return difference == 0;
}

bool Access::allowed(std::string_view origin) const {
    return std::any_of(options_.origins.begin(), options_.origins.end(), [&](const std::string& o) { return o == "*" || o == origin; });
}

void Access::check_host() const {
    const std::string_view header = request_.header("host");
    const std::string host = without_port(header);
    if (options_.keys.empty() && !host.empty()) {
        const bool known = http::is_loopback(host) || host == ascii_lower(options_.host) ||
                           std::any_of(options_.hosts.begin(), options_.hosts.end(), [&](const std::string& h) { return ascii_lower(h) == host; });
        if (!known)
            throw ApiError(403, "", fmt::format("the host {} is not a name of this server; start it with --allow-host {} if it is", host.substr(0, 200), host.substr(0, 200)));
    }
    const std::string_view origin = request_.header("origin");
    if (origin.empty() || allowed(origin)) return;
    const std::size_t scheme = origin.find("://");
    if (scheme != std::string_view::npos && ascii_lower(origin.substr(scheme + 3)) == ascii_lower(header)) return;   // our own page
    throw ApiError(403, "", fmt::format("pages of {} may not ask here; start the server with --cors {} to let them", std::string(origin.substr(0, 200)), std::string(origin.substr(0, 200))));
}

void Access::check_key() const {
    if (options_.keys.empty() || request_.path == "/" || request_.path == "/health") return;
    std::string_view given = request_.header("x-api-key");
    if (const std::string_view authorization = request_.header("authorization"); !authorization.empty()) {
        if (ascii_lower(authorization.substr(0, 7)) == "bearer ") given = authorization.substr(7);
    }
    bool right = false;
    for (const std::string& key : options_.keys) right |= equal_in_constant_time(given, key);
    if (!right || given.empty())
        throw ApiError(401, "", given.empty() ? "a key is needed: Authorization: Bearer KEY" : "this key is not right", "invalid_api_key");
}

http::Headers Access::cors_headers() const {
    const std::string_view origin = request_.header("origin");
    if (origin.empty() || !allowed(origin)) return {};
    // Clients send headers of their own (x-stainless-..., anthropic-...), none of which can do harm: what is asked for is allowed.
    const std::string_view asked = request_.header("access-control-request-headers");
    const bool names = !asked.empty() && asked.size() <= 2000 &&
                       std::all_of(asked.begin(), asked.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == ',' || c == ' '; });
    return {{"Access-Control-Allow-Origin", std::string(origin)},
            {"Vary", "Origin, Access-Control-Request-Headers"},
            {"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
            {"Access-Control-Allow-Headers", names ? std::string(asked) : "Authorization, Content-Type, X-Api-Key, Anthropic-Version, Anthropic-Beta"},
            {"Access-Control-Expose-Headers", "Retry-After"},
            {"Access-Control-Max-Age", "600"}};
}

}  // namespace forge::server
