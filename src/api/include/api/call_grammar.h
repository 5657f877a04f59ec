// The grammar of tool calls, in the words of a model's family.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "api/constraint.h"
#include "chat/tool_calls.h"

namespace forge {

struct CallRules {
    ToolFamily family = ToolFamily::none;
    std::string template_source;        // tells versions of a family apart
    nlohmann::ordered_json tools;       // as in the OpenAI API
    std::string only;                   // the tool that must be called; empty: any
    bool parallel = true;               // several calls
};

// Makes the constraint of one answer; compiled once, for any number of answers.
using ConstraintMaker = std::function<std::shared_ptr<TokenConstraint>()>;

// An answer that is one call or more. Arguments are held to each tool's schema; for a tool that is not strict and
// whose schema cannot be compiled, they are any object. Error for a strict one, naming the keyword and the tool.
// otherwise: a schema that the answer may follow instead of calling; or null.
ConstraintMaker require_calls(const CallRules& rules, std::shared_ptr<const Vocabulary> vocabulary, const nlohmann::ordered_json* otherwise = nullptr);

// An answer in which calls, where they come, fit the tools. Empty when no tool is strict.
ConstraintMaker check_calls(const CallRules& rules, std::shared_ptr<const Vocabulary> vocabulary);

}  // namespace forge
