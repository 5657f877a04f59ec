// The parsed template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace forge::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Block = std::vector<std::unique_ptr<Stmt>>;

enum class ExprKind : std::uint8_t {
    constant,   // value
    name,       // name
    attribute,  // items[0].name
    item,       // items[0][items[1]]
    slice,      // start, stop, step in items, null where absent; only as an index
    list,       // items
    tuple,      // items; as a target: unpacking
    dict,       // key, value, key, value, ...
    call,       // items[0](arguments)
    filter,     // items[0] | name(arguments); no items[0] in a filter block
    test,       // items[0] is name(arguments)
    negate,
    plus,
    not_,
    and_,  // two or more items
    or_,
    concat,               // a ~ b ~ c
    binary,               // name is the operator
    compare,              // items[0] op[0] items[1] op[1] items[2] ...
    conditional,          // items: value, condition, value otherwise (may be null)
    namespace_attribute,  // a target: name.attribute
};

struct Expr {
    ExprKind kind;
    int line = 0;
    int depth = 1;  // longest path to a leaf
    std::string name;
    std::string attribute;  // namespace_attribute
    Value value;
    std::vector<ExprPtr> items;
    std::vector<std::string> operators;  // compare: ==, <, in, not in, ...
    std::vector<ExprPtr> arguments;
    std::vector<std::pair<std::string, ExprPtr>> keywords;
    ExprPtr star, double_star;  // *args, **kwargs
};

enum class StmtKind : std::uint8_t {
    text,       // text
    print,      // expr
    if_,        // branches, otherwise
    for_,       // target, expr, condition, recursive, body, otherwise
    set,        // target, expr
    set_block,  // target, expr (a filter chain or null), body
    macro,      // name, parameters, body
    call,       // expr (a call), parameters, body
    filter,     // expr (a filter chain), body
    with,       // parameters as targets with values, body
    scope,      // body: generation
    break_,
    continue_,
};

struct Parameter {
    ExprPtr target;  // a name; in `with` any target
    ExprPtr value;   // default or value; null when absent
};

struct Stmt {
    StmtKind kind;
    int line = 0;
    bool recursive = false;
    // macro, call: the body mentions these, so a call may pass them
    bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
    std::string text;  // text; macro's name
    ExprPtr target, expr, condition;
    std::vector<Parameter> parameters;
    std::vector<std::pair<ExprPtr, Block>> branches;
    Block body, otherwise;
};

struct Template {
    std::string source;
    Block body;
};

std::shared_ptr<const Template> parse(std::string_view source);

}  // namespace forge::jinja
