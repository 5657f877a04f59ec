// Pieces of a stream that come fast are written together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "http_client.h"

namespace forge::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Stream {
    std::string bytes;   // all that came
    int reads = 0;
    double seconds = 0;
};

Stream read_stream(std::uint16_t port, Json body) {
    body.update({{"prompt", "Hello"}, {"temperature", 0}, {"ignore_eos", true}, {"stream", true}, {"stream_options", {{"include_usage", true}}}});
    Connection connection(port);
    Stream stream;
    const auto start = Clock::now();
    connection.send(request_text("POST", "/v1/completions", body.dump(), "Connection: close\r\n"));
    for (std::string piece; !(piece = connection.read_some()).empty(); ++stream.reads) stream.bytes += piece;
    stream.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return stream;
}

std::size_t count(const std::string& text, const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
    return n;
}

TEST(Streams, AreWrittenAboutSixtyTimesASecond) {
    const auto server = tiny_server();
    const Stream stream = read_stream(server->port(), {{"max_tokens", 150}});
    EXPECT_THAT(stream.bytes, testing::EndsWith("0\r\n\r\n"));
    const std::size_t events = count(stream.bytes, "data: {");
    EXPECT_GT(events, 50u);
    // The head, the first piece, one a sixtieth of a second, the end; a read may find a part of what was written.
    EXPECT_LE(stream.reads, 2 * (3 + stream.seconds / 0.016));
}

TEST(Streams, TogetherSayWhatTheWholeAnswerSays) {
    const auto server = tiny_server();
    for (const int n : {1, 3}) {
        Json body = {{"max_tokens", 60}, {"n", n}, {"prompt", "Hello"}, {"temperature", 0}, {"ignore_eos", true}};
        const Json whole = ask(server->port(), "POST", "/v1/completions", body).json();
        body.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
        const Response r = ask(server->port(), "POST", "/v1/completions", body);
        const auto events = r.events();
        std::vector<std::string> texts(static_cast<std::size_t>(n));
        std::size_t pieces = 0, ends = 0;
        for (const Json& e : events) {
            if (!e.is_object() || e["choices"].empty()) continue;
            const Json& choice = e["choices"][0];
            texts[choice["index"].get<std::size_t>()] += choice["text"].get<std::string>();
            ++pieces;
            ends += !choice["finish_reason"].is_null();
        }
        for (int i = 0; i < n; ++i) EXPECT_EQ(texts[static_cast<std::size_t>(i)], whole["choices"][static_cast<std::size_t>(i)]["text"].get<std::string>());
        EXPECT_GT(pieces, 20u * static_cast<std::size_t>(n)) << "each piece stays an event of its own";
        EXPECT_EQ(ends, static_cast<std::size_t>(n));
        EXPECT_EQ(events.back(), "[DONE]");
        EXPECT_EQ(events[events.size() - 2]["usage"]["completion_tokens"], 60 * n);
    }
}

// What was held back is not lost with the answer that follows on the same connection, nor mixed with it.
TEST(Streams, FollowEachOtherOnAConnection) {
    const auto server = tiny_server();
    Connection connection(server->port());
    std::string first;
    for (int i = 0; i < 20; ++i) {
        const Json body = {{"prompt", "Hello"}, {"max_tokens", 1 + i % 4 * 7}, {"temperature", 0}, {"ignore_eos", true}, {"stream", true}};
        connection.send(request_text("POST", "/v1/completions", body.dump()));
        const Response r = connection.read_response();
        ASSERT_EQ(r.status, 200);
        EXPECT_EQ(r.events().back(), "[DONE]");
        std::string text;
        for (const Json& e : r.events())
            if (e.is_object() && !e["choices"].empty()) text += e["choices"][0]["text"].get<std::string>();
        if (i == 3) first = text;
        if (i % 4 == 3) { EXPECT_EQ(text, first); }
    }
}

}  // namespace
}  // namespace forge::test
