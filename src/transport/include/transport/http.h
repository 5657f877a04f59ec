// HTTP as pulling and pushing need it. One HttpConnection is one kept-alive connection for one
// thread. Redirects are followed here, not in the library: credentials stay with their origin.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "transport/url.h"

namespace forge {

// The network or the server failed in a way that may pass: a dropped connection, a time-out, 429, 5xx.
class NetworkError : public Error {
  public:
    explicit NetworkError(const std::string& message, std::chrono::milliseconds wait = {})
        : Error(ErrorKind::io, message), wait(wait) {}
    std::chrono::milliseconds wait;  // what the server asked for (Retry-After), or zero
};

// Somebody pressed Ctrl-C; what arrived so far was kept.
class Interrupted : public Error {
  public:
    Interrupted() : Error(ErrorKind::io, "interrupted; what arrived is kept, and the same command goes on from there") {}
};

struct HttpOptions {
    std::chrono::milliseconds connect_timeout{20000};
    std::chrono::milliseconds stall_timeout{30000};  // no byte moved for this long
    std::chrono::milliseconds first_pause{500};      // before the second try; doubles up to 16 times itself
    int tries = 6;                                   // in a row without a byte gained
    std::function<bool()> cancelled = [] { return false; };
};

struct HttpRequest {
    std::string method = "GET";
    std::string url;
    std::string authorization;  // value of that header; goes to this URL's origin alone
    std::vector<std::pair<std::string, std::string>> headers;
    std::string body;           // of POST, PUT and PATCH
    // Instead of `body`: `size` bytes of an open file from `offset`.
    struct FileBody {
        int fd = -1;
        std::uint64_t offset = 0, size = 0;
        std::function<void(std::uint64_t)> sent;  // bytes handed over, for progress
    } file;
    enum class Follow { all, same_host, none } follow = Follow::all;  // same_host: a redirect elsewhere is returned
    std::uint64_t max_body = 16u << 20;  // of an answer that is kept in memory
};

struct HttpAnswer {
    int status = 0;
    std::string url;   // that answered, after redirects
    std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
    std::string body;  // where no sink took it

    std::string header(std::string_view lower_name) const;  // the last of this name, or ""
};

// Gets the body in pieces; called only for answers whose status is 2xx. False ends the exchange quietly.
using HttpSink = std::function<bool(const HttpAnswer& head, std::span<const std::byte>)>;

class HttpConnection {
  public:
    explicit HttpConnection(HttpOptions options);
    ~HttpConnection();
    HttpConnection(const HttpConnection&) = delete;
    HttpConnection& operator=(const HttpConnection&) = delete;

    // One exchange, with its redirects. Any status is an answer; NetworkError when there was none,
    // Interrupted when options.cancelled() says so.
    HttpAnswer send(const HttpRequest& request, const HttpSink& sink = {});
    // send() until an answer that is neither 429 nor 5xx, at most options.tries times, with pauses.
    HttpAnswer send_retrying(const HttpRequest& request);
    const HttpOptions& options() const { return options_; }

  private:
    HttpAnswer exchange(const HttpRequest& request, const Url& url, bool with_authorization, const HttpSink& sink);
    struct Impl;
    HttpOptions options_;
    std::unique_ptr<Impl> impl_;
};

// False in a build without libcurl or libcrypto.
bool transport_available();
// Error with the sentence that says what to install, in such a build.
void require_transport();

// NetworkError for 429 and 5xx, with what the server asks to wait.
void throw_if_transient(const HttpAnswer& answer);
// Sleeps in small steps; Interrupted when cancelled.
void pause(const HttpOptions& options, std::chrono::milliseconds time);
// The pause before try number `attempt` (from 1), at least `wait`, at most five minutes.
std::chrono::milliseconds pause_before(const HttpOptions& options, int attempt, std::chrono::milliseconds wait);
// An answer's own explanation for a message: a JSON "error" or "errors", else the start of the text; one line.
std::string explanation(const HttpAnswer& answer);

}  // namespace forge
