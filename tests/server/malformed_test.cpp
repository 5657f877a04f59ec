// tests/data/server/malformed.txt: each request is answered 4xx, and nothing else happens.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "http_client.h"

namespace forge::test {
namespace {

// "<0D0A>" and "<5000*61>" to bytes.
std::string bytes_of(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const std::size_t end = text[i] == '<' ? text.find('>', i) : std::string::npos;
        if (end == std::string::npos) {
            out += text[i];
            continue;
        }
        std::string hex = text.substr(i + 1, end - i - 1), once;
        std::size_t times = 1;
        if (const std::size_t star = hex.find('*'); star != std::string::npos) {
            times = std::stoul(hex.substr(0, star));
            hex = hex.substr(star + 1);
        }
        for (std::size_t k = 0; k + 1 < hex.size(); k += 2) once += static_cast<char>(std::stoi(hex.substr(k, 2), nullptr, 16));
        while (times--) out += once;
        i = end;
    }
    return out;
}

struct Case { std::string status, what, content; int line; };

std::vector<Case> cases() {
    std::ifstream in(FORGE_TEST_DATA "/server/malformed.txt");
    std::vector<Case> all;
    int number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        if (line.empty() || line[0] == '#') continue;
        const std::size_t a = line.find('\t'), b = line.find('\t', a + 1);
        if (b == std::string::npos) throw std::runtime_error("line " + std::to_string(number) + " has no three columns");
        all.push_back({line.substr(0, a), line.substr(a + 1, b - a - 1), line.substr(b + 1), number});
    }
    return all;
}

void check(std::uint16_t port, const Case& c) {
    SCOPED_TRACE("line " + std::to_string(c.line) + ": " + c.what + " " + c.content.substr(0, 100));
    const std::string content = bytes_of(c.content);
    const bool raw = c.what == "RAW";
    Connection connection(port);
    if (raw) {
        connection.send(content);
    } else {
        const std::size_t space = c.what.find(' ');
        connection.send(request_text(c.what.substr(0, space), c.what.substr(space + 1), content, content.empty() ? "Content-Length: 0\r\n" : ""));
    }
    const auto start = std::chrono::steady_clock::now();
    const Response r = connection.read_response();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50)) << "it kept the client waiting";
    if (c.status == "4xx") EXPECT_TRUE((raw && r.status == 0) || (r.status >= 400 && r.status < 500) || r.status == 505) << r.status << " " << r.body;
    else EXPECT_EQ(std::to_string(r.status), c.status) << r.body;
    if (r.status == 0) return;
    ASSERT_TRUE(Json::accept(r.body)) << r.body;
    EXPECT_TRUE(r.json().contains("error")) << r.body;
    // What follows a request whose end is not known must not be taken for another one.
    if (c.status != "4xx" || r.status == 403 || r.status == 404 || r.status == 405) return;
    connection.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_TRUE(connection.ended());
}

TEST(Malformed, IsAnsweredInWordsAndNothingElseHappens) {
    server::ServeOptions o = tiny_options();
    o.max_body = 262144;
    const auto server = tiny_server(o);
    const std::uint16_t port = server->port();
    const double generated = metric(port, "forge_generated_tokens_total");
    const auto all = cases();
    ASSERT_GE(all.size(), 200u);
    // A server that closes a connection waits a moment for what the client still sends: several at once.
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i)
        threads.emplace_back([&] {
            for (std::size_t k; (k = next++) < all.size();) check(port, all[k]);
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(metric(port, "forge_generated_tokens_total"), generated);
    EXPECT_EQ(metric(port, "forge_slots_busy"), 0);
    EXPECT_EQ(ask(port, "GET", "/health").status, 200);
}

// Also what no handler has seen.
TEST(Malformed, IsToldInTheProtocolsWords) {
    server::ServeOptions o = tiny_options();
    o.max_body = 1000;
    const auto server = tiny_server(o);
    const auto refused = [&](const char* path) {
        Connection c(server->port());
        c.send(request_text("POST", path, std::string(2000, 'a')));
        const Response r = c.read_response();
        EXPECT_EQ(r.status, 413);
        return r.json()["error"];
    };
    EXPECT_EQ(refused("/v1/messages?beta=true")["type"], "request_too_large");
    EXPECT_EQ(refused("/v1/chat/completions")["type"], "invalid_request_error");
    EXPECT_TRUE(refused("/api/chat").is_string());
}

}  // namespace
}  // namespace forge::test
