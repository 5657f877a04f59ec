#include <boost/asio/post.hpp>

#include "base/error.h"
#include "connection.h"
#include "http.h"
#include "server_state.h"

namespace forge::http {

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
