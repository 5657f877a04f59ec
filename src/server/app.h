// Routes: which function answers which path.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "generation.h"
#include "http/http.h"

namespace forge::server {

class TrackedReply;

struct App {
    ServeOptions options;
    Models models;
    Metrics metrics;
    std::atomic<bool> draining{false};

    explicit App(const ServeOptions& o) : options(o), models(o) {}
    void handle(const std::shared_ptr<const http::Request>& request, const std::shared_ptr<http::Reply>& reply);

  private:
    void answer(const std::shared_ptr<const http::Request>& request, const std::shared_ptr<TrackedReply>& reply, std::exception_ptr failed = nullptr);
    void route(const http::Request& request, const std::shared_ptr<TrackedReply>& reply);
};

// Errors in the words of the protocol that a path belongs to.
std::string error_body(std::string_view path, const ApiError& error);
// The answer to a request of that path: it cannot be answered. Counts the refusals of full queues.
void send_error(http::Reply& reply, std::string_view path, const ApiError& error, Metrics& metrics);
// What a client is told of an error.
ApiError as_api_error(const Error& error);

// Each protocol's routes in its own file; false: not a path of mine.
struct Call {
    App& app;
    const http::Request& request;
    const std::shared_ptr<http::Reply>& reply;

    bool is(std::string_view method, std::string_view path) const;   // ApiError 405 for another method
    void send(const Json& json, int status = 200) const { reply->send(status, "application/json", dump(json)); }
    Json body() const { return parse_object(request.body); }
};
bool route_openai(const Call& call);
bool route_anthropic(const Call& call);
bool route_ollama(const Call& call);
bool route_slots(const Call& call);
bool route_native(const Call& call);   // /tokenize, /health, /metrics, ...

// Runs a translated request.
struct Translated;
void run(const Call& call, Translated translated);

}  // namespace forge::server
