#include "connection.h"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/read.hpp>

#include "base/error.h"

namespace forge::http {

namespace beast = boost::beast;
using Clock = std::chrono::steady_clock;

Connection::Connection(tcp::socket socket, Server::State& server)
    : server_(server), socket_(std::move(socket)), timer_(socket_.get_executor()), buffer_(server.options.limits.header + (64 << 10)) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.non_blocking(true, ignored);
}

void Connection::expire_after(std::chrono::seconds time) {
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this()](error_code error) {
        if (!error && self->timer_.expiry() <= Clock::now()) self->close();
    });
}

void Connection::read_request() {
    if (!server_.accepting) return close();
    path_.clear();
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

void Connection::read_header() {
    expire_after(server_.options.limits.header_time);
    beast::http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, std::size_t) {
        if (error) return self->bad_request(error);
        self->read_body();
    });
}

void Connection::note_path() {
    const auto target = parser_->get().target();
    path_.assign(target.data(), std::min(target.find('?'), target.size()));
}

void Connection::read_body() {
    const auto& message = parser_->get();
    note_path();
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

void Connection::read_rest() {
    beast::http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, std::size_t) {
        if (error) return self->bad_request(error);
        self->dispatch();
    });
}

void Connection::bad_request(error_code error) {
    namespace bh = beast::http;
    if (error == bh::error::end_of_stream || error.category() != bh::make_error_code(bh::error::bad_method).category())
        return close();
    if (error == bh::error::partial_message) return close();
    note_path();
    if (error == bh::error::header_limit)
        return refuse(431, fmt::format("the header has more than {} bytes", server_.options.limits.header));
    if (error == bh::error::body_limit || error == bh::error::buffer_overflow)
        return refuse(413, fmt::format("the body has more than {} bytes", server_.options.limits.body));
    refuse(400, fmt::format("this is not an HTTP request: {}", error.message()));
}

// Answers without a handler and closes: what follows on this connection cannot be trusted.
void Connection::refuse(int status, const std::string& message) {
    auto [type, body] = server_.error_body(path_, status, message);
    exchange_ = std::make_shared<Exchange>(shared_from_this(), server_.shared_from_this(), false, false, true);
    expire_after(server_.options.limits.write_time);
    exchange_->send(status, type, std::move(body), {});
}

void Connection::dispatch() {
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
    exchange_->set_request(request);
    exchange_->again([exchange = exchange_.get(), request, &server = server_] {
        server.handler(request, exchange->shared_from_this());
    });
}

// Reads while an answer is made, to see the client leave. What comes is the next request's.
void Connection::watch() {
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

// Most writes are done here and now: a piece of an answer is small, and the socket takes it. Only what it does not take
// waits, for a limited time.
void Connection::flush() {
    if (writing_ || closed_ || !exchange_) return;
    const bool last = exchange_->take(written_);
    std::size_t written = 0;
    if (!written_.empty()) {
        error_code error;
        written = socket_.write_some(asio::buffer(written_), error);
        // Whoever called may hold what closing needs: the client's leaving is told later.
        if (error && error != asio::error::would_block && error != asio::error::try_again)
            return asio::post(server_.io, [self = shared_from_this()] { self->close(); });
    }
    if (written < written_.size()) {
        writing_ = true;
        return write_some(written);
    }
    if (last) finish_exchange();
}

void Connection::write_some(std::size_t from) {
    expire_after(server_.options.limits.write_time);
    socket_.async_write_some(asio::buffer(written_) + from, [self = shared_from_this(), from](error_code error, std::size_t n) {
        if (error || self->closed_) return self->close();
        if (from + n < self->written_.size()) return self->write_some(from + n);
        self->timer_.cancel();
        self->writing_ = false;
        self->flush();
    });
}

void Connection::finish_exchange() {
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
void Connection::linger() {
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

void Connection::drain(int left) {
    buffer_.clear();
    socket_.async_read_some(buffer_.prepare(16384), [self = shared_from_this(), left](error_code error, std::size_t) {
        if (error || left == 0) return self->close();
        self->drain(left - 1);
    });
}

void Connection::close() {
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

}  // namespace forge::http
