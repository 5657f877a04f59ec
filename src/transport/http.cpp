// What of HTTP does not need a library: redirects, retries, explanations.
#include "transport/http.h"

#include <algorithm>
#include <charconv>
#include <thread>

#include "base/json.h"
#include "base/log.h"

namespace forge {
namespace {

constexpr int kMaxRedirects = 10;

bool is_redirect(int status) { return status == 301 || status == 302 || status == 303 || status == 307 || status == 308; }

}  // namespace

std::string HttpAnswer::header(std::string_view lower_name) const {
    for (auto i = headers.rbegin(); i != headers.rend(); ++i)
        if (i->first == lower_name) return i->second;
    return "";
}

HttpAnswer HttpConnection::send(const HttpRequest& request, const HttpSink& sink) {
    Url url = parse_url(request.url);
    const Url origin = url;
    HttpRequest current = request;
    for (int redirects = 0;; ++redirects) {
        const bool with_authorization = !request.authorization.empty() && url.same_origin(origin);
        HttpAnswer answer = exchange(current, url, with_authorization, sink);
        if (!is_redirect(answer.status) || request.follow == HttpRequest::Follow::none) return answer;
        const std::string location = answer.header("location");
        if (location.empty()) return answer;
        const Url next = resolve_url(url, location);
        if (request.follow == HttpRequest::Follow::same_host && !next.same_origin(url)) return answer;
        if (redirects == kMaxRedirects) fail(ErrorKind::io, "{} redirects more than {} times", shown_url(request.url), kMaxRedirects);
        if (url.scheme == "https" && next.scheme == "http")
            fail(ErrorKind::io, "{} redirects to {}, from an encrypted connection to an open one, which is not followed", shown_url(url.text()),
                 shown_url(next.text()));
        log_debug("{} redirects to {}", shown_url(url.text()), shown_url(next.text()));
        if (answer.status == 303 && current.method != "HEAD") {
            current.method = "GET";
            current.body.clear();
            current.file = {};
        }
        url = next;
    }
}

HttpAnswer HttpConnection::send_retrying(const HttpRequest& request) {
    for (int attempt = 1;; ++attempt) {
        try {
            HttpAnswer answer = send(request);
            throw_if_transient(answer);
            return answer;
        } catch (const NetworkError& error) {
            if (attempt >= options_.tries) throw;
            log_debug("{}; trying again", error.what());
            pause(options_, pause_before(options_, attempt, error.wait));
        }
    }
}

void throw_if_transient(const HttpAnswer& answer) {
    if (answer.status != 429 && answer.status < 500) return;
    const std::string asked = answer.header("retry-after");
    int seconds = 0;
    std::from_chars(asked.data(), asked.data() + asked.size(), seconds);  // a date instead counts as nothing asked
    const std::string why = explanation(answer);
    throw NetworkError(fmt::format("{} answered with status {}{}{}", shown_url(answer.url), answer.status, why.empty() ? "" : ": ", why),
                       std::chrono::seconds(std::clamp(seconds, 0, 300)));
}

void pause(const HttpOptions& options, std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    for (;;) {
        if (options.cancelled()) throw Interrupted();
        const auto now = std::chrono::steady_clock::now();
        if (now >= end) return;
        std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(end - now, std::chrono::milliseconds(50)));
    }
}

std::chrono::milliseconds pause_before(const HttpOptions& options, int attempt, std::chrono::milliseconds wait) {
    return std::min<std::chrono::milliseconds>(std::max(options.first_pause * (1 << std::clamp(attempt - 1, 0, 4)), wait), std::chrono::minutes(5));
}

std::string explanation(const HttpAnswer& answer) {
    using Json = nlohmann::json;
    std::string text;
    try {
        const Json json = parse_json<Json>(answer.body, "the answer", false);
        if (json.is_object()) {
            if (const auto error = json.find("error"); error != json.end() && error->is_string()) text = error->get<std::string>();
            if (const auto errors = json.find("errors"); errors != json.end() && errors->is_array() && !errors->empty()) {
                const Json& first = (*errors)[0];
                if (first.is_object() && first.contains("message") && first["message"].is_string()) text = first["message"].get<std::string>();
            }
        }
    } catch (const Error&) {
        // nested too deep to be an explanation
    }
    if (text.empty()) text = answer.header("x-error-message");
    if (text.empty() && answer.header("content-type").starts_with("text/plain")) text = answer.body;
    text = text.substr(0, 300);
    for (char& c : text)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
}

}  // namespace forge
