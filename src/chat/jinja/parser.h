// Tokens -> statements. The grammar of expressions is in parser_expressions.cpp, that of
// tags in parser_statements.cpp.
#pragma once

#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace forge::jinja {

class Parser {
  public:
    explicit Parser(std::vector<Lexeme> tokens) : tokens_(std::move(tokens)) {}
    Block parse_template();

  private:
    // Deeper nesting, of blocks or in one expression, is refused: it would only serve to
    // exhaust the stack.
    static constexpr int max_nesting = 100;
    static constexpr int max_expression_depth = 200;
    struct Nesting {
        explicit Nesting(Parser& parser);
        ~Nesting() { --parser_.nesting_; }
        Parser& parser_;
    };

    const Lexeme& current() const { return tokens_[at_]; }
    const Lexeme& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
    void advance() {
        if (at_ + 1 < tokens_.size()) ++at_;
    }
    bool is_op(std::string_view op) const { return current().token == Token::op && current().text == op; }
    bool is_name(std::string_view name) const {
        return current().token == Token::name && current().text == name;
    }
    bool skip_op(std::string_view op);
    bool skip_name(std::string_view name);
    void expect_op(std::string_view op);
    void expect_name(std::string_view name);
    std::string take_name(std::string_view what);
    [[noreturn]] void unexpected(std::string_view wanted) const;
    static std::string describe(const Lexeme& token);

    // Expressions, loosest first.
    ExprPtr expression() { return conditional(); }
    ExprPtr conditional();
    ExprPtr disjunction();
    ExprPtr conjunction();
    ExprPtr negation();
    ExprPtr comparison();
    ExprPtr sum();
    ExprPtr concatenation();
    ExprPtr product();
    ExprPtr power();
    ExprPtr unary(bool with_filters);
    ExprPtr primary();
    ExprPtr postfix(ExprPtr node);
    ExprPtr filters_and_tests(ExprPtr node);
    ExprPtr filter_chain(ExprPtr node, bool first_without_bar);
    ExprPtr test(ExprPtr node);
    ExprPtr subscript(ExprPtr node);
    ExprPtr subscript_part();
    ExprPtr call(ExprPtr node);
    void call_arguments(Expr& node);
    ExprPtr list_literal();
    ExprPtr dict_literal();
    enum class TupleOf { expressions, unconditional, targets };
    // One expression, or several separated by commas: a tuple.
    ExprPtr tuple_or_single(TupleOf what, bool in_parentheses, std::string_view end_name = {});
    ExprPtr tuple_part(TupleOf what);
    ExprPtr node(ExprKind kind, int line) const;
    ExprPtr unary_node(ExprKind kind, int line, ExprPtr operand) const;
    ExprPtr finish(ExprPtr node) const;  // computes the depth and checks it
    std::string dotted_name(std::string_view what);

    // Statements.
    Block blocks_until(std::initializer_list<std::string_view> ends, std::string_view tag, int tag_line);
    Block statements(std::initializer_list<std::string_view> ends, std::string_view tag, int tag_line);
    std::unique_ptr<Stmt> statement();
    std::unique_ptr<Stmt> if_statement(int line);
    std::unique_ptr<Stmt> for_statement(int line);
    std::unique_ptr<Stmt> set_statement(int line);
    std::unique_ptr<Stmt> macro_statement(int line);
    std::unique_ptr<Stmt> call_statement(int line);
    std::unique_ptr<Stmt> filter_statement(int line);
    std::unique_ptr<Stmt> with_statement(int line);
    std::unique_ptr<Stmt> generation_statement(int line);
    void parameters(Stmt& stmt);
    ExprPtr assignment_target(bool allow_namespace);
    void check_target(const Expr& target) const;
    void end_of_tag();

    std::vector<Lexeme> tokens_;
    std::size_t at_ = 0;
    int nesting_ = 0;
    int loop_depth_ = 0;  // of the innermost macro or call block
    struct MacroUse {
        bool varargs = false, kwargs = false, caller = false;
    };
    std::vector<MacroUse> macros_;  // enclosing macros, innermost last
};

// Fails for a filter or test that does not exist, unless it stands inside an if: there only
// reaching it fails.
void check_names(const Block& block);

}  // namespace forge::jinja
