// Answers held to a schema or a grammar, and calls that must be made, over loopback. The model is random: whatever
// comes out right does so because nothing else could.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http_client.h"
#include "tiny_chat.h"

namespace forge::test {
namespace {

using testing::HasSubstr;

class Structured : public SharedServer<Structured> {
  public:
    static server::ServeOptions options() {
        server::ServeOptions options = tiny_options();
        options.models[0].path = tiny_json_model();
        return options;
    }

  protected:
    static Json chat(const Json& more) {
        Json body = {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "Hello"}}}}, {"max_tokens", 400}, {"temperature", 1}, {"seed", 3}};
        body.update(more);
        return body;
    }
    static Response post(const Json& body, const std::string& path = "/v1/chat/completions") { return ask(port(), "POST", path, body); }
    static Json choice(const Response& r) {
        EXPECT_EQ(r.status, 200) << r.body;
        return r.json()["choices"][0];
    }
};

const Json person = Json::parse(R"({"type": "object", "properties": {"kind": {"const": "person of some importance"}, "age": {"type": "integer", "minimum": 10, "maximum": 99},
    "name": {"type": "string", "minLength": 1, "maxLength": 8}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}}, "required": ["kind", "age", "name", "tags"], "additionalProperties": false})");

void expect_person(const std::string& text) {
    const Json value = Json::parse(text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << text;
    EXPECT_EQ(value["kind"], "person of some importance");
    EXPECT_GE(value["age"], 10);
    EXPECT_LE(value["age"], 99);
    EXPECT_TRUE(value["name"].is_string());
    EXPECT_LE(value["tags"].size(), 2u);
    EXPECT_EQ(value.size(), 4u);
}

TEST_F(Structured, AnAnswerFitsItsSchema) {
    const Json format = {{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "person"}, {"strict", true}, {"schema", person}}}}}};
    for (int seed = 0; seed < 8; ++seed) {
        Json body = chat(format);
        body["seed"] = seed;
        const Json c = choice(post(body));
        EXPECT_EQ(c["finish_reason"], "stop");
        expect_person(c["message"]["content"].get<std::string>());
    }
}

// Tokens that must come are computed together, and that changes nothing: greedy answers are what they are one by one.
TEST_F(Structured, ForcedTokensChangeNothing) {
    Json body = chat({{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "p"}, {"schema", person}}}}}, {"temperature", 0}});
    const Json together = post(body).json();
    body["logprobs"] = true;   // one step a token
    const Json apart = post(body).json();
    EXPECT_EQ(together["choices"][0]["message"]["content"], apart["choices"][0]["message"]["content"]);
    EXPECT_EQ(together["usage"]["completion_tokens"], apart["usage"]["completion_tokens"]);
    body.erase("logprobs");
    body["max_tokens"] = 12;   // inside what is forced
    const Json cut = post(body).json();
    EXPECT_EQ(cut["usage"]["completion_tokens"], 12);
    EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
    body["max_tokens"] = 400;
    body["stream"] = true;
    std::string streamed;
    for (const Json& e : post(body).events())
        if (e.is_object() && !e["choices"].empty() && e["choices"][0]["delta"].contains("content")) streamed += e["choices"][0]["delta"]["content"].get<std::string>();
    EXPECT_EQ(Json(streamed), together["choices"][0]["message"]["content"]);
}

TEST_F(Structured, EachProtocolHasItsWord) {
    const Json message = {{{"role", "user"}, {"content", "Hello"}}};
    expect_person(post({{"model", "tiny"}, {"messages", message}, {"stream", false}, {"format", person}, {"options", {{"num_predict", 400}}}}, "/api/chat").json()["message"]["content"].get<std::string>());
    expect_person(post({{"model", "tiny"}, {"prompt", "x"}, {"max_tokens", 400}, {"json_schema", person}}, "/v1/completions").json()["choices"][0]["text"].get<std::string>());
    const Json response = post({{"model", "tiny"}, {"input", "Hello"}, {"max_output_tokens", 400}, {"text", {{"format", {{"type", "json_schema"}, {"name", "p"}, {"schema", person}}}}}}, "/v1/responses").json();
    std::string text;
    for (const Json& item : response["output"])
        if (item["type"] == "message") text = item["content"][0]["text"].get<std::string>();
    expect_person(text);
    const Json claude = post({{"model", "tiny"}, {"max_tokens", 400}, {"messages", message}, {"output_config", {{"format", {{"type", "json_schema"}, {"schema", person}}}}}}, "/v1/messages").json();
    expect_person(claude["content"][0]["text"].get<std::string>());
}

TEST_F(Structured, Grammar) {
    const Json c = choice(post(chat({{"grammar", "root ::= \"yes\" | \"no, \" [a-c]{3}"}})));
    EXPECT_THAT(c["message"]["content"].get<std::string>(), testing::MatchesRegex("yes|no, [abc][abc][abc]"));
    EXPECT_EQ(c["finish_reason"], "stop");
}

TEST_F(Structured, AnyObject) {
    // It may not come to an end, but it is the beginning of an object.
    const Json c = choice(post(chat({{"response_format", {{"type", "json_object"}}}, {"max_tokens", 60}})));
    const std::string text = c["message"]["content"].get<std::string>();
    EXPECT_EQ(text[0], '{');
    if (c["finish_reason"] == "stop") {
        EXPECT_TRUE(Json::parse(text, nullptr, false).is_object()) << text;
    }
}

const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 6}, "days": {"enum": [1, 2]}}, "required": ["city", "days"]}}},
    {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}])");

TEST_F(Structured, CallsThatMustBeMade) {
    for (const Json& wanted : {Json("required"), Json({{"type", "function"}, {"function", {{"name", "weather"}}}})}) {
        const Json c = choice(post(chat({{"tools", tools}, {"tool_choice", wanted}, {"parallel_tool_calls", false}})));
        EXPECT_EQ(c["finish_reason"], "tool_calls");
        ASSERT_EQ(c["message"]["tool_calls"].size(), 1u) << c;
        const Json function = c["message"]["tool_calls"][0]["function"];
        if (wanted.is_object()) {
            EXPECT_EQ(function["name"], "weather");
        }
        const Json arguments = Json::parse(function["arguments"].get<std::string>());
        if (function["name"] == "weather") {
            EXPECT_TRUE(arguments["city"].is_string());
            EXPECT_TRUE(arguments["days"] == 1 || arguments["days"] == 2) << arguments;
        } else {
            EXPECT_EQ(arguments, Json::object());
        }
    }
    const Json claude = post({{"model", "tiny"}, {"max_tokens", 400}, {"messages", {{{"role", "user"}, {"content", "Hello"}}}},
                              {"tools", {{{"name", "time"}, {"input_schema", {{"type", "object"}, {"additionalProperties", false}}}}}}, {"tool_choice", {{"type", "any"}}}}, "/v1/messages").json();
    EXPECT_EQ(claude["stop_reason"], "tool_use");
    EXPECT_EQ(claude["content"][0]["name"], "time");
}

TEST_F(Structured, WhatCannotBeCompiledIsRefused) {
    const auto refused = [](const Json& more, const std::string& field, const std::string& word) {
        const Response r = post(chat(more));
        ASSERT_EQ(r.status, 400) << r.body;
        EXPECT_EQ(r.json()["error"]["param"], field);
        EXPECT_THAT(r.json()["error"]["message"].get<std::string>(), HasSubstr(word));
    };
    const auto schema = [](const Json& s) { return Json{{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", s}}}}}}; };
    refused(schema({{"type", "object"}, {"properties", {{"a", {{"type", "array"}, {"uniqueItems", true}}}}}}), "response_format.json_schema.schema", "uniqueItems at #/properties/a");
    refused(schema({{"oneOf", {{{"type", "string"}}, {{"maxLength", 3}}}}}), "response_format.json_schema.schema", "oneOf");
    refused({{"grammar", "root ::= root"}}, "grammar", "left recursion");
    Json strict = tools;
    strict[0]["function"]["strict"] = true;
    strict[0]["function"]["parameters"]["properties"]["city"]["not"] = {{"const", "x"}};
    refused({{"tools", strict}}, "tools", "weather, which is strict");
    strict[0]["function"]["strict"] = false;
    EXPECT_EQ(post(chat({{"tools", strict}, {"max_tokens", 2}})).status, 200);
    refused({{"tools", tools}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "other"}}}}}}, "tool_choice", "other");
    refused({{"tool_choice", "required"}}, "tool_choice", "no tools");
}

}  // namespace
}  // namespace forge::test
