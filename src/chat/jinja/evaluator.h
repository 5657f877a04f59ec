// Runs a parsed template. Statements are in statements.cpp, expressions in
// expressions.cpp, operators in operators.cpp; filters, tests, methods and globals have
// files of their own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/value.h"

namespace forge::jinja {

// Variables of one block. A macro keeps the scopes around its definition.
struct Scope {
    explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
    std::shared_ptr<Scope> parent;
    std::vector<std::pair<std::string_view, Value>> variables;  // names live in the template
    bool kept = false;                                          // a macro refers to it
};

class Evaluator {
  public:
    Evaluator(const Template& parsed, const RenderOptions& options);
    ~Evaluator();
    Evaluator(const Evaluator&) = delete;

    Heap& heap() { return heap_; }
    const RenderOptions& options() const { return options_; }
    std::string render(const Value& context);

    // An error of the template, with the line.
    template <typename... Args>
    [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
        fail_text(fmt::format(format, std::forward<Args>(args)...));
    }
    [[noreturn]] void fail_text(const std::string& message) const;
    // A use of something undefined.
    void need_defined(const Value& value) const {
        if (value.is_undefined()) fail_text(value.undefined().message);
    }

    Value string(std::string text, bool safe = false) { return make_string(heap_, std::move(text), safe); }
    std::string text(const Value& value);  // str(value)
    void append_text(std::string& out, const Value& value);
    void append_repr(std::string& out, const Value& value);

    // value.name: the method or attribute first, then the item of that name.
    Value attribute(const Value& object, std::string_view name);
    // value[key]: the item first, then the method or attribute.
    Value item(const Value& object, const Value& key);
    Value call(const Value& function, Arguments& arguments);
    Next iterate(const Value& value);  // fails when it cannot be iterated
    Values collect(const Value& value);
    std::int64_t length(const Value& value);

    Value binary(std::string_view op, const Value& a, const Value& b);
    bool compare(std::string_view op, const Value& a, const Value& b);
    bool less(const Value& a, const Value& b) { return order("<", a, b); }
    bool contains(const Value& container, const Value& item);
    Value slice(const Value& object, const Value* start, const Value* stop, const Value* step);

    Value filter(std::string_view name, const Value& input, Arguments& arguments);
    bool test(std::string_view name, const Value& input, Arguments& arguments);
    Value new_namespace(Dict attributes);
    void check_size(std::size_t bytes) { heap_.reserve(bytes); }

    // Guards every level of nested evaluation, so that no template can exhaust the stack.
    class Level {
      public:
        explicit Level(Evaluator& ev) : ev_(ev) {
            if (++ev_.depth_ > ev_.options_.limits.depth) ev_.too_deep();
        }
        ~Level() { --ev_.depth_; }

      private:
        Evaluator& ev_;
    };

  private:
    friend class Level;
    enum class Flow { normal, break_, continue_ };
    using ScopePtr = std::shared_ptr<Scope>;

    // statements.cpp
    Flow run(const Block& block);
    Flow run(const Stmt& s);
    Flow run_if(const Stmt& s);
    Flow run_for(const Stmt& s);
    Flow loop_over(const Stmt& s, const Value& iterable, int level);
    Next filtered(const Stmt& s, Next source);
    void run_set_block(const Stmt& s);
    void run_macro(const Stmt& s);
    void run_call(const Stmt& s);
    void run_filter(const Stmt& s);
    Flow run_with(const Stmt& s);
    void assign(const Expr& target, const Value& value);
    void assign_attribute(const Expr& target, const Value& value);
    Value macro_value(const Stmt& s, std::string_view name);
    std::string call_macro(const Stmt& s, std::string_view name, const ScopePtr& definition,
                           Arguments& arguments);
    std::string buffered(const Block& block, ScopePtr scope, Flow* flow = nullptr);
    void print(const Value& value);
    void print(std::string_view text);
    void keep(const ScopePtr& scope);

    // expressions.cpp
    Value eval(const Expr& e);
    Value eval_inner(const Expr& e);
    Value eval_name(const Expr& e);
    Value eval_call(const Expr& e);
    Value eval_item(const Expr& e);
    Value eval_filter(const Expr& e, const Value& input);
    Value eval_filter_chain(const Expr& e, const Value& input);
    Value eval_test(const Expr& e);
    Value eval_sequence(const Expr& e);
    Value eval_dict(const Expr& e);
    Value eval_concat(const Expr& e);
    Value eval_compare(const Expr& e);
    Value eval_sign(const Expr& e);
    void eval_arguments(const Expr& e, Arguments& out);
    Value* find_variable(std::string_view name);

    // operators.cpp
    Value add(const Value& a, const Value& b);
    Value multiply(const Value& a, const Value& b);
    Value repeat(const Value& sequence, const Value& count);
    Value divide(std::string_view op, const Value& a, const Value& b);
    Value power(const Value& a, const Value& b);
    bool order(std::string_view op, const Value& a, const Value& b);
    [[noreturn]] void bad_operands(std::string_view op, const Value& a, const Value& b);
    double to_real(const Value& number);

    [[noreturn]] void too_deep() const;

    const RenderOptions& options_;
    Heap heap_;  // before everything that holds values
    const Template& template_;
    Value context_;  // a dict
    Dict globals_;
    ScopePtr scope_;
    std::string* out_ = nullptr;
    int line_ = 0;
    int depth_ = 0;
    // What could refer to itself; emptied at the end.
    std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
    std::vector<ScopePtr> kept_;
};

// Filters, tests, methods, globals.
using FilterFunction = Value (*)(Evaluator&, const Value& input, Arguments&);
using TestFunction = bool (*)(Evaluator&, const Value& input, Arguments&);
using Method = Value (*)(Evaluator&, const Value& self, Arguments&);
FilterFunction find_filter(std::string_view name);  // null when there is none
TestFunction find_test(std::string_view name);
// The methods of strings, dicts, lists, ...; null when the value has none of that name.
Method find_method(Evaluator& ev, const Value& self, std::string_view name);
// Names of methods that change their object, which templates may not call.
bool is_refused_method(const Value& self, std::string_view name);
Dict make_globals(Evaluator& ev);

// The arguments by parameter name; null where absent. Fails on unknown or surplus ones and
// when one of the first `required` is absent.
std::vector<const Value*> bind(Evaluator& ev, std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters, std::size_t required = 0);

// Conversions that several filters and methods share; they fail with the function's name.
std::int64_t to_index(Evaluator& ev, std::string_view function, const Value& value);
const std::string& to_string_argument(Evaluator& ev, std::string_view function, const Value& value);
// & < > " ' as HTML entities.
std::string escape_html(std::string_view text);
// The value as a safe string: safe ones as they are, others escaped.
std::string escaped_text(Evaluator& ev, const Value& value);
// 'format' % arguments, and 'format'.format(arguments).
std::string percent_format(Evaluator& ev, const std::string& format, const Value& arguments);
std::string brace_format(Evaluator& ev, const std::string& format, const Arguments& arguments);
// int(text, base) of Python; empty when it is no integer.
std::optional<BigInt> parse_int(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

}  // namespace forge::jinja
