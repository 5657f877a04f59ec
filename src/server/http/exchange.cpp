#include "exchange.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/status.hpp>

#include "base/error.h"
#include "base/log.h"
#include "connection.h"
#include "server_state.h"

namespace forge::http {
namespace {

std::string reason(int status) {
    const auto name = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(status));
    return {name.data(), name.size()};
}

std::string head(int status, std::string_view type, const Headers& headers, bool keep_alive) {
    std::string out = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", status, reason(status), type);
    for (const auto& [name, value] : headers) out += name + ": " + value + "\r\n";
    out += keep_alive ? "" : "Connection: close\r\n";
    return out;
}

}  // namespace

Exchange::Exchange(std::shared_ptr<Connection> connection, std::shared_ptr<Server::State> state, bool head_only, bool keep_alive, bool chunked)
    : state_(std::move(state)), connection_(std::move(connection)), head_only_(head_only), keep_alive_(keep_alive), chunked_(chunked) {
    ++state_->active;
}

Exchange::~Exchange() { --state_->active; }

void Exchange::send(int status, std::string_view type, std::string body, Headers headers) {
    {
        std::lock_guard lock(mutex_);
        if (started_) return;
        started_ = ended_ = true;
        out_ = head(status, type, headers, keep_alive_) + fmt::format("Content-Length: {}\r\n\r\n", body.size());
        if (!head_only_) out_ += body;
    }
    wake();
}

void Exchange::start(int status, std::string_view type, Headers headers) {
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

bool Exchange::write(std::string piece) {
    bool slow = false;
    {
        std::lock_guard lock(mutex_);
        if (gone_ || ended_) return false;
        if (piece.empty() || head_only_) return true;
        if (chunked_) out_ += fmt::format("{:x}\r\n", piece.size());
        out_ += piece;
        if (chunked_) out_ += "\r\n";
        slow = out_.size() > state_->options.limits.backlog;
    }
    if (slow) asio::post(state_->io, [connection = connection_] { connection->close(); });
    else wake();
    return !slow;
}

void Exchange::end() {
    {
        std::lock_guard lock(mutex_);
        if (ended_ || !started_) return;
        ended_ = true;
        if (chunked_ && !head_only_) out_ += "0\r\n\r\n";
    }
    wake();
}

void Exchange::on_gone(std::function<void()> action) {
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

bool Exchange::started() const {
    std::lock_guard lock(mutex_);
    return started_;
}

void Exchange::defer(std::function<void()> work) { asio::post(state_->io, std::move(work)); }

void Exchange::defer(std::chrono::milliseconds wait, std::function<void()> work) {
    const auto timer = std::make_shared<asio::steady_timer>(state_->io, wait);
    timer->async_wait([timer, work = std::move(work)](error_code error) {
        if (!error) work();
    });
}

void Exchange::again(std::function<void()> work) {
    asio::post(state_->workers, [self = shared_from_this(), work = std::move(work)] {
        std::string error;
        try {
            work();
            return;
        } catch (const std::exception& e) {
            error = e.what();
        }
        const Request& request = *self->request_;
        log_message(LogLevel::error, fmt::format("{} {}: {}; this is a bug of Forge, please report it", request.method, request.path, error));
        auto [type, body] = self->state_->error_body(request.path, 500, error);
        self->send(500, type, std::move(body), {});
        self->end();
    });
}

void Exchange::set_gone() {
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

bool Exchange::take(std::string& bytes) {
    std::lock_guard lock(mutex_);
    bytes.swap(out_);
    out_.clear();
    return ended_;
}

bool Exchange::keep_alive() const {
    std::lock_guard lock(mutex_);
    return keep_alive_;
}

void Exchange::wake() {
    {
        std::lock_guard lock(mutex_);
        if (gone_ || woken_) return;
        woken_ = true;
    }
    // At once when this is the thread of the sockets.
    asio::dispatch(state_->io, [self = shared_from_this()] {
        {
            std::lock_guard lock(self->mutex_);
            self->woken_ = false;
        }
        self->connection_->flush();
    });
}

}  // namespace forge::http
