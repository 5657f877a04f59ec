// soak_server [SECONDS] [CLIENTS]: clients that stream, wait, leave in the middle, send long prompts and ask for
// embeddings, at once and for long, against a server in this process (so that a sanitizer sees both sides).
// Every answer must equal the one that a single client gets, and memory must not grow. Exit status 1 otherwise.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "http_client.h"

namespace forge::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Request {
    std::string path;
    Json body;
    std::string expected;   // the answer's text, or the embedding
};

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
    for (int i = 0; i < 4; ++i) all.push_back({"/v1/embeddings", {{"input", "A text " + std::string(static_cast<std::size_t>(40 * i), 'x')}, {"pooling", i % 2 ? "mean" : "last"}}, ""});
    return all;
}

std::string text_of(const Request& request, const Response& r) {
    const Json json = r.json();
    if (request.path == "/v1/embeddings") return json["data"][0]["embedding"].dump();
    return json["choices"][0]["message"]["content"].get<std::string>() + "\n" + json["choices"][0]["finish_reason"].get<std::string>();
}

std::string streamed_text(const Response& r) {
    std::string text, reason;
    bool over = false;
    for (const Json& event : r.events()) {
        if (event == "[DONE]") over = true;
        if (!event.is_object() || event["choices"].empty()) continue;
        const Json& choice = event["choices"][0];
        if (choice["delta"].contains("content") && choice["delta"]["content"].is_string()) text += choice["delta"]["content"].get<std::string>();
        if (choice["finish_reason"].is_string()) reason = choice["finish_reason"].get<std::string>();
    }
    return text + "\n" + (over ? reason : "no end");
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
            const std::string found = r.status != 200 ? "status " + std::to_string(r.status) + " " + r.body : stream ? streamed_text(r) : text_of(request, r);
            if (found != request.expected) complain(counts, request, found);
            ++(stream ? counts.streamed : counts.whole);
        } catch (const std::exception& error) {
            complain(counts, request, error.what());
        }
    }
}

int soak(double seconds, unsigned clients) {
    server::ServeOptions options = tiny_options();
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
        request.expected = text_of(request, r);
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
