#include "app.h"

#include <algorithm>

#include "access.h"
#include "anthropic.h"
#include "base/log.h"
#include "embeddings.h"
#include "ollama.h"
#include "openai.h"
#include "tracked_reply.h"

namespace forge::server {

std::string error_body(std::string_view path, const ApiError& error) {
    if (path.starts_with("/v1/messages")) return dump(anthropic_error(error));
    if (path.starts_with("/api/")) return dump(ollama_error(error));
    return dump(openai_error(error));
}

bool Call::is(std::string_view method, std::string_view path) const {
    if (request.path != path) return false;
    if (request.method == method || (method == "GET" && request.method == "HEAD")) return true;
    throw ApiError(405, "", fmt::format("{} is asked with {}, not with {}", path, method, request.method.substr(0, 20)));
}

void run(const Call& call, Translated t) {
    double load_seconds = 0;
    const auto served = call.app.models.get(t.request.model, &load_seconds);
    served->keep(t.request.keep_alive);
    generate(served, std::move(t.request), std::move(t.writer), call.reply, call.app.metrics, load_seconds);
}

void send_error(http::Reply& reply, std::string_view path, const ApiError& error, Metrics& metrics) {
    if (error.status() == 429) ++metrics.refused;
    http::Headers headers;
    if (error.retry_after > 0) headers.emplace_back("Retry-After", std::to_string(error.retry_after));
    if (error.status() == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
    reply.send(error.status(), "application/json", error_body(path, error), headers);
}

ApiError as_api_error(const Error& error) {
    if (const auto* known = dynamic_cast<const ApiError*>(&error)) return *known;
    if (dynamic_cast<const QueueFull*>(&error)) {
        ApiError full(429, "", error.what(), "queue_full");
        full.retry_after = 2;
        return full;
    }
    switch (error.kind()) {
        case ErrorKind::invalid_input:
        case ErrorKind::unsupported: return {400, "", error.what()};
        case ErrorKind::not_found: return {404, "", error.what()};
        case ErrorKind::out_of_memory: return {503, "", error.what()};
        default: return {500, "", error.what()};
    }
}

void App::handle(const std::shared_ptr<const http::Request>& request, const std::shared_ptr<http::Reply>& plain) {
    answer(request, std::make_shared<TrackedReply>(plain, request, metrics, options));
}

// A request that needs a model which is being loaded comes here again when that is done: it keeps no worker from others.
void App::answer(const std::shared_ptr<const http::Request>& request, const std::shared_ptr<TrackedReply>& reply, std::exception_ptr failed) {
    try {
        if (failed) std::rethrow_exception(failed);
        try {
            route(*request, reply);
        } catch (const StillLoading& loading) {
            models.when_loaded(loading.model, [this, request, reply](std::exception_ptr error) {
                reply->again([this, request, reply, error] { answer(request, reply, error); });
            });
        }
    } catch (const Error& error) {
        send_error(*reply, request->path, as_api_error(error), metrics);
    } catch (const std::bad_alloc&) {
        send_error(*reply, request->path, ApiError(503, "", "memory ran out"), metrics);
    }
}

void App::route(const http::Request& request, const std::shared_ptr<TrackedReply>& reply) {
    Access access(options, request);
    access.check_host();
    reply->set_headers(access.cors_headers());
    if (request.method == "OPTIONS") return reply->send(204, "text/plain", "");
    access.check_key();
    if (draining) throw ApiError(503, "", "the server is stopping");
    const std::shared_ptr<http::Reply> as_reply = reply;
    const Call call{*this, request, as_reply};
    if (route_native(call) || route_slots(call) || route_openai(call) || route_anthropic(call) || route_ollama(call)) return;
    throw ApiError(404, "", fmt::format("there is nothing at {} {}", request.method.substr(0, 20), request.path.substr(0, 200)), "not_found");
}

bool route_openai(const Call& call) {
    const http::Request& request = call.request;
    if (call.is("POST", "/v1/chat/completions")) return run(call, openai_chat(call.body())), true;
    if (call.is("POST", "/v1/responses")) return run(call, openai_response(call.body())), true;
    if (call.is("POST", "/v1/completions")) return run(call, openai_completion(call.body())), true;
    const auto model_json = [&](const ServedModelName& name) {
        return Json{{"id", name.name}, {"object", "model"}, {"created", 0}, {"owned_by", "forge"}, {"aliases", name.aliases}};
    };
    if (call.is("GET", "/v1/models")) {
        Json data = Json::array();
        for (const ServedModelName& name : call.app.models.names()) data.push_back(model_json(name));
        call.send({{"object", "list"}, {"data", data}});
        return true;
    }
    if (call.is("POST", "/v1/embeddings")) return openai_embeddings(call), true;
    if (request.path.starts_with("/v1/models/")) {
        const std::string name = request.path.substr(11);
        if (!call.is("GET", request.path)) return false;
        if (name.empty()) throw ApiError(404, "model", "the path names no model", "model_not_found");
        call.send(model_json(call.app.models.resolve(name)));
        return true;
    }
    return false;
}

}  // namespace forge::server
