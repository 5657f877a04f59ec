// JSON Schema and GBNF -> Grammar.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/notation.h"

namespace forge {

struct SchemaOptions {
    // What an object may hold whose schema lists properties and says nothing of others: false, nothing else
    // (what people mean, and what a model should be held to); true, anything (the letter of JSON Schema).
    bool open_objects = false;
};

// A schema (draft 2020-12, docs/structured-output.md) -> the texts of the values that it accepts, written
// compactly: one space after : and , at most, members in the schema's order. Error, naming the keyword and
// where it stands, when that language cannot be built exactly.
Grammar compile_schema(const nlohmann::ordered_json& schema, const SchemaOptions& options = {});

// Any JSON object.
Grammar any_object();

// A text in which values of schemas stand, such as a tool call: before, one alternative or (with `several`) a list
// of them with `between`, after. Special tokens in the texts are written as Grammar says.
struct FormPiece {
    std::string text;
    const nlohmann::ordered_json* schema = nullptr;   // then a value follows the text; must stay while compiling
    Notation notation = {};                           // in which it is written
};
struct Form {
    std::string before, between, after;
    std::vector<std::vector<FormPiece>> alternatives;
    bool several = false;
};
// A text of one of the forms.
Grammar compile_forms(const std::vector<Form>& forms, const SchemaOptions& options = {});

// GBNF, as llama.cpp reads it: the rule `root` is the whole. Errors name the line.
Grammar compile_gbnf(std::string_view text);

}  // namespace forge
