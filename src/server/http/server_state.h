// What a server's connections share. Everything of a connection but Exchange's queue runs on the I/O thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <set>
#include <thread>

#include "http.h"

namespace forge::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

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

}  // namespace forge::http
