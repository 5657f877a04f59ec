// HTTP/1.1 in and out, from Boost.Beast, which only this folder includes.
//
// Threads: one thread reads and writes all sockets; handlers run on a few worker threads and may
// block; a Reply may be written from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace forge::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
    std::string method, path, query, body;  // path: decoded, without the query
    Headers headers;                        // names in lower case
    bool peer_is_local = false;

    // The value of the first header of this (lower-case) name, or empty.
    std::string_view header(std::string_view name) const;
};

// The answer to one request. All functions may be called from any thread.
class Reply {
  public:
    virtual ~Reply() = default;

    // A whole answer at once.
    virtual void send(int status, std::string_view type, std::string body, Headers headers = {}) = 0;
    // An answer in pieces: start, write as often as wanted, end.
    virtual void start(int status, std::string_view type, Headers headers = {}) = 0;
    // False when the client is gone: what is computed for it is wasted. A client that lets more than
    // Limits::backlog bytes wait is dropped.
    virtual bool write(std::string piece) = 0;
    virtual void end() = 0;

    // Calls `action` once when the client goes away before the end; at once if it is gone already.
    virtual void on_gone(std::function<void()> action) = 0;
    virtual bool started() const = 0;

    // Runs `work` soon on the thread that writes the sockets, one after the other: for what should not keep the caller.
    virtual void defer(std::function<void()> work) = 0;
    // Likewise after a while; never when the server stops before.
    virtual void defer(std::chrono::milliseconds wait, std::function<void()> work) = 0;
    // Runs `work` on a worker, as the handler was: an exception is answered as its would be.
    virtual void again(std::function<void()> work) = 0;
};

struct Limits {
    std::size_t header = 16 << 10, body = 32 << 20, backlog = 4 << 20;  // bytes
    std::size_t connections = 4096;
    std::chrono::seconds header_time{20};   // from the first byte of a request to the end of its header
    std::chrono::seconds body_time{120};    // to the end of its body
    std::chrono::seconds idle_time{120};    // between requests
    std::chrono::seconds write_time{30};    // without a byte taken by the client
};

struct Options {
    std::string host = "127.0.0.1";
    std::uint16_t port = 8080;  // 0: any free one
    int workers = 4;
    Limits limits;
};

// Must answer or keep the reply; an exception becomes a 500.
using Handler = std::function<void(std::shared_ptr<const Request>, std::shared_ptr<Reply>)>;
// An error that no handler answers: the path as far as it is known, status and sentence -> type and body.
using ErrorBody = std::function<std::pair<std::string, std::string>(std::string_view path, int status, std::string_view message)>;

class Server {
  public:
    // Listens from here on; Error when the address cannot be had.
    Server(const Options& options, Handler handler, ErrorBody error_body);
    ~Server();  // closes all connections and joins the threads

    std::uint16_t port() const;
    // No new connections and no new requests; answers in progress go on.
    void stop_accepting();
    // Requests whose answer has not ended.
    std::size_t active() const;
    std::size_t connections() const;

    struct State;  // server_state.h

  private:
    std::shared_ptr<State> state_;  // answers that are still being made hold it too
};

// Whether a name or address means this machine only.
bool is_loopback(std::string_view host);

// "a%20b" -> "a b"; Error for a broken escape. plus_is_space for query strings.
std::string percent_decoded(std::string_view text, bool plus_is_space = false);

}  // namespace forge::http
