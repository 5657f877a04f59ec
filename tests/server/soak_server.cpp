// soak_server [SECONDS] [CLIENTS]: clients that stream, wait, leave in the middle, send long prompts, hold answers to
// schemas, have tools called and ask for embeddings, at once and for long, against a server in this process (so that a
// sanitizer sees both sides). Every answer must equal the one that a single client gets, what has a schema must fit it,
// and memory must not grow. Exit status 1 otherwise.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "http_client.h"
#include "tiny_chat.h"

namespace forge::test {
namespace {

using Clock = std::chrono::steady_clock;

// Of an answer: all but ids, which differ.
struct Answer {
    std::string content, reason;
    std::vector<std::pair<std::string, std::string>> calls;   // name and arguments
    std::string text() const {
        std::string all = content;
        for (const auto& [name, arguments] : calls) all += "\n" + name + arguments;
        return all + "\n" + reason;
    }
};

struct Request {
    std::string path;
    Json body;
    std::string expected = {};                          // the answer's text, or the embedding
    std::function<std::string(const Answer&)> fault = {};   // what is wrong with an answer; empty: nothing
};

const Json person = Json::parse(R"({"type": "object", "properties": {"kind": {"const": "person of some importance"}, "age": {"type": "integer", "minimum": 10, "maximum": 99},
    "name": {"type": "string", "minLength": 1, "maxLength": 8}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}}, "required": ["kind", "age", "name", "tags"], "additionalProperties": false})");
const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "weather", "strict": true, "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "days": {"enum": [1, 2]}, "exact": {"type": "boolean"}}, "required": ["city", "days"], "additionalProperties": false}}},
    {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}])");

bool is_person(const Json& v) {
    if (!v.is_object() || v.size() != 4) return false;
    const Json age = v.value("age", Json()), name = v.value("name", Json()), tags = v.value("tags", Json());
    return v.value("kind", Json()) == "person of some importance" && age.is_number_integer() && age >= 10 && age <= 99 && name.is_string() && name != "" &&
           name.get<std::string>().size() <= 8 * 4 && tags.is_array() && tags.size() <= 2 &&
           std::all_of(tags.begin(), tags.end(), [](const Json& t) { return t == "a" || t == "b"; });
}

std::string person_fault(const Answer& a) {
    if (a.reason != "stop") return "an answer with a schema ended with " + a.reason;
    return is_person(Json::parse(a.content, nullptr, false)) ? "" : "this does not fit its schema: " + a.content;
}

std::string call_fault(const Answer& a) {
    for (const auto& [name, text] : a.calls) {
        const Json v = Json::parse(text, nullptr, false);
        const bool fits = name == "time" ? v == Json::object()
                                         : name == "weather" && v.is_object() && v.contains("city") && v["city"].is_string() && v.contains("days") && (v["days"] == 1 || v["days"] == 2) &&
                                               (!v.contains("exact") || v["exact"].is_boolean()) && v.size() <= 3;
        if (!fits) return "this call does not fit its tool: " + name + " " + text;
    }
    return "";
}

std::string forced_call_fault(const Answer& a) {
    if (a.calls.empty() || a.reason != "tool_calls") return "no tool was called, and the answer ended with " + a.reason;
    return call_fault(a);
}

std::vector<Request> requests() {
    std::vector<Request> all;
    const std::string system = "You are a careful assistant, and this is the long beginning that many conversations share, word for word. ";
    for (int i = 0; i < 24; ++i) {
        const bool shared = i % 3 == 0, longer = i % 4 == 1;
        Json messages = Json::array();
        if (shared) messages.push_back({{"role", "system"}, {"content", system}});
        messages.push_back({{"role", "user"}, {"content", "Question " + std::to_string(i) + (longer ? std::string(200 + 5 * static_cast<std::size_t>(i), static_cast<char>('a' + i)) : "")}});
        all.push_back({"/v1/chat/completions", {{"messages", messages}, {"max_tokens", 8 + 5 * (i % 9)}, {"temperature", i % 2 ? 0.0 : 1.0}, {"seed", i}, {"ignore_eos", i % 5 == 0}}, ""});
        if (i % 7 == 3) all.back().body["stop"] = {"a", "of the"};
    }
    for (int i = 0; i < 12; ++i) {
        Json messages = Json::array();
        if (i % 2) messages.push_back({{"role", "system"}, {"content", system}});
        messages.push_back({{"role", "user"}, {"content", "Request " + std::to_string(i)}});
        Request r{"/v1/chat/completions", {{"messages", messages}, {"max_tokens", 400}, {"temperature", i % 3 ? 1.0 : 0.0}, {"seed", i}}};
        if (i < 5) {
            r.body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "person"}, {"strict", true}, {"schema", person}}}};
            r.fault = person_fault;
        } else {
            r.body["tools"] = tools;
            r.fault = forced_call_fault;
            if (i < 8) r.body["tool_choice"] = "required", r.body["parallel_tool_calls"] = false;
            else if (i < 10) r.body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "weather"}}}};
            else r.body["max_tokens"] = 30, r.fault = call_fault;   // it may call, and hardly ever does
        }
        all.push_back(std::move(r));
    }
    for (int i = 0; i < 4; ++i) all.push_back({"/v1/embeddings", {{"input", "A text " + std::string(static_cast<std::size_t>(40 * i), 'x')}, {"pooling", i % 2 ? "mean" : "last"}}, ""});
    return all;
}

Answer whole_answer(const Response& r) {
    const Json choice = r.json()["choices"][0];
    const Json& message = choice["message"];
    Answer a{message["content"].is_string() ? message["content"].get<std::string>() : "", choice["finish_reason"].get<std::string>(), {}};
    if (message.contains("tool_calls"))
        for (const Json& call : message["tool_calls"]) a.calls.emplace_back(call["function"]["name"].get<std::string>(), call["function"]["arguments"].get<std::string>());
    return a;
}

Answer streamed_answer(const Response& r) {
    Answer a;
    bool over = false;
    for (const Json& event : r.events()) {
        if (event == "[DONE]") over = true;
        if (!event.is_object() || event["choices"].empty()) continue;
        const Json& choice = event["choices"][0];
        const Json& delta = choice["delta"];
        if (delta.contains("content") && delta["content"].is_string()) a.content += delta["content"].get<std::string>();
        if (delta.contains("tool_calls"))
            for (const Json& call : delta["tool_calls"]) {
                const auto index = call["index"].get<std::size_t>();
                if (index >= a.calls.size()) a.calls.resize(index + 1);
                if (call["function"].contains("name")) a.calls[index].first += call["function"]["name"].get<std::string>();
                if (call["function"].contains("arguments")) a.calls[index].second += call["function"]["arguments"].get<std::string>();
            }
        if (choice["finish_reason"].is_string()) a.reason = choice["finish_reason"].get<std::string>();
    }
    if (!over) a.reason = "no end";
    return a;
}

// What an answer says, or what is wrong with it.
std::string text_of(const Request& request, const Response& r, bool stream) {
    if (r.status != 200) return "status " + std::to_string(r.status) + " " + r.body;
    if (request.path == "/v1/embeddings") return r.json()["data"][0]["embedding"].dump();
    const Answer a = stream ? streamed_answer(r) : whole_answer(r);
    if (request.fault)
        if (const std::string fault = request.fault(a); !fault.empty()) return fault;
    return a.text();
}

// Bytes of memory in use by this process; 0 where that is not known.
std::size_t resident() {
    std::ifstream in("/proc/self/statm");
    std::size_t size = 0, pages = 0;
    in >> size >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

struct Counts { std::atomic<long> whole{0}, streamed{0}, cancelled{0}, refused{0}, wrong{0}; };

void complain(Counts& counts, const Request& request, const std::string& found) {
    if (++counts.wrong <= 5) std::fprintf(stderr, "%s\nexpected: %s\nfound:    %s\n", request.body.dump().c_str(), request.expected.c_str(), found.c_str());
}

void client(std::uint16_t port, const std::vector<Request>& all, unsigned seed, Clock::time_point end, Counts& counts) {
    std::mt19937 rng(seed);
    while (Clock::now() < end) {
        const Request& request = all[rng() % all.size()];
        Json body = request.body;
        const unsigned kind = rng() % 4;
        const bool stream = kind != 0 && request.path != "/v1/embeddings";
        if (stream) body["stream"] = true;
        try {
            Connection c(port);
            c.send(request_text("POST", request.path, body.dump()));
            if (kind == 3) {   // leaves at once, or after the first bytes
                if (rng() % 2) c.read_some();
                c.close();
                ++counts.cancelled;
                continue;
            }
            const Response r = c.read_response();
            if (r.status == 429) {
                ++counts.refused;
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                continue;
            }
            const std::string found = text_of(request, r, stream);
            if (found != request.expected) complain(counts, request, found);
            ++(stream ? counts.streamed : counts.whole);
        } catch (const std::exception& error) {
            complain(counts, request, error.what());
        }
    }
}

int soak(double seconds, unsigned clients) {
    server::ServeOptions options = tiny_options();
    options.models[0].path = tiny_json_model();   // its vocabulary can spell JSON
    options.load.threads = 2;
    options.load.parallel = 3;         // fewer than clients, so that some wait
    options.max_queue = 4;             // and some are refused
    options.prefix_bytes = 1 << 20;    // less than what all hold, so that entries leave
    const auto server = tiny_server(options);
    std::vector<Request> all = requests();
    for (Request& request : all) {
        const Response r = ask(server->port(), "POST", request.path, request.body);
        if (r.status != 200) {
            std::fprintf(stderr, "%s was answered %d %s\n", request.body.dump().c_str(), r.status, r.body.c_str());
            return 1;
        }
        request.expected = text_of(request, r, false);
        if (const std::string fault = request.fault ? request.fault(whole_answer(r)) : ""; !fault.empty()) {
            std::fprintf(stderr, "%s\n%s\n", request.body.dump().c_str(), fault.c_str());
            return 1;
        }
    }
    const auto start = Clock::now(), end = start + std::chrono::milliseconds(static_cast<long>(seconds * 1000));
    Counts counts;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < clients; ++i) threads.emplace_back([&, i] { client(server->port(), all, i + 1, end, counts); });
    // After a third of the time everything that is kept has its size.
    std::this_thread::sleep_until(start + (end - start) / 3);
    const std::size_t early = resident();
    for (std::thread& thread : threads) thread.join();
    const std::size_t late = resident();
    bool good = counts.wrong == 0;
    if (!becomes(server->port(), "forge_slots_busy", 0, 5) || !becomes(server->port(), "forge_queue", 0, 5)) {
        std::fprintf(stderr, "a slot is still busy, though every client is gone\n");
        good = false;
    }
    const double grown = (static_cast<double>(late) - static_cast<double>(early)) / (1 << 20);
    std::printf("%ld whole, %ld streamed, %ld cancelled, %ld refused, %ld wrong; prefix cache %.1f KiB; memory %.1f MiB, %+.1f since a third of the time\n",
                counts.whole.load(), counts.streamed.load(), counts.cancelled.load(), counts.refused.load(), counts.wrong.load(),
                metric(server->port(), "forge_prefix_store_bytes") / 1024, static_cast<double>(late) / (1 << 20), grown);
    if (seconds >= 20 && grown > 24) {
        std::fprintf(stderr, "memory grew\n");
        good = false;
    }
    if (counts.whole + counts.streamed == 0) good = false;
    return good ? 0 : 1;
}

}  // namespace
}  // namespace forge::test

int main(int argc, char** argv) {
    return forge::test::soak(argc > 1 ? std::atof(argv[1]) : 10, argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 8);
}
