#include <boost/asio/bind_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "http.h"

namespace forge::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

std::string reason(int status) {
    const auto name = beast::http::obsolete_reason(static_cast<beast::http::status>(status));
    return {name.data(), name.size()};
}

std::string head(int status, std::string_view type, const Headers& headers, bool keep_alive) {
    std::string out = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", status, reason(status), type);
    for (const auto& [name, value] : headers) out += name + ": " + value + "\r\n";
    out += keep_alive ? "" : "Connection: close\r\n";
    return out;
}

}  // namespace

// Everything of one connection but Exchange's queue runs on the I/O thread.
class Connection;

struct Server::State : std::enable_shared_from_this<Server::State> {
    Options options;
    Handler handler;
    ErrorBody error_body;
    asio::io_context io{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
    tcp::acceptor acceptor{io};
    asio::steady_timer retry{io};
    asio::thread_pool workers;
    std::thread thread;
    std::set<std::shared_ptr<Connection>> connections;  // the I/O thread's
    std::atomic<std::size_t> connection_count{0}, active{0};
    bool accepting = true;

    State(const Options& o, Handler h, ErrorBody e)
        : options(o), handler(std::move(h)), error_body(std::move(e)), workers(static_cast<std::size_t>(std::max(1, o.workers))) {}
    void accept();
};

// One answer: the bytes that wait to be written, and whether the client is still there.
class Exchange final : public Reply, public std::enable_shared_from_this<Exchange> {
  public:
    Exchange(std::shared_ptr<Connection> connection, std::shared_ptr<Server::State> state, bool head_only, bool keep_alive, bool chunked)
        : state_(std::move(state)), connection_(std::move(connection)), server_(*state_), head_only_(head_only), keep_alive_(keep_alive), chunked_(chunked) {
        ++server_.active;
    }
    ~Exchange() override { --server_.active; }

    void send(int status, std::string_view type, std::string body, Headers headers) override {
        {
            std::lock_guard lock(mutex_);
            if (started_) return;
            started_ = ended_ = true;
            out_ = head(status, type, headers, keep_alive_) + fmt::format("Content-Length: {}\r\n\r\n", body.size());
            if (!head_only_) out_ += body;
        }
        wake();
    }

    void start(int status, std::string_view type, Headers headers) override {
        {
            std::lock_guard lock(mutex_);
            if (started_) return;
            started_ = true;
            // HTTP/1.0 knows no chunks: there the end of the connection ends the body.
            if (!chunked_) keep_alive_ = false;
            out_ = head(status, type, headers, keep_alive_) + (chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
        }
        wake();
    }

    bool write(std::string piece) override {
        bool slow = false;
        {
            std::lock_guard lock(mutex_);
            if (gone_ || ended_) return false;
            if (piece.empty() || head_only_) return true;
            if (chunked_) out_ += fmt::format("{:x}\r\n", piece.size());
            out_ += piece;
            if (chunked_) out_ += "\r\n";
            slow = out_.size() > server_.options.limits.backlog;
        }
        if (slow) drop();
        else wake();
        return !slow;
    }

    void end() override {
        {
            std::lock_guard lock(mutex_);
            if (ended_ || !started_) return;
            ended_ = true;
            if (chunked_ && !head_only_) out_ += "0\r\n\r\n";
        }
        wake();
    }

    void on_gone(std::function<void()> action) override {
        {
            std::lock_guard lock(mutex_);
            if (ended_) return;
            if (!gone_) {
                gone_action_ = std::move(action);
                return;
            }
        }
        action();
    }

    bool started() const override {
        std::lock_guard lock(mutex_);
        return started_;
    }

    void defer(std::function<void()> work) override { asio::post(server_.io, std::move(work)); }

    // For the connection.
    void set_gone() {
        std::function<void()> action;
        {
            std::lock_guard lock(mutex_);
            if (gone_) return;
            gone_ = true;
            out_.clear();
            if (!ended_) action = std::move(gone_action_);
            gone_action_ = nullptr;
        }
        if (action) action();
    }
    // Moves what waits into `bytes`; true when nothing will follow.
    bool take(std::string& bytes) {
        std::lock_guard lock(mutex_);
        bytes = std::move(out_);
        out_.clear();
        return ended_;
    }
    bool keep_alive() const {
        std::lock_guard lock(mutex_);
        return keep_alive_;
    }

  private:
    void wake();
    void drop();

    std::shared_ptr<Server::State> state_;  // outlives the connection, whose socket belongs to it
    std::shared_ptr<Connection> connection_;
    Server::State& server_;
    mutable std::mutex mutex_;
    std::string out_;
    std::function<void()> gone_action_;
    const bool head_only_;
    bool keep_alive_;
    const bool chunked_;
    bool started_ = false, ended_ = false, gone_ = false, woken_ = false;
    friend class Connection;
};

class Connection : public std::enable_shared_from_this<Connection> {
  public:
    Connection(tcp::socket socket, Server::State& server)
        : server_(server), socket_(std::move(socket)), timer_(socket_.get_executor()), buffer_(server.options.limits.header + (64 << 10)) {
        error_code ignored;
        socket_.set_option(tcp::no_delay(true), ignored);
    }

    void read_request() {
        if (!server_.accepting) return close();
        parser_.emplace();
        parser_->header_limit(static_cast<std::uint32_t>(server_.options.limits.header));
        parser_->body_limit(server_.options.limits.body);
        if (buffer_.size() > 0) return read_header();
        // The time for a header begins with its first byte.
        idle_ = true;
        expire_after(server_.options.limits.idle_time);
        socket_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](error_code error, std::size_t n) {
            self->idle_ = false;
            if (error) return self->close();
            self->buffer_.commit(n);
            self->read_header();
        });
    }

    // There is something to write (I/O thread).
    void flush() {
        if (writing_ || closed_ || !exchange_) return;
        const bool last = exchange_->take(written_);
        if (written_.empty()) {
            if (last) finish_exchange();
            return;
        }
        writing_ = true;
        write_some(0);
    }

    void close() {
        if (closed_) return;
        closed_ = true;
        error_code ignored;
        timer_.cancel();
        socket_.shutdown(tcp::socket::shutdown_both, ignored);
        socket_.close(ignored);
        if (const auto exchange = std::move(exchange_)) exchange->set_gone();
        exchange_ = nullptr;
        server_.connections.erase(shared_from_this());
        --server_.connection_count;
    }

    bool idle() const { return idle_; }
    void close_if_idle() {
        if (idle_) close();
    }

  private:
    void expire_after(std::chrono::seconds time) {
        timer_.expires_after(time);
        timer_.async_wait([self = shared_from_this()](error_code error) {
            if (!error && self->timer_.expiry() <= Clock::now()) self->close();
        });
    }

    void read_header() {
        expire_after(server_.options.limits.header_time);
        beast::http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, std::size_t) {
            if (error) return self->bad_request(error);
            self->read_body();
        });
    }

    void read_body() {
        const auto& message = parser_->get();
        if (message.version() != 10 && message.version() != 11) return refuse(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
        const auto length = parser_->content_length();
        if (length && *length > server_.options.limits.body)
            return refuse(413, fmt::format("the body has {} bytes, and at most {} are read", *length, server_.options.limits.body));
        if (parser_->is_done()) return dispatch();
        expire_after(server_.options.limits.body_time);
        if (beast::iequals(message[beast::http::field::expect], "100-continue")) {
            static const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
            asio::async_write(socket_, asio::buffer(go_on), [self = shared_from_this()](error_code error, std::size_t) {
                if (error) return self->close();
                self->read_rest();
            });
            return;
        }
        read_rest();
    }

    void read_rest() {
        beast::http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, std::size_t) {
            if (error) return self->bad_request(error);
            self->dispatch();
        });
    }

    void bad_request(error_code error) {
        namespace bh = beast::http;
        if (error == bh::error::end_of_stream || error.category() != bh::make_error_code(bh::error::bad_method).category())
            return close();
        if (error == bh::error::partial_message) return close();
        if (error == bh::error::header_limit)
            return refuse(431, fmt::format("the header has more than {} bytes", server_.options.limits.header));
        if (error == bh::error::body_limit || error == bh::error::buffer_overflow)
            return refuse(413, fmt::format("the body has more than {} bytes", server_.options.limits.body));
        refuse(400, fmt::format("this is not an HTTP request: {}", error.message()));
    }

    // Answers without a handler and closes: what follows on this connection cannot be trusted.
    void refuse(int status, const std::string& message) {
        auto [type, body] = server_.error_body(status, message);
        exchange_ = std::make_shared<Exchange>(shared_from_this(), server_.shared_from_this(), false, false, true);
        expire_after(server_.options.limits.write_time);
        exchange_->send(status, type, std::move(body), {});
    }

    void dispatch() {
        timer_.cancel();
        auto message = parser_->release();
        const bool keep_alive = message.keep_alive() && server_.accepting;
        auto request = std::make_shared<Request>();
        request->method = std::string(message.method_string());
        std::size_t hosts = 0;
        for (const auto& field : message) {
            std::string name(field.name_string());
            for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
            hosts += name == "host";
            request->headers.emplace_back(std::move(name), std::string(field.value()));
        }
        if (message.version() == 11 && hosts != 1) return refuse(400, fmt::format("a request has one Host header, this one has {}", hosts));
        const std::string target(message.target());
        const std::size_t question = target.find('?');
        try {
            if (target.empty() || (target[0] != '/' && target != "*")) fail("the target of a request begins with /, this one is {}", target.substr(0, 80));
            request->path = percent_decoded(std::string_view(target).substr(0, question));
            if (question != std::string::npos) request->query = target.substr(question + 1);
        } catch (const Error& error) {
            return refuse(400, error.what());
        }
        request->body = std::move(message.body());
        error_code ignored;
        request->peer_is_local = socket_.remote_endpoint(ignored).address().is_loopback();

        exchange_ = std::make_shared<Exchange>(shared_from_this(), server_.shared_from_this(), request->method == "HEAD", keep_alive, message.version() == 11);
        watch();
        asio::post(server_.workers, [exchange = exchange_, request = std::shared_ptr<const Request>(request), &server = server_] {
            std::string error;
            try {
                server.handler(request, exchange);
                return;
            } catch (const std::exception& e) {
                error = e.what();
            }
            log_message(LogLevel::error, fmt::format("{} {}: {}; this is a bug of Forge, please report it", request->method, request->path, error));
            auto [type, body] = server.error_body(500, error);
            exchange->send(500, type, std::move(body), {});
            exchange->end();
        });
    }

    // Reads while an answer is made, to see the client leave. What comes is the next request's.
    void watch() {
        if (closed_ || watching_ || buffer_.size() > (64 << 10)) return;
        watching_ = true;
        socket_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](error_code error, std::size_t n) {
            self->watching_ = false;
            if (self->closed_) return;
            if (!error) {
                self->buffer_.commit(n);
                if (self->exchange_) return self->watch();
            } else if (error != asio::error::operation_aborted) {
                return self->close();
            }
            if (self->next_waits_) {
                self->next_waits_ = false;
                self->read_request();
            }
        });
    }

    void write_some(std::size_t from) {
        expire_after(server_.options.limits.write_time);
        socket_.async_write_some(asio::buffer(written_) + from, [self = shared_from_this(), from](error_code error, std::size_t n) {
            if (error || self->closed_) return self->close();
            if (from + n < self->written_.size()) return self->write_some(from + n);
            self->timer_.cancel();
            self->writing_ = false;
            self->flush();
        });
    }

    void finish_exchange() {
        const bool keep_alive = exchange_->keep_alive();
        exchange_ = nullptr;
        if (!keep_alive || !server_.accepting) return linger();
        if (!watching_) return read_request();
        // The watching read must come back first.
        next_waits_ = true;
        error_code ignored;
        socket_.cancel(ignored);
    }

    // Reads a little of what the client still sends before closing: closing at once would reset
    // the connection, and the answer could be lost.
    void linger() {
        error_code ignored;
        socket_.shutdown(tcp::socket::shutdown_send, ignored);
        if (watching_) {
            timer_.expires_after(std::chrono::seconds(2));
            timer_.async_wait([self = shared_from_this()](error_code error) { if (!error) self->close(); });
            return;
        }
        expire_after(std::chrono::seconds(2));
        drain(64);
    }
    void drain(int left) {
        buffer_.clear();
        socket_.async_read_some(buffer_.prepare(16384), [self = shared_from_this(), left](error_code error, std::size_t) {
            if (error || left == 0) return self->close();
            self->drain(left - 1);
        });
    }

    Server::State& server_;
    tcp::socket socket_;
    asio::steady_timer timer_;
    beast::flat_buffer buffer_;
    std::optional<beast::http::request_parser<beast::http::string_body>> parser_;
    std::shared_ptr<Exchange> exchange_;
    std::string written_;
    bool writing_ = false, watching_ = false, next_waits_ = false, closed_ = false, idle_ = false;
};

void Exchange::wake() {
    {
        std::lock_guard lock(mutex_);
        if (gone_ || woken_) return;
        woken_ = true;
    }
    // At once when this is the thread of the sockets.
    asio::dispatch(server_.io, [self = shared_from_this()] {
        {
            std::lock_guard lock(self->mutex_);
            self->woken_ = false;
        }
        self->connection_->flush();
    });
}

void Exchange::drop() {
    asio::post(server_.io, [connection = connection_] { connection->close(); });
}

void Server::State::accept() {
    acceptor.async_accept([this](error_code error, tcp::socket socket) {
        if (!accepting || error == asio::error::operation_aborted) return;
        if (error) {
            // Out of descriptors or memory: close what is idle, and try again soon.
            const auto all = connections;
            for (const auto& connection : all) connection->close_if_idle();
            retry.expires_after(std::chrono::milliseconds(50));
            retry.async_wait([this](error_code failed) { if (!failed) accept(); });
            return;
        }
        if (connections.size() >= options.limits.connections) {
            for (const auto& connection : connections) {
                if (!connection->idle()) continue;
                const auto closing = connection;
                closing->close();
                break;
            }
        }
        if (connections.size() < options.limits.connections) {
            auto connection = std::make_shared<Connection>(std::move(socket), *this);
            connections.insert(connection);
            ++connection_count;
            connection->read_request();
        }
        accept();
    });
}

Server::Server(const Options& options, Handler handler, ErrorBody error_body)
    : state_(std::make_shared<State>(options, std::move(handler), std::move(error_body))) {
    State& s = *state_;
    error_code error;
    tcp::resolver resolver(s.io);
    std::string host = options.host;
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    const auto found = resolver.resolve(host, std::to_string(options.port), tcp::resolver::passive, error);
    if (error || found.empty()) fail("the host {} cannot be found: {}", options.host, error.message());
    const tcp::endpoint endpoint = found.begin()->endpoint();
    s.acceptor.open(endpoint.protocol(), error);
    if (!error) s.acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) s.acceptor.bind(endpoint, error);
    if (!error) s.acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error)
        fail(ErrorKind::io, "{}:{} cannot be listened on: {}; another program may use the port (--port picks another)", options.host, options.port, error.message());
    s.accept();
    s.thread = std::thread([&s] { s.io.run(); });
}

Server::~Server() {
    State& s = *state_;
    asio::post(s.io, [&s] {
        s.accepting = false;
        error_code ignored;
        s.acceptor.close(ignored);
        s.retry.cancel();
        const auto all = s.connections;
        for (const auto& connection : all) connection->close();
    });
    s.workers.join();
    asio::post(s.io, [&s] { s.work.reset(); });
    s.thread.join();
}

std::uint16_t Server::port() const { return state_->acceptor.local_endpoint().port(); }
std::size_t Server::active() const { return state_->active; }
std::size_t Server::connections() const { return state_->connection_count; }

void Server::stop_accepting() {
    State& s = *state_;
    asio::post(s.io, [&s] {
        s.accepting = false;
        error_code ignored;
        s.acceptor.close(ignored);
        const auto all = s.connections;
        for (const auto& connection : all) connection->close_if_idle();
    });
}

}  // namespace forge::http
