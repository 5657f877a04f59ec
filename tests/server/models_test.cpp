// Models that come and go: idle ones are unloaded, asked ones are loaded, answers stay the same.
#include <gtest/gtest.h>

#include <thread>

#include "http_client.h"

namespace forge::test {
namespace {

std::size_t loaded(std::uint16_t port) { return ask(port, "GET", "/api/ps").json()["models"].size(); }

bool all_unloaded(std::uint16_t port, double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
        if (loaded(port) == 0) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
}

Json completion(std::uint16_t port, const char* model) {
    const Response r = ask(port, "POST", "/v1/completions", {{"model", model}, {"prompt", "Hello"}, {"max_tokens", 16}, {"temperature", 0}, {"ignore_eos", true}});
    EXPECT_EQ(r.status, 200) << r.body;
    return r.json()["choices"];
}

TEST(IdleModels, AreUnloadedAndComeBack) {
    server::ServeOptions o = tiny_options();
    o.models.push_back({"second", o.models[0].path, {}});
    o.idle_unload = std::chrono::seconds(1);
    const auto server = tiny_server(o);
    const std::uint16_t port = server->port();
    const Json answer = completion(port, "tiny");
    EXPECT_EQ(completion(port, "second"), answer);
    EXPECT_EQ(loaded(port), 2u);
    EXPECT_TRUE(all_unloaded(port, 20));
    EXPECT_EQ(completion(port, "second"), answer);
    EXPECT_EQ(loaded(port), 1u);
    // A request's own time holds from then on: this one stays.
    ask(port, "POST", "/api/generate", {{"model", "second"}, {"keep_alive", -1}});
    std::this_thread::sleep_for(std::chrono::seconds(4));
    EXPECT_EQ(loaded(port), 1u);
}

// An answer that takes longer than the idle time keeps its model.
TEST(IdleModels, BusyOnesStay) {
    server::ServeOptions o = tiny_options();
    o.idle_unload = std::chrono::seconds(0);
    o.load.ctx = 65536;
    const auto server = tiny_server(o);
    Connection c(server->port());
    c.send(request_text("POST", "/v1/completions", Json{{"prompt", "a"}, {"max_tokens", 60000}, {"ignore_eos", true}, {"logit_bias", {{"2", -100}}}, {"stream", true}}.dump()));
    c.read_some();
    for (int i = 0; i < 25; ++i) {
        ASSERT_EQ(loaded(server->port()), 1u);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    c.close();
    EXPECT_TRUE(all_unloaded(server->port(), 20));
}

}  // namespace
}  // namespace forge::test
