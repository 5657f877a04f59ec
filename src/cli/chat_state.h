// A conversation and what /commands do to it.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "api/text_model.h"
#include "options.h"

namespace forge::cli {

struct ChatState {
    std::shared_ptr<const TextModel> model;
    std::unique_ptr<Session> session;
    std::string system;                                              // empty: none
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // without the system message
    ThinkingFlags thinking;
    ReplyOptions options;
    Reply last;          // of the last answer, for /stats
    bool leave = false;

    // The system message, if any, and the conversation.
    nlohmann::ordered_json all_messages() const;
    bool full() const;   // no token fits the context any more
};

// "/set temp 0.5": does it and prints what it did to standard error. A mistake is an Error.
void run_chat_command(ChatState& state, const std::string& line);

}  // namespace forge::cli
