#include "request.h"

#include <mutex>
#include <random>

namespace forge::server {

void Answer::add(const TextDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    for (const ToolCallDelta& call : delta.calls) {
        if (static_cast<std::size_t>(call.index) >= calls.size()) calls.resize(static_cast<std::size_t>(call.index) + 1);
        Call& mine = calls[static_cast<std::size_t>(call.index)];
        if (!call.id.empty()) mine.id = call.id;
        if (!call.name.empty()) mine.name = call.name;
        mine.arguments += call.arguments;
    }
    logprobs.insert(logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
}

std::string random_id(std::size_t length) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    static std::mutex mutex;
    static std::mt19937_64 generator{std::random_device{}()};
    std::lock_guard lock(mutex);
    std::string id(length, ' ');
    for (char& c : id) c = letters[generator() % 62];
    return id;
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string sse(const Json& data, std::string_view event) {
    return event.empty() ? fmt::format("data: {}\n\n", dump(data)) : fmt::format("event: {}\ndata: {}\n\n", event, dump(data));
}

std::string sse_choice(std::string_view frame, const Json& choice, bool null_usage) {
    return fmt::format("data: {},\"choices\":[{}]{}}}\n\n", frame.substr(0, frame.size() - 1), dump(choice), null_usage ? ",\"usage\":null" : "");
}

}  // namespace forge::server
