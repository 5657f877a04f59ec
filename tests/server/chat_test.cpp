// /v1/chat/completions and /v1/completions over loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "http_client.h"

namespace forge::test {
namespace {

using testing::HasSubstr;

class Chat : public SharedServer<Chat> {
  protected:
    static Json chat(const Json& more = Json::object(), const std::string& text = "Hello") {
        Json body = {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", text}}}}, {"max_tokens", 24}, {"temperature", 0}, {"ignore_eos", true}};
        body.update(more);
        return body;
    }
    static Response post(const Json& body, const std::string& path = "/v1/chat/completions") { return ask(port(), "POST", path, body); }
    static std::string text_of(const Response& r) { return r.json()["choices"][0]["message"]["content"].get<std::string>(); }
    static std::string streamed(const Response& r, int index = 0) {
        std::string text;
        for (const Json& e : r.events())
            if (e.is_object() && !e["choices"].empty() && e["choices"][0]["index"] == index && e["choices"][0]["delta"].contains("content"))
                text += e["choices"][0]["delta"]["content"].get<std::string>();
        return text;
    }
};

TEST_F(Chat, WholeAnswer) {
    const Response r = post(chat());
    ASSERT_EQ(r.status, 200) << r.body;
    const Json j = r.json();
    EXPECT_EQ(j["object"], "chat.completion");
    EXPECT_EQ(j["model"], "tiny");
    EXPECT_EQ(j["choices"][0]["message"]["role"], "assistant");
    EXPECT_EQ(j["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(j["usage"]["completion_tokens"], 24);
    EXPECT_EQ(j["usage"]["total_tokens"], j["usage"]["prompt_tokens"].get<int>() + 24);
    EXPECT_EQ(post(chat({{"model", "other-name"}})).status, 200);
    // The second time the prompt is known.
    const Json again = post(chat()).json();
    EXPECT_EQ(again["choices"], j["choices"]);
    EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], again["usage"]["prompt_tokens"]);
}

TEST_F(Chat, StreamSaysTheSame) {
    const std::string whole = text_of(post(chat()));
    const Response r = post(chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
    ASSERT_EQ(r.status, 200) << r.body;
    EXPECT_THAT(r.headers.at("content-type"), HasSubstr("text/event-stream"));
    const auto events = r.events();
    EXPECT_EQ(streamed(r), whole);
    EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
    EXPECT_EQ(events.back(), "[DONE]");
    EXPECT_EQ(events[events.size() - 2]["usage"]["completion_tokens"], 24);
    EXPECT_EQ(events[events.size() - 3]["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(events[1]["usage"], nullptr);
    EXPECT_FALSE(post(chat({{"stream", true}})).events()[0].contains("usage"));
}

// For stop strings taken from the answer itself: whole and streamed answers end before the first of them.
TEST_F(Chat, StopStringsEndTheAnswerBefore) {
    const std::string whole = text_of(post(chat()));
    for (std::size_t at = 1; at + 4 < whole.size(); at += 3) {
        const std::string stop = whole.substr(at, 1 + at % 3);
        const Json body = chat({{"stop", {stop, "never said"}}});
        const Response r = post(body);
        ASSERT_EQ(r.status, 200) << r.body;
        EXPECT_EQ(text_of(r), whole.substr(0, whole.find(stop)));
        EXPECT_EQ(r.json()["choices"][0]["finish_reason"], "stop");
        Json stream = body;
        stream["stream"] = true;
        EXPECT_EQ(streamed(post(stream)), whole.substr(0, whole.find(stop)));
    }
}

TEST_F(Chat, SeveralAnswersDifferAndRepeat) {
    const Json body = chat({{"n", 3}, {"temperature", 2.0}, {"seed", 5}});
    const Json a = post(body).json()["choices"];
    ASSERT_EQ(a.size(), 3u);
    EXPECT_NE(a[0]["message"]["content"], a[1]["message"]["content"]);
    EXPECT_EQ(post(body).json()["choices"], a);
    Json stream = body;
    stream["stream"] = true;
    const Response r = post(stream);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Json(streamed(r, i)), a[static_cast<std::size_t>(i)]["message"]["content"]);
}

TEST_F(Chat, LogProbabilities) {
    const Response r = post(chat({{"logprobs", true}, {"top_logprobs", 3}, {"ignore_eos", false}}));
    ASSERT_EQ(r.status, 200) << r.body;
    const Json choice = r.json()["choices"][0], entries = choice["logprobs"]["content"];
    std::string text;
    for (const Json& e : entries) {
        const std::string token = e["token"];
        if (!token.starts_with("<|")) text += token;   // special tokens are chosen, but are no text
        ASSERT_EQ(e["top_logprobs"].size(), 3u);
        EXPECT_EQ(e["top_logprobs"][0]["token"], e["token"]);   // greedy
        EXPECT_EQ(e["top_logprobs"][0]["logprob"], e["logprob"]);
        EXPECT_LE(e["logprob"], 0);
    }
    EXPECT_EQ(Json(text), choice["message"]["content"]);
    std::size_t streamed_entries = 0;
    for (const Json& e : post(chat({{"logprobs", true}, {"top_logprobs", 3}, {"stream", true}, {"ignore_eos", false}})).events())
        if (e.is_object() && e["choices"][0]["logprobs"].is_object()) streamed_entries += e["choices"][0]["logprobs"]["content"].size();
    EXPECT_EQ(streamed_entries, entries.size());
}

TEST_F(Chat, LogitBiasForbids) {
    const std::string whole = text_of(post(chat()));
    const Json tokens = ask(port(), "POST", "/tokenize", {{"content", whole.substr(0, 1)}}).json()["tokens"];
    EXPECT_NE(text_of(post(chat({{"logit_bias", {{tokens[0].dump(), -100}}}}))).substr(0, 1), whole.substr(0, 1));
}

// Every mistake is a 400 that names its field.
TEST_F(Chat, MistakesNameTheirField) {
    const std::pair<Json, const char*> cases[] = {
        {{{"temperature", "warm"}}, "temperature"}, {{{"temperature", -1}}, "temperature"}, {{{"top_p", 2}}, "top_p"}, {{{"n", 0}}, "n"},
        {{{"n", 1.5}}, "n"}, {{{"stop", 5}}, "stop"}, {{{"stop", {"a", 5}}}, "stop[1]"}, {{{"stop", ""}}, "stop"}, {{{"seed", "x"}}, "seed"},
        {{{"max_tokens", "many"}}, "max_tokens"}, {{{"max_tokens", 1}, {"max_completion_tokens", 2}}, "max_completion_tokens"},
        {{{"stream", "yes"}}, "stream"}, {{{"stream_options", {{"include_usage", true}}}}, "stream_options"},
        {{{"logit_bias", {{"x", 1}}}}, "logit_bias"}, {{{"logit_bias", {{"1", 1000}}}}, "logit_bias"}, {{{"top_logprobs", 3}}, "top_logprobs"},
        {{{"logprobs", true}, {"top_logprobs", 50}}, "top_logprobs"}, {{{"messages", Json::array()}}, "messages"}, {{{"messages", "Hi"}}, "messages"},
        {{{"messages", {{{"role", "king"}, {"content", "x"}}}}}, "messages[0].role"}, {{{"messages", {{{"role", "user"}}}}}, "messages[0].content"},
        {{{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}}, "messages[0].content[0].type"},
        {{{"messages", {{{"role", "tool"}, {"content", "x"}}}}}, "messages"},   // the template refuses
        {{{"tools", {{{"type", "function"}}}}}, "tools[0].function"}, {{{"tool_choice", "maybe"}}, "tool_choice"}, {{{"tool_choice", "required"}}, "tool_choice"},
        {{{"response_format", {{"type", "xml"}}}}, "response_format.type"}, {{{"grammar", "root ::= missing"}}, "grammar"},
        {{{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", {{"uniqueItems", true}}}}}}}}, "response_format.json_schema.schema"}, {{{"modalities", {"audio"}}}, "modalities"}, {{{"functions", {1}}}, "functions"},
        {{{"frobnicate", 1}}, "frobnicate"}, {{{"reasoning_effort", "huge"}}, "reasoning_effort"}, {{{"model", 5}}, "model"}};
    for (const auto& [more, field] : cases) {
        const Response r = post(chat(more));
        ASSERT_EQ(r.status, 400) << more << r.body;
        EXPECT_EQ(r.json()["error"]["param"], field) << r.body;
        EXPECT_EQ(r.json()["error"]["type"], "invalid_request_error");
    }
    EXPECT_EQ(post(chat({{"model", "gpt-9"}})).status, 404);
    EXPECT_EQ(post(chat({{"user", "me"}, {"metadata", {{"a", 1}}}, {"store", true}, {"stop", nullptr}})).status, 200);
}

TEST_F(Chat, ALongPromptNamesBothSizes) {
    const Response r = post(chat(Json::object(), std::string(600, 'x')));
    EXPECT_EQ(r.status, 400);
    EXPECT_EQ(r.json()["error"]["code"], "context_length_exceeded");
    EXPECT_THAT(r.json()["error"]["message"].get<std::string>(), HasSubstr("the context holds 512"));
}

TEST_F(Chat, Completions) {
    Json body = {{"model", "tiny"}, {"prompt", "Once"}, {"max_tokens", 10}, {"temperature", 0}, {"logprobs", 2}};
    const Response r = post(body, "/v1/completions");
    ASSERT_EQ(r.status, 200) << r.body;
    const Json choice = r.json()["choices"][0];
    EXPECT_EQ(r.json()["object"], "text_completion");
    std::string joined;
    for (const Json& t : choice["logprobs"]["tokens"]) joined += t.get<std::string>();
    EXPECT_EQ(Json(joined), choice["text"]);
    body["stream"] = true;
    std::string text;
    for (const Json& e : post(body, "/v1/completions").events())
        if (e.is_object()) text += e["choices"][0]["text"].get<std::string>();
    EXPECT_EQ(Json(text), choice["text"]);
    // Ids of the same text say the same; several prompts are answered in order.
    const Json ids = ask(port(), "POST", "/tokenize", {{"content", "Once"}}).json()["tokens"];
    const Json both = post({{"prompt", {ids, ids}}, {"max_tokens", 10}, {"temperature", 0}}, "/v1/completions").json()["choices"];
    EXPECT_EQ(both[0]["text"], choice["text"]);
    EXPECT_EQ(both[1]["text"], choice["text"]);
    EXPECT_EQ(post({{"prompt", "Once"}, {"echo", true}, {"max_tokens", 10}, {"temperature", 0}}, "/v1/completions").json()["choices"][0]["text"],
              "Once" + choice["text"].get<std::string>());
    EXPECT_EQ(post({{"prompt", {9999}}}, "/v1/completions").json()["error"]["param"], "prompt");
    EXPECT_EQ(post({{"prompt", "a"}, {"suffix", "b"}}, "/v1/completions").json()["error"]["param"], "suffix");
}

// Clients of all kinds at once, and each gets what it would get alone.
TEST_F(Chat, CompanyDoesNotChangeAnswers) {
    std::vector<Json> bodies;
    for (int i = 0; i < 12; ++i)
        bodies.push_back(chat({{"seed", i}, {"temperature", 1.0}, {"max_tokens", 30}}, std::string(static_cast<std::size_t>(5 + 20 * i), 'a') + std::to_string(i)));
    std::vector<std::string> alone;
    for (const Json& body : bodies) alone.push_back(text_of(post(body)));
    for (int round = 0; round < 3; ++round) {
        std::vector<std::future<std::string>> together;
        for (std::size_t i = 0; i < bodies.size(); ++i)
            together.push_back(std::async(std::launch::async, [&, i] {
                Json body = bodies[i];
                body["stream"] = i % 2 == 0;
                const Response r = post(body);
                return i % 2 == 0 ? streamed(r) : text_of(r);
            }));
        for (std::size_t i = 0; i < bodies.size(); ++i) EXPECT_EQ(together[i].get(), alone[i]) << i;
    }
}

TEST_F(Chat, TokenizeAndTemplate) {
    const Json t = ask(port(), "POST", "/tokenize", {{"content", "Hi<|im_end|>"}, {"with_pieces", true}}).json();
    EXPECT_EQ(t["tokens"][2]["id"], 2);
    EXPECT_EQ(ask(port(), "POST", "/tokenize", {{"content", "Hi<|im_end|>"}, {"parse_special", false}}).json()["count"].get<int>(), 10);  // the tiny vocabulary has no |
    EXPECT_EQ(ask(port(), "POST", "/detokenize", {{"tokens", {1, 3}}}).json()["content"], "<|im_start|> ");
    EXPECT_EQ(ask(port(), "POST", "/detokenize", {{"tokens", {99999}}}).json()["error"]["param"], "tokens");
    EXPECT_EQ(ask(port(), "POST", "/apply-template", {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}}).json()["prompt"],
              "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace forge::test
