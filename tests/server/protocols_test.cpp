// Anthropic's and Ollama's words for the same answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anthropic.h"
#include "http_client.h"
#include "ollama.h"

namespace forge::test {
namespace {

class Protocols : public SharedServer<Protocols> {
  protected:
    static Response post(const std::string& path, const Json& body) { return ask(port(), "POST", path, body); }
    // What the OpenAI protocol answers to the same.
    static std::string expected(int tokens) {
        return post("/v1/chat/completions", {{"messages", {{{"role", "system"}, {"content", "Be."}}, {{"role", "user"}, {"content", "Hello"}}}}, {"temperature", 0}, {"max_tokens", tokens}})
            .json()["choices"][0]["message"]["content"].get<std::string>();
    }
};

TEST_F(Protocols, Anthropic) {
    Json body = {{"model", "tiny"}, {"system", "Be."}, {"messages", {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Hello"}, {"cache_control", {{"type", "ephemeral"}}}}}}}}}, {"max_tokens", 12}, {"temperature", 0}};
    const Response r = post("/v1/messages", body);
    ASSERT_EQ(r.status, 200) << r.body;
    const Json j = r.json();
    EXPECT_EQ(j["content"][0]["text"], expected(12));
    EXPECT_EQ(j["stop_reason"], "max_tokens");
    EXPECT_EQ(j["usage"]["output_tokens"], 12);
    const int count = post("/v1/messages/count_tokens", body).json()["input_tokens"].get<int>();
    EXPECT_EQ(j["usage"]["input_tokens"].get<int>() + j["usage"]["cache_read_input_tokens"].get<int>(), count);
    body["stream"] = true;
    std::string text;
    std::vector<std::string> types;
    for (const Json& e : post("/v1/messages", body).events()) {
        types.push_back(e["type"].get<std::string>());
        if (e["type"] == "content_block_delta") text += e["delta"]["text"].get<std::string>();
    }
    EXPECT_EQ(text, expected(12));
    EXPECT_EQ(types.front(), "message_start");
    EXPECT_EQ(types[2], "content_block_start");
    EXPECT_EQ(std::vector<std::string>(types.end() - 3, types.end()), (std::vector<std::string>{"content_block_stop", "message_delta", "message_stop"}));
    body["stream"] = false;
    body["stop_sequences"] = {text.substr(3, 2)};
    const Json stopped = post("/v1/messages", body).json();
    EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
    EXPECT_EQ(stopped["stop_sequence"], text.substr(3, 2));
    for (const auto& [field, value] : {std::pair<const char*, Json>{"max_tokens", nullptr}, {"messages", Json::array()}, {"temperature", 3}, {"frob", 1}, {"tools", {{{"name", "x"}}}}, {"tool_choice", {{"type", "x"}}}}) {
        Json wrong = body;
        wrong[field] = value;
        const Response error = post("/v1/messages", wrong);
        EXPECT_EQ(error.status, 400) << field;
        EXPECT_EQ(error.json()["error"]["type"], "invalid_request_error");
        EXPECT_THAT(error.json()["error"]["message"].get<std::string>(), testing::HasSubstr(field));
    }
}

TEST_F(Protocols, Responses) {
    Json body = {{"model", "tiny"}, {"instructions", "Be."}, {"input", "Hello"}, {"max_output_tokens", 12}, {"temperature", 0}};
    const Json j = post("/v1/responses", body).json();
    EXPECT_EQ(j["status"], "incomplete");
    EXPECT_EQ(j["incomplete_details"]["reason"], "max_output_tokens");
    EXPECT_EQ(j["output"][0]["content"][0]["text"], expected(12));
    EXPECT_EQ(j["usage"]["output_tokens"], 12);
    body["stream"] = true;
    std::string text;
    int number = 0;
    Json last;
    for (const Json& e : post("/v1/responses", body).events()) {
        EXPECT_EQ(e["sequence_number"], number++);
        if (e["type"] == "response.output_text.delta") text += e["delta"].get<std::string>();
        last = e;
    }
    EXPECT_EQ(text, expected(12));
    EXPECT_EQ(last["type"], "response.incomplete");
    EXPECT_EQ(last["response"]["output"][0]["content"], j["output"][0]["content"]);
    // Log probabilities, where they are asked for: the chat API's.
    body["include"] = {"message.output_text.logprobs"};
    body["top_logprobs"] = 2;
    Json streamed = Json::array();
    for (const Json& e : post("/v1/responses", body).events()) {
        if (e["type"] == "response.output_text.delta") streamed.insert(streamed.end(), e["logprobs"].begin(), e["logprobs"].end());
        if (e["type"] == "response.output_text.done") {
            EXPECT_EQ(e["logprobs"], streamed);
        }
    }
    body["stream"] = false;
    EXPECT_EQ(post("/v1/responses", body).json()["output"][0]["content"][0]["logprobs"], streamed);
    const Json chat = post("/v1/chat/completions", {{"messages", {{{"role", "system"}, {"content", "Be."}}, {{"role", "user"}, {"content", "Hello"}}}}, {"temperature", 0}, {"max_tokens", 12}, {"logprobs", true}, {"top_logprobs", 2}}).json();
    EXPECT_EQ(chat["choices"][0]["logprobs"]["content"], streamed);
    EXPECT_FALSE(streamed.empty());
    body.erase("include");
    EXPECT_EQ(post("/v1/responses", body).status, 400);
    // Items of one turn are one message.
    const auto t = server::openai_response(Json::parse(R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},
        {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"c1","output":"r"}],"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]})"));
    const auto& m = t.request.conversation->messages;
    ASSERT_EQ(m.size(), 3u);
    EXPECT_EQ(*m[1].reasoning, "hm");
    EXPECT_EQ(m[1].tool_calls[0]["id"], "c1");
    EXPECT_EQ(m[2].role, "tool");
    EXPECT_EQ(t.request.tools[0]["function"]["name"], "f");
    for (const auto& [field, value] : {std::pair<const char*, Json>{"input", 5}, {"previous_response_id", "x"}, {"tools", {{{"type", "web_search"}}}}, {"frob", 1}})  {
        Json wrong = body;
        wrong.erase("top_logprobs");
        wrong[field] = value;
        EXPECT_EQ(post("/v1/responses", wrong).status, 400) << field;
    }
}

// Blocks become messages: results first, each on its own; calls and thinking where templates look for them.
TEST(AnthropicMessages, BlocksBecomeMessages) {
    const auto t = server::anthropic_messages(Json::parse(R"({"max_tokens":5,"messages":[
        {"role":"user","content":"a"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"b"},{"type":"tool_use","id":"t1","name":"f","input":{"x":1}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"r"}]},{"type":"text","text":"c"}]}],
        "tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true},
        "thinking":{"type":"enabled","budget_tokens":2000}})"));
    const auto& m = t.request.conversation->messages;
    ASSERT_EQ(m.size(), 4u);
    EXPECT_EQ(*m[1].reasoning, "hm");
    EXPECT_EQ(m[1].content, "b");
    EXPECT_EQ(m[1].tool_calls[0]["function"]["arguments"]["x"], 1);
    EXPECT_EQ(m[2].role, "tool");
    EXPECT_EQ(m[2].content, "r");
    EXPECT_EQ(m[2].name, "f");
    EXPECT_EQ(m[3].content, "c");
    EXPECT_FALSE(t.request.parallel_tool_calls);
    EXPECT_EQ(t.request.thinking_budget, 2000);
    EXPECT_EQ(t.request.tools[0]["function"]["parameters"]["type"], "object");
}

TEST_F(Protocols, Ollama) {
    Json body = {{"model", "tiny:latest"}, {"messages", {{{"role", "system"}, {"content", "Be."}}, {{"role", "user"}, {"content", "Hello"}}}}, {"options", {{"temperature", 0}, {"num_predict", 12}}}};
    const auto lines = post("/api/chat", body).lines();
    std::string text;
    for (const Json& line : lines) text += line["message"]["content"].get<std::string>();
    EXPECT_EQ(text, expected(12));
    EXPECT_EQ(lines.back()["done"], true);
    EXPECT_EQ(lines.back()["done_reason"], "length");
    EXPECT_EQ(lines.back()["eval_count"], 12);
    EXPECT_EQ(lines.front()["done"], false);
    body["stream"] = false;
    const Json whole = post("/api/chat", body).json();
    EXPECT_EQ(whole["message"]["content"], text);
    EXPECT_EQ(whole["done"], true);
    const Json generated = post("/api/generate", {{"model", "tiny"}, {"system", "Be."}, {"prompt", "Hello"}, {"stream", false}, {"options", {{"temperature", 0}, {"num_predict", 12}}}}).json();
    EXPECT_EQ(generated["response"], text);
    EXPECT_EQ(ask(port(), "GET", "/api/tags").json()["models"][0]["name"], "tiny");
    EXPECT_EQ(ask(port(), "GET", "/api/ps").json()["models"][0]["model"], "tiny");
    EXPECT_EQ(post("/api/show", {{"model", "tiny"}}).json()["details"]["family"], "qwen3");
    EXPECT_TRUE(ask(port(), "GET", "/api/version").json().contains("version"));
    EXPECT_EQ(post("/api/chat", {{"model", "tiny"}, {"options", {{"frob", 1}}}}).json()["error"].is_string(), true);
    EXPECT_EQ(post("/api/chat", {{"model", "none"}, {"messages", body["messages"]}}).status, 404);
    // Without messages a model is loaded, or unloaded, and comes back by itself.
    EXPECT_EQ(post("/api/chat", {{"model", "tiny"}, {"keep_alive", 0}}).json()["done_reason"], "unload");
    EXPECT_EQ(ask(port(), "GET", "/api/ps").json()["models"].size(), 0u);
    EXPECT_EQ(post("/api/chat", body).json()["message"]["content"], text);
}

TEST(OllamaOptions, TimesAreRead) {
    for (const auto& [given, seconds] : {std::pair<Json, double>{300, 300}, {"5m", 300}, {"1h30m", 5400}, {"-1", -1}, {-1, -1}, {"500ms", 0.5}, {"0", 0}})
        EXPECT_EQ(*server::ollama_chat({{"model", "m"}, {"keep_alive", given}}).request.keep_alive, seconds) << given;
    for (const char* wrong : {"", "m", "5x", "5m3", "1.2.3s", "1e3"}) EXPECT_ANY_THROW(server::ollama_chat({{"model", "m"}, {"keep_alive", wrong}})) << wrong;
}

}  // namespace
}  // namespace forge::test
