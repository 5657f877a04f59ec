// A conversation -> the prompt text of a model.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "chat/reasoning.h"
#include "chat/template_source.h"
#include "chat/untrusted_text.h"

namespace forge {

struct Message {
    std::string role;
    nlohmann::ordered_json content;  // a text, a list of parts, or null: none
    std::optional<std::string> reasoning;
    // As in the OpenAI API: a list of {"id", "type", "function": {"name", "arguments"}}, or null.
    // Arguments may be an object or the text of one (which keeps numbers exactly).
    nlohmann::ordered_json tool_calls;
    std::string tool_call_id, name;  // empty: none
};

// From the API's form. Reasoning is taken from the first of reasoning_content, thinking and
// reasoning that is not null. Errors say which message is wrong (index, for the message).
Message message_from_json(const nlohmann::ordered_json& json, std::size_t index);

struct Conversation {
    std::vector<Message> messages;
    nlohmann::ordered_json tools;      // a list, or null: none
    nlohmann::ordered_json documents;  // likewise
};

struct ChatOptions {
    std::optional<bool> enable_thinking;    // absent: the template's own default
    nlohmann::ordered_json variables;       // more for the template, such as reasoning_effort; or null
    nlohmann::ordered_json special_tokens;  // {"bos_token": "<s>", ...} as far as there are such, or null
    bool add_generation_prompt = true;
    std::string template_name;  // empty: the one that fits
    std::optional<std::chrono::year_month_day> now;
    TemplateLimits limits;
    const SpecialTexts* special = nullptr;  // texts that messages must not be able to spell
};

struct ChatPrompt {
    std::string text;
    std::string template_name;
    std::optional<ReasoningMarkers> reasoning;  // how this model marks it, if it does
    bool in_reasoning = false;                  // the answer begins inside the reasoning
    // Where in `text` a special token would begin that a message spells (ascending). It is to stay text.
    std::vector<std::size_t> plain_at;
};

// Renders the conversation. Templates disagree on how an assistant's message with tool calls and
// no text must look (see docs/chat-templates.md): the known forms are tried in a fixed order and
// the first that the template accepts counts. When it accepts none, the error is that of the first.
ChatPrompt apply_template(const TemplateSet& templates, const Conversation& conversation,
                          const ChatOptions& options);

}  // namespace forge
