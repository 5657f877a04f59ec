// Models that come and go: idle ones are unloaded, asked ones are loaded, answers stay the same.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>

#include "http_client.h"
#include "slow_model.h"

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
    EXPECT_TRUE(all_unloaded(port, 20));
    EXPECT_EQ(completion(port, "second"), answer);
    // A request's own time holds from then on: these stay, until another one says otherwise.
    const auto keep = [&](const char* model, int seconds) { EXPECT_EQ(ask(port, "POST", "/api/generate", {{"model", model}, {"keep_alive", seconds}}).status, 200); };
    keep("tiny", -1);
    keep("second", -1);
    std::this_thread::sleep_for(std::chrono::seconds(4));
    EXPECT_EQ(loaded(port), 2u);
    keep("tiny", 1);
    keep("second", 1);
    EXPECT_TRUE(all_unloaded(port, 20));
}

// An answer that takes longer than the idle time keeps its model.
TEST(IdleModels, BusyOnesStay) {
    server::ServeOptions o = tiny_options();
    o.idle_unload = std::chrono::seconds(1);
    o.load.ctx = 65536;
    const auto server = tiny_server(o);
    Connection c(server->port());
    c.send(request_text("POST", "/v1/completions", Json{{"prompt", "a"}, {"max_tokens", 60000}, {"ignore_eos", true}, {"logit_bias", {{"2", -100}}}, {"stream", true}}.dump()));
    c.read_some();
    for (int i = 0; i < 35; ++i) {
        ASSERT_EQ(loaded(server->port()), 1u);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    c.close();
    EXPECT_TRUE(all_unloaded(server->port(), 20));
}

// Requests for a model that is being loaded keep nothing from the others, however many they are.
TEST(Models, LoadingOneKeepsNobodyElseWaiting) {
    SlowModel slow("slow-to-load");
    server::ServeOptions o = tiny_options();
    o.models.push_back({"slow", slow.path(), {}});
    o.max_queue = 20;
    const auto server = tiny_server(o);
    const std::uint16_t port = server->port();
    const Json body = {{"model", "slow"}, {"prompt", "Hello"}, {"max_tokens", 4}, {"temperature", 0}};
    std::vector<std::unique_ptr<Connection>> waiting;
    const auto ask_slow = [&] {
        waiting.push_back(std::make_unique<Connection>(port));
        waiting.back()->send(request_text("POST", "/v1/completions", body.dump()));
    };
    ask_slow();
    slow.wait_until_read();
    for (int i = 1; i < 20; ++i) ask_slow();
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(ask(port, "GET", "/health").status, 200);
        completion(port, "tiny");
    }
    waiting.pop_back();   // one goes away meanwhile
    for (int i = 0; i < 12; ++i) ask_slow();
    // 24 wait, and perhaps the one that went away still does: only then is the model loaded.
    for (int i = 0; i < 2000 && metric(port, "forge_refused_total") < 7; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    slow.finish();
    std::map<int, int> statuses;
    for (const auto& connection : waiting) ++statuses[connection->read_response().status];
    EXPECT_GE(statuses[200], 20);   // those that the queue holds: 20 and 4 for the slots
    EXPECT_GE(statuses[429], 6);
    EXPECT_EQ(statuses[200] + statuses[429], 31);
    EXPECT_TRUE(becomes(port, "forge_slots_busy", 0, 5));
}

// Whoever waits for a model hears that the server stops, however long the loading still takes.
TEST(Models, StoppingDoesNotWaitForTheLoading) {
    SlowModel slow("slow-to-stop");
    server::ServeOptions o = tiny_options();
    o.models.push_back({"slow", slow.path(), {}});
    o.load.parallel = o.max_queue = 1;
    const auto server = tiny_server(o);
    const std::string request = request_text("POST", "/v1/completions", Json{{"model", "slow"}, {"prompt", "Hello"}}.dump());
    Connection loading(server->port()), first(server->port()), second(server->port()), third(server->port());
    loading.send(request);
    slow.wait_until_read();
    for (Connection* c : {&first, &second, &third}) c->send(request);
    EXPECT_TRUE(becomes(server->port(), "forge_refused_total", 1, 20));   // so the others wait
    std::thread stop([&] { server->drain(std::chrono::milliseconds(200)); });
    std::multiset<int> statuses;
    for (Connection* c : {&first, &second, &third}) statuses.insert(c->read_response().status);
    EXPECT_EQ(statuses, (std::multiset<int>{429, 503, 503}));
    slow.finish();
    stop.join();
}

}  // namespace
}  // namespace forge::test
