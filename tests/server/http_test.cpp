// HTTP itself: what is no request, limits, many connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "http/http.h"
#include "http_client.h"

namespace forge::test {
namespace {

using testing::AnyOf;

TEST(Http, WhatIsNoRequestIsRefusedAndNothingElseHappens) {
    server::ServeOptions o = tiny_options();
    o.max_body = 100000;
    const auto server = tiny_server(o);
    const std::string ok = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const std::string bad[] = {
        "\r\n\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", "hello there\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /health HTTP/1.1\r\n\r\n",                                              // no host
        "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",             // two
        "GET health HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /he alth HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\nhello",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\nhello",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n" + std::string(300000, 'a'),
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(100000, 'x') + "\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\n: empty\r\n\r\n", "GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n",
        "GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET //health HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /v1/models/..%2f..%2fx HTTP/1.1\r\nHost: localhost\r\n\r\n",
        std::string("GET /health") + '\0' + " HTTP/1.1\r\nHost: localhost\r\n\r\n", "DELETE /health HTTP/1.1\r\nHost: localhost\r\n\r\n", "BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n"};
    for (const std::string& text : bad) {
        Connection c(server->port());
        c.send(text);
        const Response r = c.read_response();
        EXPECT_TRUE(r.status == 0 || (r.status >= 400 && r.status < 500) || r.status == 505) << r.status << " for " << text.substr(0, 80);
        EXPECT_EQ(r.body.find("\"status\":\"ok\""), std::string::npos) << text.substr(0, 80);
        // Not one byte after a broken request is taken for another.
        if (r.status != 404 && r.status != 405) {
            c.send(ok);
            EXPECT_TRUE(c.ended());
        }
    }
    EXPECT_EQ(ask(server->port(), "GET", "/health").status, 200);
}

TEST(Http, BadBodiesAreRefused) {
    const auto server = tiny_server();
    std::string deep(5000, '['), opened;
    for (int i = 0; i < 3000; ++i) opened += "{\"a\":";
    for (const std::string& body : {std::string(""), std::string("x"), std::string("[]"), std::string("5"), std::string("{\"prompt\":"), std::string("{\"prompt\":\"\xff\xfe\"}"),
                                    std::string("{\"prompt\":\"\xed\xa0\x80\"}"), std::string("{\"prompt\":\"\\ud800\"}"), std::string("{\"prompt\":1e999}"), std::string("{'prompt':'a'}"),
                                    std::string("\xef\xbb\xbf"), std::string(1, '\0'), "{\"prompt\":" + deep, "{\"prompt\":" + deep + std::string(5000, ']') + "}", opened,
                                    std::string("{\"prompt\":\"a\"} x"), std::string("{\"prompt\":[[[1]]]}"), std::string("{\"prompt\":[1,\"a\"]}"), std::string("{\"prompt\":{}}"),
                                    std::string("{\"prompt\":[]}"), std::string("{\"prompt\":[-1]}"), std::string("{\"prompt\":[99999999999999999999]}"), std::string("{\"prompt\":[1.5]}")}) {
        Connection c(server->port());
        c.send(request_text("POST", "/v1/completions", body, body.empty() ? "Content-Length: 0\r\n" : ""));
        const Response r = c.read_response();
        EXPECT_EQ(r.status, 400) << body.substr(0, 40) << r.body;
        EXPECT_TRUE(Json::accept(r.body)) << r.body;
    }
}

TEST(Http, KeepsConnectionsAndPipelines) {
    const auto server = tiny_server();
    Connection c(server->port());
    const std::string health = request_text("GET", "/health"), stream = request_text("POST", "/v1/completions", R"({"prompt":"a","max_tokens":5,"stream":true})");
    c.send(health + stream + health + request_text("HEAD", "/health"));
    EXPECT_EQ(c.read_response().status, 200);
    EXPECT_EQ(c.read_response().events().back(), "[DONE]");
    EXPECT_EQ(c.read_response().body, "{\"status\":\"ok\"}");
    c.close();
    // HTTP/1.0: no chunks, the end of the connection ends the answer.
    Connection old(server->port());
    const std::string body = R"({"prompt":"a","max_tokens":5,"stream":true})";
    old.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    const Response r = old.read_response();
    EXPECT_EQ(r.headers.count("transfer-encoding"), 0u);
    EXPECT_EQ(r.events().back(), "[DONE]");
    // A request in small pieces, with a body in chunks.
    Connection slow(server->port());
    const std::string chunked = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
    for (const char ch : chunked) slow.send(std::string(1, ch));
    slow.send("8\r\n{\"conten\r\n8\r\nt\":\"ab\"}\r\n0\r\n\r\n");
    EXPECT_EQ(slow.read_response().json()["count"], 2);
}

TEST(Http, IdleConnectionsDoNotStarveARequest) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    const std::size_t count = limit.rlim_cur > 2500 ? 1000 : (limit.rlim_cur - 100) / 2;
    const auto server = tiny_server();
    std::vector<std::unique_ptr<Connection>> idle;
    for (std::size_t i = 0; i < count; ++i) {
        idle.push_back(std::make_unique<Connection>(server->port()));
        if (i % 2) idle.back()->send("POST /v1/chat/comp");   // half of them in the middle of a header
    }
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(ask(server->port(), "GET", "/v1/models").status, 200);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));   // the others are dropped after 20 s
}

TEST(Http, ThePageRunsNoScriptButItsOwn) {
    const auto server = tiny_server();
    const Response r = ask(server->port(), "GET", "/"), again = ask(server->port(), "GET", "/");
    EXPECT_THAT(r.headers.at("content-type"), testing::HasSubstr("text/html"));
    const std::string policy = r.headers.at("content-security-policy");
    const std::size_t at = policy.find("'nonce-") + 7;
    EXPECT_NE(r.body.find("<script nonce=\"" + policy.substr(at, 24) + "\">"), std::string::npos);
    EXPECT_EQ(policy.find("script-src 'unsafe"), std::string::npos);
    EXPECT_NE(policy, again.headers.at("content-security-policy"));
    EXPECT_EQ(r.body.find("innerHTML"), std::string::npos);
    EXPECT_EQ(r.body.find("@NONCE@"), std::string::npos);
}

TEST(Http, PercentDecoding) {
    EXPECT_EQ(http::percent_decoded("/a%20b%2Fc+d"), "/a b/c+d");
    EXPECT_EQ(http::percent_decoded("a+b", true), "a b");
    for (const char* broken : {"%", "%1", "%zz", "a%f"}) EXPECT_ANY_THROW(http::percent_decoded(broken)) << broken;
    for (const char* local : {"localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"}) EXPECT_TRUE(http::is_loopback(local)) << local;
    for (const char* other : {"0.0.0.0", "192.168.1.1", "127.evil.org", "example.org", "", "::"}) EXPECT_FALSE(http::is_loopback(other)) << other;
}

}  // namespace
}  // namespace forge::test
