#include <algorithm>

#include "jinja/evaluator.h"
#include "jinja/parser.h"

namespace forge::jinja {

Value Evaluator::eval(const Expr& e) {
    heap_.step();
    if (e.kind == ExprKind::constant) return e.value;
    if (e.kind == ExprKind::name) return eval_name(e);
    const Level level(*this);
    return eval_inner(e);
}

Value Evaluator::eval_inner(const Expr& e) {
    line_ = e.line;
    switch (e.kind) {
        case ExprKind::attribute:
            return attribute(eval(*e.items[0]), e.name);
        case ExprKind::item:
            return eval_item(e);
        case ExprKind::slice:
            fail("a slice can only be used alone between brackets");
        case ExprKind::list:
        case ExprKind::tuple:
            return eval_sequence(e);
        case ExprKind::dict:
            return eval_dict(e);
        case ExprKind::call:
            return eval_call(e);
        case ExprKind::filter:
            return eval_filter(e, eval(*e.items[0]));
        case ExprKind::test:
            return eval_test(e);
        case ExprKind::negate:
        case ExprKind::plus:
            return eval_sign(e);
        case ExprKind::not_:
            return Value::boolean(!truthy(eval(*e.items[0])));
        case ExprKind::and_:
        case ExprKind::or_: {
            Value value;
            for (const ExprPtr& item : e.items) {
                value = eval(*item);
                if (truthy(value) == (e.kind == ExprKind::or_)) break;
            }
            return value;
        }
        case ExprKind::concat:
            return eval_concat(e);
        case ExprKind::binary: {
            const Value a = eval(*e.items[0]);
            const Value b = eval(*e.items[1]);
            line_ = e.line;
            return binary(e.name, a, b);
        }
        case ExprKind::compare:
            return eval_compare(e);
        case ExprKind::conditional:
            if (truthy(eval(*e.items[1]))) return eval(*e.items[0]);
            if (e.items[2]) return eval(*e.items[2]);
            return make_undefined(heap_, "an inline if whose condition is false has no 'else'");
        case ExprKind::constant:
        case ExprKind::name:
        case ExprKind::namespace_attribute:
            break;
    }
    fail("this expression has no value");
}

Value* Evaluator::find_variable(std::string_view name) {
    for (Scope* scope = scope_.get(); scope; scope = scope->parent.get())
        for (auto& [existing, value] : scope->variables)
            if (existing == name) return &value;
    if (const Value* value = context_.dict().map.find(name)) return const_cast<Value*>(value);
    if (const Value* value = globals_.find(name)) return const_cast<Value*>(value);
    return nullptr;
}

Value Evaluator::eval_name(const Expr& e) {
    if (const Value* value = find_variable(e.name)) return *value;
    return make_undefined(heap_, fmt::format("'{}' is undefined", e.name));
}

Value Evaluator::eval_sequence(const Expr& e) {
    Values items;
    items.reserve(e.items.size());
    for (const ExprPtr& item : e.items) items.push_back(eval(*item));
    return e.kind == ExprKind::list ? make_list(heap_, std::move(items), false)
                                    : make_tuple(heap_, std::move(items));
}

Value Evaluator::eval_dict(const Expr& e) {
    Dict map;
    map.heap = &heap_;
    for (std::size_t i = 0; i < e.items.size(); i += 2) {
        Value key = eval(*e.items[i]);
        std::size_t hash = 0;
        if (!hash_value(key, hash)) fail("{} cannot be the key of a dict", indefinite_type_name(key));
        map.set(std::move(key), eval(*e.items[i + 1]));
    }
    return make_dict(heap_, std::move(map));
}

Value Evaluator::eval_concat(const Expr& e) {
    std::string out;
    for (const ExprPtr& item : e.items) {
        append_text(out, eval(*item));
        check_size(out.size());
    }
    heap_.work(out.size());
    return string(std::move(out));
}

Value Evaluator::eval_compare(const Expr& e) {
    Value left = eval(*e.items[0]);
    for (std::size_t i = 0; i < e.operators.size(); ++i) {
        Value right = eval(*e.items[i + 1]);
        line_ = e.line;
        if (!compare(e.operators[i], left, right)) return Value::boolean(false);
        left = std::move(right);
    }
    return Value::boolean(true);
}

Value Evaluator::eval_sign(const Expr& e) {
    const Value v = eval(*e.items[0]);
    need_defined(v);
    const bool negate = e.kind == ExprKind::negate;
    if (v.is(Kind::real)) return negate ? Value::real(-v.as_real()) : v;
    if (v.is_int_like()) return make_int(heap_, negate ? -v.to_big() : v.to_big());
    fail("{} has no sign", indefinite_type_name(v));
}

Value Evaluator::eval_item(const Expr& e) {
    const Value object = eval(*e.items[0]);
    const Expr& index = *e.items[1];
    if (index.kind != ExprKind::slice) return item(object, eval(index));
    Value bounds[3];
    for (int i = 0; i < 3; ++i)
        if (index.items[static_cast<std::size_t>(i)])
            bounds[i] = eval(*index.items[static_cast<std::size_t>(i)]);
    line_ = e.line;
    return slice(object, &bounds[0], &bounds[1], &bounds[2]);
}

void Evaluator::eval_arguments(const Expr& e, Arguments& out) {
    for (const ExprPtr& argument : e.arguments) out.positional.push_back(eval(*argument));
    for (const auto& [name, argument] : e.keywords) {
        for (const auto& [existing, value] : out.keyword)
            if (existing == name) fail("the argument '{}' is given twice", name);
        out.keyword.emplace_back(name, eval(*argument));
    }
    if (e.star)
        for (Value& v : collect(eval(*e.star))) out.positional.push_back(std::move(v));
    if (e.double_star) {
        const Value map = eval(*e.double_star);
        if (!map.is(Kind::dict))
            fail("what follows '**' must be a dict, but it is {}", indefinite_type_name(map));
        for (const Dict::Entry& entry : map.dict().map.entries()) {
            if (!entry.key.is_string()) fail("the keys of a dict after '**' must be strings");
            for (const auto& [existing, value] : out.keyword)
                if (existing == entry.key.text()) fail("the argument '{}' is given twice", existing);
            out.keyword.emplace_back(entry.key.text(), entry.value);
        }
    }
}

Value Evaluator::eval_call(const Expr& e) {
    const Expr& callee = *e.items[0];
    Arguments arguments;
    if (callee.kind == ExprKind::attribute) {
        // The common method call, without making a function value first.
        const Value object = eval(*callee.items[0]);
        line_ = e.line;
        if (Method method = find_method(*this, object, callee.name)) {
            eval_arguments(e, arguments);
            line_ = e.line;
            return method(*this, object, arguments);
        }
        const Value function = attribute(object, callee.name);
        eval_arguments(e, arguments);
        line_ = e.line;
        return call(function, arguments);
    }
    const Value function = eval(callee);
    eval_arguments(e, arguments);
    line_ = e.line;
    return call(function, arguments);
}

Value Evaluator::eval_filter(const Expr& e, const Value& input) {
    line_ = e.line;
    const FilterFunction function = find_filter(e.name);
    if (!function) fail("there is no filter named '{}'", e.name);
    Arguments arguments;
    eval_arguments(e, arguments);
    line_ = e.line;
    return function(*this, input, arguments);
}

// The filters of a block: the innermost node has no input of its own.
Value Evaluator::eval_filter_chain(const Expr& e, const Value& input) {
    return eval_filter(e, e.items.empty() ? input : eval_filter_chain(*e.items[0], input));
}

Value Evaluator::eval_test(const Expr& e) {
    const TestFunction function = find_test(e.name);
    if (!function) fail("there is no test named '{}'", e.name);
    const Value input = eval(*e.items[0]);
    Arguments arguments;
    eval_arguments(e, arguments);
    line_ = e.line;
    return Value::boolean(function(*this, input, arguments));
}

Value Evaluator::filter(std::string_view name, const Value& input, Arguments& arguments) {
    const FilterFunction function = find_filter(name);
    if (!function) fail("there is no filter named '{}'", name);
    return function(*this, input, arguments);
}

bool Evaluator::test(std::string_view name, const Value& input, Arguments& arguments) {
    const TestFunction function = find_test(name);
    if (!function) fail("there is no test named '{}'", name);
    return function(*this, input, arguments);
}

Value Evaluator::call(const Value& function, Arguments& arguments) {
    need_defined(function);
    const Level level(*this);
    if (function.is(Kind::function)) return function.function().call(*this, arguments);
    if (function.is(Kind::loop)) {
        if (!function.loop().recurse) fail("'loop(...)' can only be called in a loop with 'recursive'");
        if (arguments.positional.size() != 1 || !arguments.keyword.empty())
            fail("'loop(...)' takes one argument");
        return function.loop().recurse(*this, arguments.positional[0]);
    }
    fail("{} cannot be called", indefinite_type_name(function));
}

Value Evaluator::new_namespace(Dict attributes) {
    for (const Dict::Entry& e : attributes.entries())
        if (e.key.is_string() && e.key.text().starts_with('_'))
            fail("the name of a namespace's attribute must not begin with '_', as '{}' does", e.key.text());
    auto object = std::make_shared<NamespaceObject>(&heap_);
    object->account(sizeof(NamespaceObject) + 256);
    object->plain = false;
    object->attributes = std::move(attributes);
    object->attributes.heap = &heap_;
    namespaces_.push_back(object);
    return Value(Kind::name_space, object);
}

namespace {

// Walks every expression below a statement or expression.
class NameCheck {
  public:
    void block(const Block& b, bool soft) {
        for (const auto& s : b) statement(*s, soft);
    }

  private:
    void expression(const Expr* e, bool soft) {
        if (!e) return;
        if (!soft && e->kind == ExprKind::filter && !find_filter(e->name))
            syntax(e->line, fmt::format("there is no filter named '{}'", e->name));
        if (!soft && e->kind == ExprKind::test && !find_test(e->name))
            syntax(e->line, fmt::format("there is no test named '{}'", e->name));
        const bool inside = soft || e->kind == ExprKind::conditional;
        for (const ExprPtr& child : e->items) expression(child.get(), inside);
        for (const ExprPtr& child : e->arguments) expression(child.get(), inside);
        for (const auto& [name, child] : e->keywords) expression(child.get(), inside);
        expression(e->star.get(), inside);
        expression(e->double_star.get(), inside);
    }

    void statement(const Stmt& s, bool soft) {
        const bool branches = s.kind == StmtKind::if_;
        expression(s.target.get(), soft);
        expression(s.expr.get(), soft);
        expression(s.condition.get(), soft);
        for (const Parameter& p : s.parameters) expression(p.value.get(), soft);
        for (const auto& [condition, body] : s.branches) {
            expression(condition.get(), true);
            block(body, true);
        }
        // The body of anything but an if is always checked, even inside one.
        block(s.body, false);
        block(s.otherwise, branches);
    }

    [[noreturn]] static void syntax(int line, const std::string& message) {
        throw TemplateError(TemplateError::Cause::syntax,
                            fmt::format("The chat template has an error in line {}: {}.", line, message));
    }
};

}  // namespace

void check_names(const Block& block) { NameCheck().block(block, false); }

}  // namespace forge::jinja
