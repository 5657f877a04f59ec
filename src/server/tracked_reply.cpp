#include "tracked_reply.h"

#include <cstdio>
#include <ctime>

#include "request.h"

namespace forge::server {
namespace {

// A label of the metrics must come from a fixed set, or anyone could make it grow.
std::string route_of(const http::Request& request, int status) {
    if (status == 404 || status == 405 || status == 0) return "other";
    if (request.path.starts_with("/v1/models/")) return "/v1/models/{model}";
    if (request.path.starts_with("/slots/")) return "/slots/{slot}";
    return request.method == "OPTIONS" ? "other" : request.path;
}

}  // namespace

void TrackedReply::send(int status, std::string_view type, std::string body, http::Headers headers) {
    status_ = status;
    headers.insert(headers.end(), headers_.begin(), headers_.end());
    reply_->send(status, type, std::move(body), std::move(headers));
}

void TrackedReply::start(int status, std::string_view type, http::Headers headers) {
    status_ = status;
    headers.insert(headers.end(), headers_.begin(), headers_.end());
    reply_->start(status, type, std::move(headers));
}

// The last who held the answer lets go of it: it is over, or its client is gone.
TrackedReply::~TrackedReply() {
    metrics_.count_request(status_ == 403 || status_ == 401 ? "other" : route_of(*request_, status_), status_);
    if (!options_.log_requests) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const std::string path = request_->path.substr(0, 200);
    if (options_.log_json) {
        const std::string line = dump({{"time", std::time(nullptr)}, {"method", request_->method.substr(0, 20)}, {"path", path}, {"status", status_}, {"seconds", seconds}});
        std::fprintf(stderr, "%s\n", line.c_str());
        return;
    }
    std::string safe;
    for (const char c : path) safe += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    const std::string line = fmt::format("{} {} {} {:.3f} s", request_->method.substr(0, 20), safe, status_ == 0 ? "gone" : std::to_string(status_), seconds);
    std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace forge::server
