// A client that goes away frees its slot; a full queue is said; SIGTERM's draining.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "http_client.h"

namespace forge::test {
namespace {

server::ServeOptions one_slot() {
    server::ServeOptions o = tiny_options();
    o.load.parallel = 1;
    o.load.ctx = 65536;
    o.load.chunk = 16;
    o.max_queue = 2;
    return o;
}

// An answer that takes far longer than the test.
std::string endless(bool stream, std::size_t prompt = 5) {
    const Json body = {{"prompt", std::string(prompt, 'a')}, {"max_tokens", 60000}, {"ignore_eos", true}, {"logit_bias", {{"2", -100}}}, {"stream", stream}};
    return request_text("POST", "/v1/completions", body.dump());
}

TEST(Cancel, InAllFourPhases) {
    const auto server = tiny_server(one_slot());
    const std::uint16_t port = server->port();
    const auto freed = [&] { return becomes(port, "forge_slots_busy", 0, 5) && becomes(port, "forge_queue", 0, 5); };
    {   // streaming
        Connection c(port);
        c.send(endless(true));
        EXPECT_THAT(c.read_some(), testing::HasSubstr("200 OK"));
        ASSERT_TRUE(becomes(port, "forge_slots_busy", 1, 5));
        c.close();
        EXPECT_TRUE(freed());
    }
    {   // not streaming: nothing is ever written, so only watching the socket can tell
        Connection c(port);
        c.send(endless(false));
        ASSERT_TRUE(becomes(port, "forge_slots_busy", 1, 5));
        c.close();
        EXPECT_TRUE(freed());
    }
    {   // reading the prompt
        Connection c(port);
        c.send(endless(false, 4000));
        ASSERT_TRUE(becomes(port, "forge_slots_busy", 1, 5));
        c.close();
        EXPECT_TRUE(freed());
    }
    {   // queued
        Connection first(port), second(port);
        first.send(endless(true));
        ASSERT_TRUE(becomes(port, "forge_slots_busy", 1, 5));
        second.send(endless(false));
        ASSERT_TRUE(becomes(port, "forge_queue", 1, 5));
        second.close();
        EXPECT_TRUE(becomes(port, "forge_queue", 0, 5));
        EXPECT_EQ(metric(port, "forge_slots_busy"), 1);
        first.close();
        EXPECT_TRUE(freed());
    }
    EXPECT_EQ(metric(port, "forge_cancelled_total"), 5);
}

TEST(Cancel, AFullQueueSaysWhenToComeBack) {
    const auto server = tiny_server(one_slot());
    std::vector<std::unique_ptr<Connection>> waiting;
    for (int i = 0; i < 3; ++i) {
        waiting.push_back(std::make_unique<Connection>(server->port()));
        waiting.back()->send(endless(true));
        ASSERT_TRUE(becomes(server->port(), "forge_queue", i == 0 ? 0 : i, 5));
        ASSERT_TRUE(becomes(server->port(), "forge_slots_busy", 1, 5));
    }
    const auto refused = [&](const char* path, const Json& body) {
        const Response r = ask(server->port(), "POST", path, body);
        EXPECT_EQ(r.status, 429) << path;
        EXPECT_EQ(r.headers.count("retry-after"), 1u) << path;
        return r.json()["error"];
    };
    EXPECT_EQ(refused("/v1/completions", {{"prompt", "a"}})["code"], "queue_full");
    EXPECT_EQ(refused("/v1/embeddings", {{"input", "a"}})["code"], "queue_full");
    EXPECT_EQ(refused("/v1/messages", {{"model", "tiny"}, {"max_tokens", 4}, {"messages", {{{"role", "user"}, {"content", "a"}}}}})["type"], "rate_limit_error");
    EXPECT_TRUE(refused("/api/generate", {{"model", "tiny"}, {"prompt", "a"}}).is_string());
    // Several answers to one request are refused together.
    waiting.pop_back();
    ASSERT_TRUE(becomes(server->port(), "forge_queue", 1, 5));
    refused("/v1/completions", {{"prompt", "a"}, {"n", 5}});
    EXPECT_TRUE(becomes(server->port(), "forge_queue", 1, 5));
    EXPECT_EQ(metric(server->port(), "forge_refused_total"), 5);
}

TEST(Drain, LetsAnswersEndAndCancelsTheRest) {
    auto server = tiny_server(one_slot());
    const std::uint16_t port = server->port();
    auto answer = std::async(std::launch::async, [&] { return ask(port, "POST", "/v1/completions", {{"prompt", "a"}, {"max_tokens", 8000}, {"ignore_eos", true}}); });
    Connection idle(port), late(port);
    ASSERT_TRUE(becomes(port, "forge_slots_busy", 1, 5));
    std::thread drain([&] { server->drain(std::chrono::seconds(100)); });
    EXPECT_EQ(answer.get().status, 200);
    drain.join();
    EXPECT_TRUE(idle.ended());
    EXPECT_THROW(Connection(port).send("x"), std::runtime_error);

    server = tiny_server(one_slot());
    Connection stream(server->port()), whole(server->port());
    stream.send(endless(true));
    ASSERT_TRUE(becomes(server->port(), "forge_slots_busy", 1, 5));
    whole.send(endless(false));
    ASSERT_TRUE(becomes(server->port(), "forge_queue", 1, 5));
    server->drain(std::chrono::milliseconds(50));
    const Response cut = stream.read_response(), refused = whole.read_response();
    EXPECT_THAT(cut.events().back()["error"]["message"].get<std::string>(), testing::HasSubstr("stopping"));
    EXPECT_EQ(refused.status, 503);
}

}  // namespace
}  // namespace forge::test
