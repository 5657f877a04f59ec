// A reply that counts itself, adds headers and leaves a line in the log when it is over.
#pragma once

#include <chrono>
#include <memory>

#include "http/http.h"
#include "metrics.h"
#include "server/server.h"

namespace forge::server {

class TrackedReply final : public http::Reply {
  public:
    TrackedReply(std::shared_ptr<http::Reply> reply, std::shared_ptr<const http::Request> request, Metrics& metrics, const ServeOptions& options)
        : reply_(std::move(reply)), request_(std::move(request)), metrics_(metrics), options_(options) {}
    ~TrackedReply() override;

    void set_headers(http::Headers headers) { headers_ = std::move(headers); }   // which every answer gets
    void send(int status, std::string_view type, std::string body, http::Headers headers = {}) override;
    void start(int status, std::string_view type, http::Headers headers = {}) override;
    bool write(std::string piece) override { return reply_->write(std::move(piece)); }
    void end() override { reply_->end(); }
    void on_gone(std::function<void()> action) override { reply_->on_gone(std::move(action)); }
    bool started() const override { return reply_->started(); }
    void defer(std::function<void()> work) override { reply_->defer(std::move(work)); }
    void defer(std::chrono::milliseconds wait, std::function<void()> work) override { reply_->defer(wait, std::move(work)); }
    void again(std::function<void()> work) override { reply_->again(std::move(work)); }

  private:
    std::shared_ptr<http::Reply> reply_;
    std::shared_ptr<const http::Request> request_;
    Metrics& metrics_;
    const ServeOptions& options_;
    http::Headers headers_;
    int status_ = 0;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace forge::server
