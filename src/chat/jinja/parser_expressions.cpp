#include <algorithm>

#include "jinja/parser.h"

namespace forge::jinja {

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
    if (parser.nesting_ >= max_nesting)
        syntax_error(parser.current().line, fmt::format("more than {} levels of nesting", max_nesting));
    ++parser.nesting_;
}

std::string Parser::describe(const Lexeme& token) {
    switch (token.token) {
        case Token::data:
            return "text";
        case Token::print_begin:
            return "'{{'";
        case Token::print_end:
            return "'}}'";
        case Token::block_begin:
            return "'{%'";
        case Token::block_end:
            return "'%}'";
        case Token::string:
            return "a string";
        case Token::integer:
        case Token::real:
            return "a number";
        case Token::name:
        case Token::op:
            return fmt::format("'{}'", token.text);
        case Token::end:
            return "the end of the template";
    }
    return "?";
}

void Parser::unexpected(std::string_view wanted) const {
    syntax_error(current().line,
                 fmt::format("{} was expected, but {} was found", wanted, describe(current())));
}

bool Parser::skip_op(std::string_view op) {
    if (!is_op(op)) return false;
    advance();
    return true;
}
bool Parser::skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    advance();
    return true;
}
void Parser::expect_op(std::string_view op) {
    if (!skip_op(op)) unexpected(fmt::format("'{}'", op));
}
void Parser::expect_name(std::string_view name) {
    if (!skip_name(name)) unexpected(fmt::format("'{}'", name));
}
std::string Parser::take_name(std::string_view what) {
    if (current().token != Token::name) unexpected(what);
    std::string name = current().text;
    advance();
    return name;
}

ExprPtr Parser::node(ExprKind kind, int line) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = line;
    return e;
}

ExprPtr Parser::unary_node(ExprKind kind, int line, ExprPtr operand) const {
    ExprPtr e = node(kind, line);
    e->items.push_back(std::move(operand));
    return finish(std::move(e));
}

ExprPtr Parser::finish(ExprPtr e) const {
    const auto look = [&](const ExprPtr& child) {
        if (child) e->depth = std::max(e->depth, child->depth + 1);
    };
    for (const ExprPtr& child : e->items) look(child);
    for (const ExprPtr& child : e->arguments) look(child);
    for (const auto& [name, child] : e->keywords) look(child);
    look(e->star);
    look(e->double_star);
    if (e->depth > max_expression_depth)
        syntax_error(e->line, fmt::format("an expression has more than {} operations inside each other",
                                          max_expression_depth));
    return e;
}

ExprPtr Parser::conditional() {
    const Nesting guard(*this);
    const int line = current().line;
    ExprPtr value = disjunction();
    while (is_name("if")) {
        advance();
        ExprPtr e = node(ExprKind::conditional, line);
        e->items.push_back(std::move(value));
        e->items.push_back(disjunction());
        e->items.push_back(skip_name("else") ? conditional() : nullptr);
        value = finish(std::move(e));
    }
    return value;
}

ExprPtr Parser::disjunction() {
    const int line = current().line;
    ExprPtr first = conjunction();
    if (!is_name("or")) return first;
    ExprPtr e = node(ExprKind::or_, line);
    e->items.push_back(std::move(first));
    while (skip_name("or")) e->items.push_back(conjunction());
    return finish(std::move(e));
}

ExprPtr Parser::conjunction() {
    const int line = current().line;
    ExprPtr first = negation();
    if (!is_name("and")) return first;
    ExprPtr e = node(ExprKind::and_, line);
    e->items.push_back(std::move(first));
    while (skip_name("and")) e->items.push_back(negation());
    return finish(std::move(e));
}

ExprPtr Parser::negation() {
    const int line = current().line;
    if (!skip_name("not")) return comparison();
    const Nesting guard(*this);
    return unary_node(ExprKind::not_, line, negation());
}

ExprPtr Parser::comparison() {
    const int line = current().line;
    ExprPtr first = sum();
    ExprPtr e;
    while (true) {
        std::string op;
        if (current().token == Token::op) {
            for (std::string_view candidate : {"==", "!=", "<", "<=", ">", ">="})
                if (current().text == candidate) op = candidate;
        } else if (is_name("in")) {
            op = "in";
        } else if (is_name("not") && ahead().token == Token::name && ahead().text == "in") {
            advance();
            op = "not in";
        }
        if (op.empty()) break;
        advance();
        if (!e) {
            e = node(ExprKind::compare, line);
            e->items.push_back(std::move(first));
        }
        e->operators.push_back(std::move(op));
        e->items.push_back(sum());
    }
    return e ? finish(std::move(e)) : std::move(first);
}

ExprPtr Parser::sum() {
    const int line = current().line;
    ExprPtr left = concatenation();
    while (is_op("+") || is_op("-")) {
        ExprPtr e = node(ExprKind::binary, line);
        e->name = current().text;
        advance();
        e->items.push_back(std::move(left));
        e->items.push_back(concatenation());
        left = finish(std::move(e));
    }
    return left;
}

ExprPtr Parser::concatenation() {
    const int line = current().line;
    ExprPtr first = product();
    if (!is_op("~")) return first;
    ExprPtr e = node(ExprKind::concat, line);
    e->items.push_back(std::move(first));
    while (skip_op("~")) e->items.push_back(product());
    return finish(std::move(e));
}

ExprPtr Parser::product() {
    const int line = current().line;
    ExprPtr left = power();
    while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
        ExprPtr e = node(ExprKind::binary, line);
        e->name = current().text;
        advance();
        e->items.push_back(std::move(left));
        e->items.push_back(power());
        left = finish(std::move(e));
    }
    return left;
}

ExprPtr Parser::power() {
    const int line = current().line;
    ExprPtr left = unary(true);
    while (skip_op("**")) {
        ExprPtr e = node(ExprKind::binary, line);
        e->name = "**";
        e->items.push_back(std::move(left));
        e->items.push_back(unary(true));
        left = finish(std::move(e));
    }
    return left;
}

ExprPtr Parser::unary(bool with_filters) {
    const int line = current().line;
    ExprPtr e;
    if (is_op("-") || is_op("+")) {
        const Nesting guard(*this);
        const ExprKind kind = is_op("-") ? ExprKind::negate : ExprKind::plus;
        advance();
        e = unary_node(kind, line, unary(false));
    } else {
        e = primary();
    }
    e = postfix(std::move(e));
    return with_filters ? filters_and_tests(std::move(e)) : std::move(e);
}

ExprPtr Parser::primary() {
    const Lexeme& token = current();
    const int line = token.line;
    ExprPtr e = node(ExprKind::constant, line);
    switch (token.token) {
        case Token::name: {
            const std::string& text = token.text;
            if (text == "true" || text == "True")
                e->value = Value::boolean(true);
            else if (text == "false" || text == "False")
                e->value = Value::boolean(false);
            else if (text != "none" && text != "None") {
                e->kind = ExprKind::name;
                e->name = text;
                for (MacroUse& macro : macros_) {
                    macro.varargs |= text == "varargs";
                    macro.kwargs |= text == "kwargs";
                    macro.caller |= text == "caller";
                }
            }
            advance();
            return e;
        }
        case Token::string: {
            std::string text;
            for (; current().token == Token::string; advance()) text += current().text;
            e->value = Value::literal(std::move(text));
            return e;
        }
        case Token::integer:
        case Token::real:
            e->value = token.value;
            advance();
            return e;
        default:
            break;
    }
    if (is_op("[")) return list_literal();
    if (is_op("{")) return dict_literal();
    if (skip_op("(")) {
        const Nesting guard(*this);
        ExprPtr inner = tuple_or_single(TupleOf::expressions, true);
        expect_op(")");
        return inner;
    }
    unexpected("a value");
}

ExprPtr Parser::tuple_part(TupleOf what) {
    switch (what) {
        case TupleOf::targets:
            return primary();
        case TupleOf::unconditional: {
            const Nesting guard(*this);
            return disjunction();
        }
        case TupleOf::expressions:
            break;
    }
    return expression();
}

ExprPtr Parser::tuple_or_single(TupleOf what, bool in_parentheses, std::string_view end_name) {
    const int line = current().line;
    std::vector<ExprPtr> items;
    bool is_tuple = false;
    const auto at_end = [&] {
        return current().token == Token::print_end || current().token == Token::block_end || is_op(")") ||
               (!end_name.empty() && is_name(end_name));
    };
    while (true) {
        if (!items.empty()) {
            if (!is_op(",")) break;
            advance();
            is_tuple = true;
        }
        if (at_end()) break;
        items.push_back(tuple_part(what));
        if (is_op(","))
            is_tuple = true;
        else
            break;
    }
    if (!is_tuple) {
        if (!items.empty()) return std::move(items.front());
        if (!in_parentheses) unexpected("an expression");
    }
    ExprPtr e = node(ExprKind::tuple, line);
    e->items = std::move(items);
    return finish(std::move(e));
}

ExprPtr Parser::list_literal() {
    const Nesting guard(*this);
    ExprPtr e = node(ExprKind::list, current().line);
    expect_op("[");
    while (!is_op("]")) {
        if (!e->items.empty()) expect_op(",");
        if (is_op("]")) break;
        e->items.push_back(expression());
    }
    expect_op("]");
    return finish(std::move(e));
}

ExprPtr Parser::dict_literal() {
    const Nesting guard(*this);
    ExprPtr e = node(ExprKind::dict, current().line);
    expect_op("{");
    while (!is_op("}")) {
        if (!e->items.empty()) expect_op(",");
        if (is_op("}")) break;
        e->items.push_back(expression());
        expect_op(":");
        e->items.push_back(expression());
    }
    expect_op("}");
    return finish(std::move(e));
}

ExprPtr Parser::postfix(ExprPtr e) {
    while (true) {
        if (is_op(".") || is_op("["))
            e = subscript(std::move(e));
        else if (is_op("("))
            e = call(std::move(e));
        else
            return e;
    }
}

ExprPtr Parser::filters_and_tests(ExprPtr e) {
    while (true) {
        if (is_op("|"))
            e = filter_chain(std::move(e), false);
        else if (is_name("is"))
            e = test(std::move(e));
        else if (is_op("("))
            e = call(std::move(e));
        else
            return e;
    }
}

ExprPtr Parser::subscript(ExprPtr object) {
    const int line = current().line;
    if (skip_op(".")) {
        if (current().token == Token::integer) {
            ExprPtr e = node(ExprKind::item, line);
            ExprPtr index = node(ExprKind::constant, line);
            index->value = current().value;
            advance();
            e->items.push_back(std::move(object));
            e->items.push_back(std::move(index));
            return finish(std::move(e));
        }
        ExprPtr e = node(ExprKind::attribute, line);
        e->name = take_name("a name after '.'");
        e->items.push_back(std::move(object));
        return finish(std::move(e));
    }
    const Nesting guard(*this);
    expect_op("[");
    std::vector<ExprPtr> parts;
    while (!is_op("]")) {
        if (!parts.empty()) expect_op(",");
        parts.push_back(subscript_part());
    }
    if (parts.empty()) unexpected("an index");
    expect_op("]");
    ExprPtr e = node(ExprKind::item, line);
    e->items.push_back(std::move(object));
    if (parts.size() == 1) {
        e->items.push_back(std::move(parts[0]));
    } else {
        ExprPtr tuple = node(ExprKind::tuple, line);
        tuple->items = std::move(parts);
        e->items.push_back(finish(std::move(tuple)));
    }
    return finish(std::move(e));
}

ExprPtr Parser::subscript_part() {
    const int line = current().line;
    ExprPtr first;
    if (!is_op(":")) {
        first = expression();
        if (!is_op(":")) return first;
    }
    advance();
    ExprPtr e = node(ExprKind::slice, line);
    e->items.push_back(std::move(first));
    const auto bound = [&] {
        const bool absent = is_op(":") || is_op("]") || is_op(",");
        e->items.push_back(absent ? nullptr : expression());
    };
    bound();
    if (skip_op(":"))
        bound();
    else
        e->items.push_back(nullptr);
    return finish(std::move(e));
}

ExprPtr Parser::call(ExprPtr function) {
    ExprPtr e = node(ExprKind::call, current().line);
    e->items.push_back(std::move(function));
    call_arguments(*e);
    return finish(std::move(e));
}

void Parser::call_arguments(Expr& e) {
    const Nesting guard(*this);
    expect_op("(");
    for (bool first = true; !is_op(")"); first = false) {
        if (!first) expect_op(",");
        if (is_op(")")) break;
        const bool keywords_began = !e.keywords.empty() || e.double_star;
        if (skip_op("*")) {
            if (e.star || e.double_star) unexpected("one '*' argument");
            e.star = expression();
        } else if (skip_op("**")) {
            if (e.double_star) unexpected("one '**' argument");
            e.double_star = expression();
        } else if (current().token == Token::name && ahead().token == Token::op && ahead().text == "=") {
            if (e.double_star) unexpected("no keyword after '**'");
            std::string name = current().text;
            advance();
            advance();
            e.keywords.emplace_back(std::move(name), expression());
        } else {
            if (keywords_began || e.star) unexpected("a keyword argument");
            e.arguments.push_back(expression());
        }
    }
    expect_op(")");
}

std::string Parser::dotted_name(std::string_view what) {
    std::string name = take_name(what);
    while (skip_op(".")) name += "." + take_name(what);
    return name;
}

ExprPtr Parser::filter_chain(ExprPtr object, bool first_without_bar) {
    while (is_op("|") || first_without_bar) {
        if (!first_without_bar) advance();
        first_without_bar = false;
        ExprPtr e = node(ExprKind::filter, current().line);
        e->name = dotted_name("the name of a filter");
        if (object) e->items.push_back(std::move(object));
        if (is_op("(")) call_arguments(*e);
        object = finish(std::move(e));
    }
    return object;
}

ExprPtr Parser::test(ExprPtr object) {
    const int line = current().line;
    advance();
    const bool negated = skip_name("not");
    ExprPtr e = node(ExprKind::test, line);
    e->name = dotted_name("the name of a test");
    e->items.push_back(std::move(object));
    const Lexeme& next = current();
    const bool argument_follows =
        next.token == Token::string || next.token == Token::integer || next.token == Token::real ||
        is_op("[") || is_op("{") ||
        (next.token == Token::name && !is_name("else") && !is_name("or") && !is_name("and"));
    if (is_op("(")) {
        call_arguments(*e);
    } else if (argument_follows) {
        if (is_name("is")) syntax_error(line, "tests cannot be chained with 'is'");
        e->arguments.push_back(postfix(primary()));
    }
    e = finish(std::move(e));
    return negated ? unary_node(ExprKind::not_, line, std::move(e)) : std::move(e);
}

}  // namespace forge::jinja
