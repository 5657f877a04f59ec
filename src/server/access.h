// Who may ask: keys, host names (against DNS rebinding), pages of other origins.
#pragma once

#include "http/http.h"
#include "server/server.h"

namespace forge::server {

class Access {
  public:
    Access(const ServeOptions& options, const http::Request& request) : options_(options), request_(request) {}

    // Without a key whoever reaches the port may ask, so that a page could have its own name resolve to
    // this machine and read the answers: then the Host must be a name of this machine. ApiError 403.
    // A page of another origin may not ask at all unless it is allowed.
    void check_host() const;
    // ApiError 401; the page at / and /health are free.
    void check_key() const;
    http::Headers cors_headers() const;

  private:
    bool allowed(std::string_view origin) const;
    const ServeOptions& options_;
    const http::Request& request_;
};

// Takes as long whatever the difference.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace forge::server
