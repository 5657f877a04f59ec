#include "server/server.h"

#include <atomic>
#include <thread>

#include "app.h"

namespace forge::server {

struct ApiServer::State {
    App app;
    std::unique_ptr<http::Server> http;
    std::atomic<bool> ready{false};
    explicit State(const ServeOptions& options) : app(options) {}
};

ApiServer::ApiServer(const ServeOptions& options) {
    if (options.models.empty()) fail("a server needs at least one model");
    if (!http::is_loopback(options.host) && options.keys.empty())
        fail("{} can be reached from other machines, and whoever reaches it could use the model: give a key (--api-key, --api-key-file or FORGE_API_KEY), or serve on 127.0.0.1", options.host);
    state_ = std::make_unique<State>(options);
    App& app = state_->app;
    http::Options http_options;
    http_options.host = options.host;
    http_options.port = options.port;
    http_options.limits.body = options.max_body;
    http_options.workers += static_cast<int>(std::min<std::size_t>(options.models.size(), 16));   // one may load each
    // The address first: a port that is taken should not cost the time of loading a model. Requests wait until it is
    // there, but whoever asks whether to send some is told not to.
    state_->http = std::make_unique<http::Server>(
        http_options,
        [&app, &ready = state_->ready](const auto& request, const auto& reply) {
            if (!ready && request->method == "GET" && request->path == "/health")
                return reply->send(503, "application/json", R"({"status":"loading","message":"the first model is being loaded"})");
            app.handle(request, reply);
        },
        [](std::string_view path, int status, std::string_view message) { return std::pair<std::string, std::string>("application/json", error_body(path, ApiError(status, "", std::string(message)))); });
    warm_up(*app.models.get_and_wait(""));
    state_->ready = true;
}

ApiServer::~ApiServer() { drain(std::chrono::milliseconds(0)); }

std::uint16_t ApiServer::port() const { return state_->http->port(); }

std::string ApiServer::url() const {
    const std::string& host = state_->app.options.host;
    return fmt::format("http://{}:{}", host.find(':') != std::string::npos && host[0] != '[' ? "[" + host + "]" : host, port());
}

void ApiServer::drain(std::chrono::milliseconds grace) {
    if (!state_->http) return;
    state_->app.draining = true;
    state_->http->stop_accepting();
    const auto until = [&](std::chrono::milliseconds time) {
        const auto end = std::chrono::steady_clock::now() + time;
        while (state_->http->active() > 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    until(grace);
    state_->app.models.close();   // cancels what is left; each answer ends with an error that says so
    until(std::chrono::milliseconds(500));
    state_->http = nullptr;
}

}  // namespace forge::server
