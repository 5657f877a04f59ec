// Keys, hosts, origins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "access.h"
#include "base/error.h"
#include "http_client.h"

namespace forge::test {
namespace {

TEST(Access, KeysAreAskedFor) {
    server::ServeOptions o = tiny_options();
    o.keys = {"secret-1", "secret-2"};
    const auto server = tiny_server(o);
    const auto get = [&](const std::string& path, const std::string& headers) { return ask(server->port(), "GET", path, nullptr, headers); };
    EXPECT_EQ(get("/v1/models", "").status, 401);
    EXPECT_EQ(get("/v1/models", "").headers.count("www-authenticate"), 1u);
    for (const char* wrong : {"Authorization: Bearer secret-3\r\n", "Authorization: Bearer \r\n", "Authorization: Bearer secret-1x\r\n", "Authorization: secret-1\r\n", "X-Api-Key: s\r\n"})
        EXPECT_EQ(get("/v1/models", wrong).status, 401) << wrong;
    for (const char* right : {"Authorization: Bearer secret-1\r\n", "authorization: bearer secret-2\r\n", "x-api-key: secret-2\r\n"})
        EXPECT_EQ(get("/v1/models", right).status, 200) << right;
    EXPECT_EQ(get("/health", "").status, 200);
    EXPECT_EQ(ask(server->port(), "POST", "/v1/messages", Json::object()).json()["type"], "error");   // in the protocol's own words
    // With a key any host name will do: who has no key learns nothing.
    EXPECT_EQ(get("/v1/models", "Host: example.org\r\nx-api-key: secret-2\r\n").status, 200);
}

TEST(Access, OtherHostsAndOriginsAreRefused) {
    server::ServeOptions o = tiny_options();
    o.origins = {"https://good.example"};
    o.hosts = {"box.lan"};
    const auto server = tiny_server(o);
    const auto status = [&](const std::string& headers) { return ask(server->port(), "GET", "/v1/models", nullptr, headers).status; };
    for (const char* host : {"localhost", "localhost:99", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST", "box.lan"})
        EXPECT_EQ(status(std::string("Host: ") + host + "\r\n"), 200) << host;
    for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "evil.example:80"})
        EXPECT_EQ(status(std::string("Host: ") + host + "\r\n"), 403) << host;
    EXPECT_EQ(status("Origin: https://good.example\r\n"), 200);
    EXPECT_EQ(status("Origin: http://localhost\r\n"), 200);   // our own page
    EXPECT_EQ(status("Origin: https://evil.example\r\n"), 403);
    EXPECT_EQ(status("Origin: null\r\n"), 403);
    const Response allowed = ask(server->port(), "OPTIONS", "/v1/chat/completions", nullptr, "Origin: https://good.example\r\n");
    EXPECT_EQ(allowed.status, 204);
    EXPECT_EQ(allowed.headers.at("access-control-allow-origin"), "https://good.example");
    EXPECT_EQ(ask(server->port(), "GET", "/v1/models").headers.count("access-control-allow-origin"), 0u);
    // Headers that a client sends of its own are allowed by name, and nothing else gets into the answer.
    const auto allowed_headers = [&](const std::string& asked) {
        return ask(server->port(), "OPTIONS", "/v1/chat/completions", nullptr, "Origin: https://good.example\r\nAccess-Control-Request-Headers: " + asked + "\r\n").headers.at("access-control-allow-headers");
    };
    EXPECT_EQ(allowed_headers("authorization,content-type,x-stainless-lang"), "authorization,content-type,x-stainless-lang");
    EXPECT_THAT(allowed_headers("x<y>"), testing::HasSubstr("Authorization"));
}

TEST(Access, ANetworkAddressNeedsAKey) {
    server::ServeOptions o = tiny_options();
    o.host = "0.0.0.0";
    try {
        tiny_server(o);
        FAIL() << "it listened without a key";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("give a key"));
    }
    o.keys = {"k"};
    EXPECT_EQ(ask(tiny_server(o)->port(), "GET", "/health").status, 200);
}

TEST(Access, EqualityDoesNotStopAtTheFirstDifference) {
    EXPECT_TRUE(server::equal_in_constant_time("abc", "abc"));
    for (const auto& [a, b] : {std::pair{"abc", "abd"}, {"abc", "ab"}, {"ab", "abc"}, {"", "a"}, {"a", ""}, {"abcabc", "abc"}})
        EXPECT_FALSE(server::equal_in_constant_time(a, b)) << a << " " << b;
    EXPECT_TRUE(server::equal_in_constant_time("", ""));
}

}  // namespace
}  // namespace forge::test
