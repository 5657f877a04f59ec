// One answer: the bytes that wait to be written, and whether the client is still there.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "http.h"

namespace forge::http {

class Connection;

class Exchange final : public Reply, public std::enable_shared_from_this<Exchange> {
  public:
    Exchange(std::shared_ptr<Connection> connection, std::shared_ptr<Server::State> state, bool head_only, bool keep_alive, bool chunked);
    ~Exchange() override;

    void send(int status, std::string_view type, std::string body, Headers headers) override;
    void start(int status, std::string_view type, Headers headers) override;
    bool write(std::string piece) override;
    void end() override;
    void on_gone(std::function<void()> action) override;
    bool started() const override;
    void defer(std::function<void()> work) override;
    void defer(std::chrono::milliseconds wait, std::function<void()> work) override;
    void again(std::function<void()> work) override;

    // For the connection.
    void set_gone();
    // Moves what waits into `bytes`; true when nothing will follow.
    bool take(std::string& bytes);
    bool keep_alive() const;
    // For what is said when its handler throws.
    void set_request(std::shared_ptr<const Request> request) { request_ = std::move(request); }

  private:
    void wake();

    std::shared_ptr<Server::State> state_;  // outlives the connection, whose socket belongs to it
    std::shared_ptr<Connection> connection_;
    mutable std::mutex mutex_;
    std::string out_;
    std::shared_ptr<const Request> request_;
    std::function<void()> gone_action_;
    const bool head_only_;
    bool keep_alive_;
    const bool chunked_;
    bool started_ = false, ended_ = false, gone_ = false, woken_ = false;
};

}  // namespace forge::http
