#include "chat/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/paths.h"

namespace forge {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

TemplateSet one(const std::string& source) {
    TemplateSet set;
    set.add("default", source, "test");
    return set;
}

Conversation conversation(const ordered_json& messages, const ordered_json& tools = nullptr) {
    Conversation c;
    for (std::size_t i = 0; i < messages.size(); ++i) c.messages.push_back(message_from_json(messages[i], i));
    c.tools = tools;
    return c;
}

std::string render(const std::string& source, const ordered_json& messages, const ChatOptions& options = {},
                   const ordered_json& tools = nullptr) {
    return apply_template(one(source), conversation(messages, tools), options).text;
}

const ordered_json call_without_text = ordered_json::parse(R"([{"role": "user", "content": "q"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
     "function": {"name": "f", "arguments": "{\"a\": 1.0, \"b\": 123456789012345678901}"}}]}])");

TEST(Conversation, VariablesOfTheTemplate) {
    ChatOptions options;
    options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    options.variables = {{"reasoning_effort", "high"}, {"eos_token", "<end>"}};
    options.enable_thinking = false;
    const ordered_json messages = ordered_json::parse(R"([{"role": "user", "content": "hi"}])");
    EXPECT_EQ(render("{{ bos_token }}{{ eos_token }}{{ pad_token }}|{{ reasoning_effort }}|{{ "
                     "enable_thinking }}|{{ tools is none }}|"
                     "{{ documents is none }}|{{ add_generation_prompt }}|{{ messages }}",
                     messages, options),
              "<s><end>|high|False|True|True|True|[{'role': 'user', 'content': 'hi'}]");
    EXPECT_EQ(render("{{ enable_thinking is defined }}", messages), "False");
}

TEST(Conversation, ReasoningUnderBothNames) {
    const ordered_json messages =
        ordered_json::parse(R"([{"role": "assistant", "content": "a", "reasoning": "r", "thinking": null}])");
    EXPECT_EQ(render("{{ messages[0] }}", messages),
              "{'role': 'assistant', 'content': 'a', 'reasoning_content': 'r', 'thinking': 'r'}");
}

TEST(Conversation, ArgumentsAreObjectsWithTheirNumbers) {
    EXPECT_EQ(render("{{ messages[1].tool_calls[0].function.arguments|tojson }}", call_without_text),
              "{\"a\": 1.0, \"b\": 123456789012345678901}");
}

// The order: absent, null (if the template asks for none), empty; each first with objects.
TEST(Conversation, FormsOfAnEmptyAnswer) {
    EXPECT_EQ(render("{{ 'content' in messages[1] }}", call_without_text), "False");
    EXPECT_EQ(render("{% set m = messages[1] %}{% if m.content is none %}null{% elif m['content'] is defined "
                     "%}text{% else %}{{ raise_exception('x') }}{% endif %}",
                     call_without_text),
              "null");
    EXPECT_EQ(render("[{{ '' + messages[1].content }}]", call_without_text), "[]");
    EXPECT_EQ(render("{{ 'args: ' + messages[1].tool_calls[0].function.arguments }}", call_without_text),
              R"(args: {"a": 1.0, "b": 123456789012345678901})");
    // Neither works: the first error is told.
    try {
        render(
            "{% if 'content' in messages[1] %}{{ raise_exception('second') }}{% endif %}{{ "
            "raise_exception('first') }}",
            call_without_text);
        FAIL();
    } catch (const TemplateError& error) {
        EXPECT_STREQ(error.what(), "first");
    }
}

TEST(Conversation, ContentBesideCallsStays) {
    ordered_json messages = call_without_text;
    messages[1]["content"] = "let me see";
    EXPECT_EQ(render("{{ messages[1].content }}", messages), "let me see");
}

TEST(Conversation, RefusesWhatIsNotAConversation) {
    EXPECT_THROW(render("x", ordered_json::array()), Error);
    EXPECT_THROW(message_from_json(ordered_json::parse(R"({"content": "x"})"), 0), Error);
    EXPECT_THROW(message_from_json(ordered_json::parse(R"({"role": "user", "content": 5})"), 0), Error);
    EXPECT_THROW(message_from_json(ordered_json::parse(R"({"role": "user", "tool_calls": {}})"), 0), Error);
    EXPECT_THROW(message_from_json(ordered_json::parse("5"), 3), Error);
}

TEST(Conversation, ToolTemplates) {
    TemplateSet set;
    set.add("default", "plain {{ tools is none }}", "test");
    set.add("tool_use", "{% for t in tools %}{{ t.function.name }}{% endfor %}", "test");
    const ordered_json messages = ordered_json::parse(R"([{"role": "user", "content": "hi"}])");
    const ordered_json tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
    EXPECT_EQ(apply_template(set, conversation(messages, tools), {}).text, "f");
    EXPECT_EQ(apply_template(set, conversation(messages), {}).text, "plain True");
    EXPECT_EQ(apply_template(set, conversation(messages, ordered_json::array()), {}).template_name,
              "default");
    // A tool template alone, without tools: they are left undefined, since looping over none fails.
    EXPECT_EQ(render("[{% for t in tools %}x{% endfor %}]", messages), "[]");
}

TEST(Conversation, StateAtTheEndOfThePrompt) {
    const ordered_json messages = ordered_json::parse(R"([{"role": "user", "content": "hi"}])");
    const auto prompt = [&](const std::string& source, bool generate = true) {
        ChatOptions options;
        options.add_generation_prompt = generate;
        return apply_template(one(source), conversation(messages), options);
    };
    EXPECT_TRUE(prompt("{{ '<think>\n' }}").in_reasoning);
    EXPECT_FALSE(prompt("{{ '<think>\n' }}", false).in_reasoning);
    EXPECT_FALSE(prompt("{{ '<think>\n\n</think>\n\n' }}").in_reasoning);
    EXPECT_FALSE(prompt("plain").reasoning.has_value());
}

// The published templates take a whole agent conversation in the API's form.
TEST(Conversation, EveryFamilyTakesToolConversations) {
    const fs::path folder = std::string(FORGE_SHARED_DATA) + "/data/templates";
    if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here";
    ordered_json messages = ordered_json::parse(R"([{"role": "user", "content": "weather?"},
        {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [{"id": "abcdefghi", "type": "function",
         "function": {"name": "get", "arguments": "{\"city\": \"Bern\"}"}}]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "sunny"}])");
    const ordered_json tools =
        ordered_json::parse(R"([{"type": "function", "function": {"name": "get", "description": "d",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "c"}}, "required": ["city"]}}}])");
    int rendered = 0;
    for (const auto& file : fs::directory_iterator(folder)) {
        if (file.path().stem() == "google-gemma-2-2b-it") continue;  // knows neither tools nor the role
        ChatOptions options;
        options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
        const ChatPrompt prompt =
            apply_template(one(read_file(file.path())), conversation(messages, tools), options);
        EXPECT_THAT(prompt.text, HasSubstr("Bern")) << file.path();
        EXPECT_THAT(prompt.text, HasSubstr("sunny")) << file.path();
        EXPECT_EQ(prompt.text.find("None"), std::string::npos) << file.path() << prompt.text;
        ++rendered;
    }
    EXPECT_GT(rendered, 5);
}

class Folder : public testing::Test {
  protected:
    void SetUp() override {
        folder_ = fs::temp_directory_path() / ("forge_templates_" + std::to_string(::getpid()) + "_" +
                                               testing::UnitTest::GetInstance()->current_test_info()->name());
        fs::remove_all(folder_);
        fs::create_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }
    void write(const std::string& name, std::string_view text) {
        fs::create_directories((folder_ / name).parent_path());
        write_file_atomically(folder_ / name, text);
    }
    fs::path folder_;
};

TEST_F(Folder, FilesBeforeConfig) {
    write(
        "tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "config"}, {"name": "rag", "template": "rag"}]})");
    EXPECT_EQ(templates_from_folder(folder_).source("default"), "config");
    write("chat_template.json", R"({"chat_template": "json"})");
    EXPECT_EQ(templates_from_folder(folder_).source("default"), "json");
    write("chat_template.jinja", "jinja");
    write("additional_chat_templates/tool_use.jinja", "tools");
    const TemplateSet set = templates_from_folder(folder_);
    EXPECT_EQ(set.source("default"), "jinja");
    EXPECT_THAT(set.names(), ElementsAre("default", "rag", "tool_use"));
    EXPECT_EQ(set.choose(true), "tool_use");
    EXPECT_EQ(set.choose(false), "default");
}

TEST_F(Folder, Mistakes) {
    EXPECT_TRUE(templates_from_folder(folder_).empty());
    EXPECT_THROW(templates_from_folder(folder_).choose(false), Error);
    write("tokenizer_config.json", "{");
    EXPECT_THROW(templates_from_folder(folder_), Error);
    write("tokenizer_config.json", R"({"chat_template": 5})");
    EXPECT_THROW(templates_from_folder(folder_), Error);
    write("tokenizer_config.json", R"({"chat_template": [{"name": "a"}]})");
    EXPECT_THROW(templates_from_folder(folder_), Error);
    write("tokenizer_config.json",
          R"({"chat_template": [{"name": "a", "template": "x"}, {"name": "b", "template": "{% if %}"}]})");
    const TemplateSet set = templates_from_folder(folder_);
    EXPECT_THROW(set.choose(false), Error);  // neither is the default
    EXPECT_EQ(set.get("a").source(), "x");
    EXPECT_THROW(set.get("b"), TemplateError);  // only its use fails
    EXPECT_THROW(set.get("c"), Error);
}

TEST(Metadata, NamedTemplates) {
    Metadata metadata;
    metadata.source = "m.gguf";
    metadata.set("tokenizer.chat_template", std::string("plain"));
    metadata.set("tokenizer.chat_template.tool_use", std::string("tools"));
    metadata.set("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
    const TemplateSet set = templates_from_metadata(metadata);
    EXPECT_THAT(set.names(), ElementsAre("default", "tool_use"));
    EXPECT_EQ(set.source("tool_use"), "tools");
    EXPECT_TRUE(templates_from_metadata(Metadata{}).empty());
}

}  // namespace
}  // namespace forge
