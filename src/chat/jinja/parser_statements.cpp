#include <algorithm>

#include "jinja/parser.h"

namespace forge::jinja {
namespace {

std::unique_ptr<Stmt> statement_of(StmtKind kind, int line) {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->line = line;
    return s;
}

}  // namespace

Block Parser::parse_template() {
    Block block = statements({}, {}, 0);
    return block;
}

void Parser::end_of_tag() {
    if (current().token != Token::block_end) unexpected("'%}'");
    advance();
}

// The statements up to one of the tags `ends`, whose name is then the current token (its
// '{%' is passed). Without ends: up to the end of the template.
Block Parser::statements(std::initializer_list<std::string_view> ends, std::string_view tag, int tag_line) {
    const Nesting guard(*this);
    Block block;
    while (current().token != Token::end) {
        const int line = current().line;
        if (current().token == Token::data) {
            auto s = statement_of(StmtKind::text, line);
            s->text = current().text;
            block.push_back(std::move(s));
            advance();
        } else if (current().token == Token::print_begin) {
            advance();
            auto s = statement_of(StmtKind::print, line);
            s->expr = tuple_or_single(TupleOf::expressions, false);
            if (current().token != Token::print_end) unexpected("'}}'");
            advance();
            block.push_back(std::move(s));
        } else {
            advance();  // block_begin
            if (std::any_of(ends.begin(), ends.end(), [&](std::string_view e) { return is_name(e); }))
                return block;
            block.push_back(statement());
            end_of_tag();
        }
    }
    if (ends.size() == 0) return block;
    syntax_error(tag_line, fmt::format("the template ends before '{{% {} %}}' is closed with '{{% {} %}}'",
                                       tag, *(ends.end() - 1)));
}

// The same after the end of an opening tag.
Block Parser::blocks_until(std::initializer_list<std::string_view> ends, std::string_view tag, int tag_line) {
    skip_op(":");
    end_of_tag();
    return statements(ends, tag, tag_line);
}

std::unique_ptr<Stmt> Parser::statement() {
    const int line = current().line;
    const std::string tag = take_name("the name of a tag");
    if (tag == "if") return if_statement(line);
    if (tag == "for") return for_statement(line);
    if (tag == "set") return set_statement(line);
    if (tag == "macro") return macro_statement(line);
    if (tag == "call") return call_statement(line);
    if (tag == "filter") return filter_statement(line);
    if (tag == "with") return with_statement(line);
    if (tag == "generation") return generation_statement(line);
    if (tag == "print") {
        auto s = statement_of(StmtKind::print, line);
        s->expr = tuple_or_single(TupleOf::expressions, false);
        return s;
    }
    if (tag == "break" || tag == "continue") {
        if (loop_depth_ == 0) syntax_error(line, fmt::format("'{}' stands outside of a loop", tag));
        return statement_of(tag == "break" ? StmtKind::break_ : StmtKind::continue_, line);
    }
    for (std::string_view other : {"extends", "include", "import", "from", "block", "autoescape"})
        if (tag == other)
            syntax_error(
                line,
                fmt::format("the tag '{}' has no meaning in a chat template and is not supported", tag));
    syntax_error(line, fmt::format("unknown tag '{}'", tag));
}

std::unique_ptr<Stmt> Parser::if_statement(int line) {
    auto s = statement_of(StmtKind::if_, line);
    while (true) {
        ExprPtr condition = tuple_or_single(TupleOf::unconditional, false);
        Block body = blocks_until({"elif", "else", "endif"}, "if", line);
        s->branches.emplace_back(std::move(condition), std::move(body));
        const std::string tag = take_name("'endif'");
        if (tag == "elif") continue;
        if (tag == "else") {
            s->otherwise = blocks_until({"endif"}, "if", line);
            expect_name("endif");
        }
        return s;
    }
}

std::unique_ptr<Stmt> Parser::for_statement(int line) {
    auto s = statement_of(StmtKind::for_, line);
    s->target = tuple_or_single(TupleOf::targets, false, "in");
    check_target(*s->target);
    if (s->target->kind == ExprKind::name && s->target->name == "loop")
        syntax_error(line, "the loop variable cannot be called 'loop'");
    expect_name("in");
    s->expr = tuple_or_single(TupleOf::unconditional, false, "recursive");
    if (skip_name("if")) s->condition = expression();
    s->recursive = skip_name("recursive");
    ++loop_depth_;
    s->body = blocks_until({"else", "endfor"}, "for", line);
    --loop_depth_;
    if (skip_name("else")) s->otherwise = blocks_until({"endfor"}, "for", line);
    expect_name("endfor");
    return s;
}

std::unique_ptr<Stmt> Parser::set_statement(int line) {
    ExprPtr target = assignment_target(true);
    if (skip_op("=")) {
        auto s = statement_of(StmtKind::set, line);
        s->target = std::move(target);
        s->expr = tuple_or_single(TupleOf::expressions, false);
        return s;
    }
    auto s = statement_of(StmtKind::set_block, line);
    s->target = std::move(target);
    s->expr = filter_chain(nullptr, false);
    s->body = blocks_until({"endset"}, "set", line);
    expect_name("endset");
    return s;
}

ExprPtr Parser::assignment_target(bool allow_namespace) {
    const int line = current().line;
    if (allow_namespace && current().token == Token::name && ahead().token == Token::op &&
        ahead().text == ".") {
        ExprPtr e = node(ExprKind::namespace_attribute, line);
        e->name = current().text;
        advance();
        advance();
        e->attribute = take_name("the name of an attribute");
        return e;
    }
    ExprPtr e = tuple_or_single(TupleOf::targets, false);
    check_target(*e);
    return e;
}

void Parser::check_target(const Expr& target) const {
    if (target.kind == ExprKind::name) return;
    if (target.kind == ExprKind::tuple) {
        for (const ExprPtr& item : target.items) check_target(*item);
        return;
    }
    syntax_error(target.line, "only a name, or names separated by commas, can be assigned to");
}

void Parser::parameters(Stmt& s) {
    expect_op("(");
    bool defaults_began = false;
    while (!is_op(")")) {
        if (!s.parameters.empty()) expect_op(",");
        if (is_op(")")) break;
        Parameter p;
        p.target = node(ExprKind::name, current().line);
        p.target->name = take_name("the name of a parameter");
        if (skip_op("=")) {
            p.value = expression();
            defaults_began = true;
        } else if (defaults_began) {
            unexpected("a default value, as the parameter before has one");
        }
        s.parameters.push_back(std::move(p));
    }
    expect_op(")");
}

std::unique_ptr<Stmt> Parser::macro_statement(int line) {
    auto s = statement_of(StmtKind::macro, line);
    s->text = take_name("the name of a macro");
    macros_.push_back({});
    parameters(*s);
    const int loops = std::exchange(loop_depth_, 0);
    s->body = blocks_until({"endmacro"}, "macro", line);
    loop_depth_ = loops;
    expect_name("endmacro");
    s->uses_varargs = macros_.back().varargs;
    s->uses_kwargs = macros_.back().kwargs;
    s->uses_caller = macros_.back().caller;
    macros_.pop_back();
    return s;
}

std::unique_ptr<Stmt> Parser::call_statement(int line) {
    auto s = statement_of(StmtKind::call, line);
    if (is_op("(")) parameters(*s);
    s->expr = expression();
    if (s->expr->kind != ExprKind::call) syntax_error(line, "'call' needs the call of a macro");
    macros_.push_back({});
    const int loops = std::exchange(loop_depth_, 0);
    s->body = blocks_until({"endcall"}, "call", line);
    loop_depth_ = loops;
    expect_name("endcall");
    s->uses_varargs = macros_.back().varargs;
    s->uses_kwargs = macros_.back().kwargs;
    s->uses_caller = macros_.back().caller;
    macros_.pop_back();
    return s;
}

std::unique_ptr<Stmt> Parser::filter_statement(int line) {
    auto s = statement_of(StmtKind::filter, line);
    s->expr = filter_chain(nullptr, true);
    s->body = blocks_until({"endfilter"}, "filter", line);
    expect_name("endfilter");
    return s;
}

std::unique_ptr<Stmt> Parser::with_statement(int line) {
    auto s = statement_of(StmtKind::with, line);
    while (current().token != Token::block_end) {
        if (!s->parameters.empty()) expect_op(",");
        Parameter p;
        p.target = primary();
        check_target(*p.target);
        expect_op("=");
        p.value = expression();
        s->parameters.push_back(std::move(p));
    }
    s->body = blocks_until({"endwith"}, "with", line);
    expect_name("endwith");
    return s;
}

std::unique_ptr<Stmt> Parser::generation_statement(int line) {
    auto s = statement_of(StmtKind::scope, line);
    const int loops = std::exchange(loop_depth_, 0);
    s->body = blocks_until({"endgeneration"}, "generation", line);
    loop_depth_ = loops;
    expect_name("endgeneration");
    return s;
}

std::shared_ptr<const Template> parse(std::string_view source) {
    if (source.size() > ChatTemplate::max_source)
        throw TemplateError(TemplateError::Cause::limit,
                            fmt::format("The chat template has {} bytes; more than {} are not accepted.",
                                        source.size(), ChatTemplate::max_source));
    auto out = std::make_shared<Template>();
    out->source = std::string(source);
    out->body = Parser(tokenize(source)).parse_template();
    check_names(out->body);
    return out;
}

}  // namespace forge::jinja
