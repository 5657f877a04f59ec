// Requests that are nearly right: whatever a client sends, a translator answers with a request or an ApiError.
#include <gtest/gtest.h>

#include <random>

#include "anthropic.h"
#include "infill.h"
#include "ollama.h"
#include "openai.h"

namespace forge::server {
namespace {

using Translate = Translated (*)(const Json&);
Translated messages(const Json& body) { return anthropic_messages(body); }

const std::vector<std::pair<Translate, Json>>& examples() {
    static const std::vector<std::pair<Translate, Json>> all = {
        {openai_chat, Json::parse(R"({"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"t"}]},
            {"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"x"}],
            "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"stop":["a","b"],"temperature":1,"top_p":0.5,
            "logit_bias":{"5":-100},"seed":7,"n":2,"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":3,"max_tokens":5,"reasoning_effort":"low",
            "response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}},"chat_template_kwargs":{"a":1},"modalities":["text"]})")},
        {openai_completion, Json::parse(R"({"model":"m","prompt":["a","b"],"max_tokens":5,"stop":"x","echo":true,"n":2,"best_of":2})")},
        {openai_completion, Json::parse(R"({"prompt":[[1,2],[3]],"logprobs":2,"presence_penalty":1.5})")},
        {openai_response, Json::parse(R"({"instructions":"i","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"reasoning","summary":[{"text":"x"}]},
            {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"}],"tools":[{"type":"function","name":"f","parameters":{}}],
            "tool_choice":{"type":"function","name":"f"},"text":{"format":{"type":"json_schema","schema":{}}},"reasoning":{"effort":"high"},"max_output_tokens":5})")},
        {messages, Json::parse(R"({"model":"m","max_tokens":5,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
            {"type":"text","text":"b"},{"type":"tool_use","id":"t","name":"f","input":{"x":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"r"}],"is_error":true}]}],
            "tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"enabled","budget_tokens":9},"stop_sequences":["x"],"top_k":3})")},
        {ollama_chat, Json::parse(R"({"model":"m","messages":[{"role":"user","content":"a","images":[]},{"role":"tool","tool_name":"f","content":"x"}],"options":{"temperature":1,"num_predict":5,"stop":["x"]},
            "format":{"type":"object"},"keep_alive":"5m","think":true,"tools":[{"type":"function","function":{"name":"f"}}]})")},
        {ollama_generate, Json::parse(R"({"model":"m","prompt":"p","system":"s","suffix":"x","raw":true,"format":"json","options":{"seed":1}})")},
        {infill, Json::parse(R"({"input_prefix":"a","input_suffix":"b","input_extra":[{"filename":"f","text":"t"}],"n_predict":5})")}};
    return all;
}

TEST(Requests, TheExamplesAreRight) {
    for (const auto& [translate, body] : examples()) EXPECT_NO_THROW(translate(body)) << body;
}

void collect(Json& json, std::vector<Json*>& nodes) {
    nodes.push_back(&json);
    if (json.is_structured())
        for (Json& member : json) collect(member, nodes);
}

TEST(Requests, ChangedAnywhereTheyAreAnsweredInWords) {
    const Json values[] = {nullptr, true, 0, -1, 1.5, 1e300, INT64_MIN, UINT64_MAX, "", "x", "\xE2\x82\xAC", Json::array(), Json::object(), Json::array({nullptr}), Json::array({Json::object()}),
                           Json::array({Json::array()}), Json{{"type", "text"}}, Json{{"type", 5}}, Json{{"", nullptr}}, Json::array({"a", 5}), std::string(5000, 'a')};
    std::mt19937 rng(11);
    for (const auto& [translate, body] : examples()) {
        for (int round = 0; round < 4000; ++round) {
            Json changed = body;
            for (unsigned n = 1 + rng() % 2; n; --n) {
                std::vector<Json*> nodes;
                collect(changed, nodes);
                Json& node = *nodes[rng() % nodes.size()];
                if (rng() % 4 == 0 && node.is_object() && !node.empty()) {
                    node.erase(std::next(node.begin(), static_cast<std::ptrdiff_t>(rng() % node.size())).key());
                } else if (rng() % 4 == 0 && node.is_object()) {
                    node["another"] = values[rng() % std::size(values)];
                } else {
                    node = values[rng() % std::size(values)];
                }
            }
            if (!changed.is_object()) continue;   // parse_object's matter
            try {
                translate(changed);
            } catch (const ApiError& error) {
                EXPECT_GE(error.status(), 400);
                EXPECT_LT(error.status(), 502);
                EXPECT_NE(std::string(error.what()), "");
            } catch (const std::exception& error) {
                ADD_FAILURE() << changed << "\n" << error.what();
            }
        }
    }
}

TEST(Requests, HaveAnEnd) {
    std::string many = "{\"prompt\":[";
    for (int i = 0; i < 4'000'001; ++i) many += "1,";
    many += "1]}";
    try {
        parse_object(many);
        FAIL() << "so many values were read";
    } catch (const ApiError& error) {
        EXPECT_EQ(error.status(), 400);
    }
}

TEST(Requests, MessagesThatClientsSendBackAreTaken) {
    EXPECT_NO_THROW(openai_chat(Json::parse(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","refusal":null,"annotations":[],"audio":null,"function_call":null,
        "tool_calls":null,"parsed":{"x":1},"reasoning_content":"r"},{"role":"user","content":"c","cache_control":{"type":"ephemeral"}}]})")));
    EXPECT_THROW(openai_chat(Json::parse(R"({"messages":[{"role":"user","content":"a","frob":1}]})")), ApiError);
}

}  // namespace
}  // namespace forge::server
