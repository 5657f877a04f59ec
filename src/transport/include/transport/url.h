// The few parts of a URL that redirects, credentials and registries need.
#pragma once

#include <string>
#include <string_view>

namespace forge {

struct Url {
    std::string scheme;  // "http" or "https"
    std::string host;    // lower case, without port; IPv6 with its brackets
    int port = 0;        // the scheme's own where the text has none
    std::string target;  // path and query, begins with "/"

    std::string origin() const;  // "https://host" or "https://host:port"
    std::string text() const { return origin() + target; }
    bool loopback() const;       // localhost, 127.x.x.x or [::1]
    bool same_origin(const Url& other) const {
        return scheme == other.scheme && host == other.host && port == other.port;
    }
};

// Error where the text is no http or https URL. A user name or password inside is refused.
Url parse_url(std::string_view text);
// What a Location header means on a page at `base`: absolute, //host/path, /path or a relative path.
Url resolve_url(const Url& base, std::string_view location);
// Percent-encodes all but unreserved characters; '/' too unless `keep_slashes`.
std::string url_encode(std::string_view text, bool keep_slashes = false);
// A URL as a message may show it: without its query, which may hold a signature.
std::string shown_url(std::string_view text);

}  // namespace forge
