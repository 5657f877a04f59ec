// What the OpenAI protocols share: messages, sampling fields, usage, errors.
#pragma once

#include "request.h"

namespace forge::server {

struct Translated {
    GenerateRequest request;
    std::shared_ptr<Writer> writer;
};

// One translation a protocol: JSON -> request and writer. ApiError names the field.
Translated openai_chat(const Json& body);
Translated openai_completion(const Json& body);
Translated openai_response(const Json& body);

// messages in the OpenAI form -> the conversation. `field`: how errors call the list.
std::vector<Message> openai_messages(const Json& list, const std::string& field);
// Text parts joined by line ends; other kinds of parts are refused by name.
Json joined_parts(const Json& content, const std::string& field);
// temperature, top_p, ..., stop, seed, logit_bias.
void read_sampling(Fields& fields, GenerateRequest& request);
// tools (the chat form), tool_choice, parallel_tool_calls.
void read_tools(Fields& fields, GenerateRequest& request);
void check_tools(const Json& tools, const std::string& field);
// response_format, grammar.
void read_form(Fields& fields, GenerateRequest& request);
// enable_thinking, reasoning_effort, chat_template_kwargs, thinking_budget.
void read_thinking(Fields& fields, GenerateRequest& request);
void set_effort(GenerateRequest& request, const std::string& effort, const std::string& field);

std::vector<std::int32_t> id_list(const Json& list, const std::string& field);   // of non-negative integers

Json openai_usage(const Totals& totals);
Json openai_error(const ApiError& error);
// {token, logprob, bytes, top_logprobs}, ...
Json logprob_list(const std::vector<TokenLogprob>& tokens);
std::string_view openai_finish(TextFinish reason);

}  // namespace forge::server
