// One connection: reads requests, has them handled, writes what their Exchange gives. All of it on the I/O thread.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <string>

#include "exchange.h"
#include "server_state.h"

namespace forge::http {

class Connection : public std::enable_shared_from_this<Connection> {
  public:
    Connection(tcp::socket socket, Server::State& server);

    void read_request();
    // There is something to write.
    void flush();
    void close();
    bool idle() const { return idle_; }
    void close_if_idle() {
        if (idle_) close();
    }

  private:
    void expire_after(std::chrono::seconds time);
    void read_header();
    void note_path();
    void read_body();
    void read_rest();
    void bad_request(error_code error);
    void refuse(int status, const std::string& message);
    void dispatch();
    void watch();
    void write_some(std::size_t from);
    void finish_exchange();
    void linger();
    void drain(int left);

    Server::State& server_;
    tcp::socket socket_;
    asio::steady_timer timer_;
    boost::beast::flat_buffer buffer_;
    std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
    std::shared_ptr<Exchange> exchange_;
    std::string written_, path_;   // path_: of the request being read
    bool writing_ = false, watching_ = false, next_waits_ = false, closed_ = false, idle_ = false;
};

}  // namespace forge::http
