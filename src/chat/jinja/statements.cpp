#include <algorithm>

#include "jinja/evaluator.h"

namespace forge::jinja {
namespace {

// Puts a value back when a block ends, also by an exception.
template <typename T>
class Restore {
  public:
    explicit Restore(T& slot) : slot_(slot), saved_(slot) {}
    Restore(T& slot, T value) : slot_(slot), saved_(std::exchange(slot, std::move(value))) {}
    ~Restore() { slot_ = std::move(saved_); }

  private:
    T& slot_;
    T saved_;
};

void set_variable(Scope& scope, std::string_view name, const Value& value) {
    for (auto& [existing, slot] : scope.variables)
        if (existing == name) {
            slot = value;
            return;
        }
    scope.variables.emplace_back(name, value);
}

}  // namespace

Evaluator::Evaluator(const Template& parsed, const RenderOptions& options)
    : options_(options), heap_(options.limits), template_(parsed) {
    globals_ = make_globals(*this);
}

Evaluator::~Evaluator() {
    // Namespaces and the scopes of macros may refer to each other; cut every such link
    // before anything is released, so that no cycle stays and no chain recurses.
    std::vector<Value> values;
    for (const auto& space : namespaces_) {
        for (const Dict::Entry& e : space->attributes.entries()) values.push_back(e.value);
        space->attributes.clear();
    }
    std::vector<ScopePtr> scopes = std::move(kept_);
    for (const ScopePtr& scope : scopes) {
        for (auto& [name, value] : scope->variables) values.push_back(std::move(value));
        scope->variables.clear();
        scope->parent.reset();
    }
}

std::string Evaluator::render(const Value& context) {
    context_ = context;
    std::string out;
    Restore<std::string*> output(out_, &out);
    Restore<ScopePtr> scope(scope_, std::make_shared<Scope>(nullptr));
    run(template_.body);
    return out;
}

void Evaluator::fail_text(const std::string& message) const {
    throw TemplateError(TemplateError::Cause::failed,
                        fmt::format("The chat template failed in line {}: {}.", line_, message));
}

void Evaluator::too_deep() const {
    throw TemplateError(
        TemplateError::Cause::limit,
        fmt::format("The chat template was stopped in line {}: blocks, expressions and macro calls are "
                    "nested more than {} levels deep.",
                    line_, options_.limits.depth));
}

void Evaluator::print(std::string_view text) {
    if (out_->size() + text.size() > options_.limits.output)
        throw TemplateError(
            TemplateError::Cause::limit,
            fmt::format("The chat template was stopped in line {}: it prints more than {} bytes.", line_,
                        options_.limits.output));
    heap_.work(text.size());
    *out_ += text;
}

void Evaluator::print(const Value& value) {
    if (value.is_string())
        print(std::string_view(value.text()));
    else
        print(std::string_view(text(value)));
}

Evaluator::Flow Evaluator::run(const Block& block) {
    for (const auto& s : block) {
        const Flow flow = run(*s);
        if (flow != Flow::normal) return flow;
    }
    return Flow::normal;
}

Evaluator::Flow Evaluator::run(const Stmt& s) {
    const Level level(*this);
    heap_.step();
    line_ = s.line;
    switch (s.kind) {
        case StmtKind::text:
            print(std::string_view(s.text));
            break;
        case StmtKind::print:
            print(eval(*s.expr));
            break;
        case StmtKind::if_:
            return run_if(s);
        case StmtKind::for_:
            return run_for(s);
        case StmtKind::set:
            if (s.target->kind == ExprKind::namespace_attribute)
                assign_attribute(*s.target, eval(*s.expr));
            else
                assign(*s.target, eval(*s.expr));
            break;
        case StmtKind::set_block:
            run_set_block(s);
            break;
        case StmtKind::macro:
            run_macro(s);
            break;
        case StmtKind::call:
            run_call(s);
            break;
        case StmtKind::filter:
            run_filter(s);
            break;
        case StmtKind::with:
            return run_with(s);
        case StmtKind::scope: {
            const Restore<ScopePtr> scope(scope_, std::make_shared<Scope>(scope_));
            return run(s.body);
        }
        case StmtKind::break_:
            return Flow::break_;
        case StmtKind::continue_:
            return Flow::continue_;
    }
    return Flow::normal;
}

Evaluator::Flow Evaluator::run_if(const Stmt& s) {
    for (const auto& [condition, body] : s.branches)
        if (truthy(eval(*condition))) return run(body);
    return run(s.otherwise);
}

Evaluator::Flow Evaluator::run_for(const Stmt& s) { return loop_over(s, eval(*s.expr), 1); }

// The items for which the loop's condition holds. It is evaluated when the item is asked for.
Next Evaluator::filtered(const Stmt& s, Next source) {
    return [this, &s, source = std::move(source), outer = scope_](Value& item) {
        while (source(item)) {
            const Restore<ScopePtr> scope(scope_, std::make_shared<Scope>(outer));
            assign(*s.target, item);
            if (truthy(eval(*s.condition))) return true;
        }
        return false;
    };
}

Evaluator::Flow Evaluator::loop_over(const Stmt& s, const Value& iterable, int level) {
    auto state = std::make_shared<LoopObject>(&heap_);
    state->account(sizeof(LoopObject) + 64);
    state->plain = false;
    state->depth = iterable.depth() + 1;
    heap_.check_depth(state->depth);
    state->level = level;
    state->next = iterate(iterable);
    if (s.condition) state->next = filtered(s, std::move(state->next));
    const Value loop(Kind::loop, state);
    if (s.recursive) {
        // loop(children): the body again, as text. The pointer is weak: the loop must not own itself.
        state->recurse = [this, &s, outer = scope_, weak = std::weak_ptr<LoopObject>(state)](
                             Evaluator&, const Value& children) {
            const auto self = weak.lock();
            const Level guard(*this);
            std::string text;
            const Restore<std::string*> output(out_, &text);
            const Restore<ScopePtr> scope(scope_, outer);
            loop_over(s, children, self ? self->level + 1 : 1);
            return string(std::move(text));
        };
    }

    const ScopePtr outer = scope_;
    const Restore<ScopePtr> restore(scope_);
    bool any = false;
    while (true) {
        scope_ = outer;
        line_ = s.line;
        heap_.step();
        if (!state->advance()) break;
        any = true;
        scope_ = std::make_shared<Scope>(outer);
        set_variable(*scope_, "loop", loop);
        assign(*s.target, state->current);
        if (run(s.body) == Flow::break_) return Flow::normal;
    }
    if (any) return Flow::normal;
    scope_ = std::make_shared<Scope>(outer);
    return run(s.otherwise);
}

void Evaluator::assign(const Expr& target, const Value& value) {
    if (target.kind == ExprKind::name) {
        set_variable(*scope_, target.name, value);
        return;
    }
    const Values items = collect(value);
    if (items.size() != target.items.size())
        fail("{} names are to be assigned, but there are {} values", target.items.size(), items.size());
    for (std::size_t i = 0; i < items.size(); ++i) assign(*target.items[i], items[i]);
}

void Evaluator::assign_attribute(const Expr& target, const Value& value) {
    Value* space = find_variable(target.name);
    if (!space || !space->is(Kind::name_space))
        fail("'{}.{}' cannot be set, because '{}' is {} and only a namespace's attributes can be set",
             target.name, target.attribute, target.name, space ? indefinite_type_name(*space) : "undefined");
    if (target.attribute.starts_with('_'))
        fail("the name of a namespace's attribute must not begin with '_', as '{}' does", target.attribute);
    const Value name = string(target.attribute);
    space->name_space().attributes.set(name, value);
}

std::string Evaluator::buffered(const Block& block, ScopePtr scope, Flow* flow) {
    std::string text;
    const Restore<std::string*> output(out_, &text);
    const Restore<ScopePtr> inside(scope_, std::move(scope));
    const Flow f = run(block);
    if (flow) *flow = f;
    return text;
}

void Evaluator::run_set_block(const Stmt& s) {
    Value value = string(buffered(s.body, std::make_shared<Scope>(scope_)));
    if (s.expr) value = eval_filter_chain(*s.expr, value);
    if (s.target->kind == ExprKind::namespace_attribute)
        assign_attribute(*s.target, value);
    else
        assign(*s.target, value);
}

void Evaluator::run_filter(const Stmt& s) {
    const Value text = string(buffered(s.body, std::make_shared<Scope>(scope_)));
    print(eval_filter_chain(*s.expr, text));
}

Evaluator::Flow Evaluator::run_with(const Stmt& s) {
    auto inside = std::make_shared<Scope>(scope_);
    for (const Parameter& p : s.parameters) {
        const Value value = eval(*p.value);  // sees the outer variables only
        const Restore<ScopePtr> scope(scope_, inside);
        assign(*p.target, value);
    }
    const Restore<ScopePtr> scope(scope_, inside);
    return run(s.body);
}

void Evaluator::keep(const ScopePtr& scope) {
    for (ScopePtr s = scope; s && !s->kept; s = s->parent) {
        s->kept = true;
        kept_.push_back(s);
    }
}

Value Evaluator::macro_value(const Stmt& s, std::string_view name) {
    keep(scope_);
    return make_function(heap_, std::string(name),
                         [this, &s, name, scope = scope_](Evaluator&, Arguments& arguments) {
                             return string(call_macro(s, name, scope, arguments));
                         });
}

void Evaluator::run_macro(const Stmt& s) { set_variable(*scope_, s.text, macro_value(s, s.text)); }

std::string Evaluator::call_macro(const Stmt& s, std::string_view name, const ScopePtr& definition,
                                  Arguments& arguments) {
    const Level level(*this);
    auto inside = std::make_shared<Scope>(definition);
    const Restore<int> line(line_);
    if (arguments.positional.size() > s.parameters.size() && !s.uses_varargs)
        fail("the macro '{}' takes {} arguments, but {} are given", name, s.parameters.size(),
             arguments.positional.size());
    std::vector<bool> used(arguments.keyword.size(), false);
    {
        const Restore<ScopePtr> scope(scope_, inside);
        for (std::size_t i = 0; i < s.parameters.size(); ++i) {
            const std::string& parameter = s.parameters[i].target->name;
            const Value* given = i < arguments.positional.size() ? &arguments.positional[i] : nullptr;
            for (std::size_t k = 0; k < arguments.keyword.size(); ++k) {
                if (arguments.keyword[k].first != parameter) continue;
                if (given) fail("the macro '{}' gets its argument '{}' twice", name, parameter);
                given = &arguments.keyword[k].second;
                used[k] = true;
            }
            if (given)
                set_variable(*inside, parameter, *given);
            else if (s.parameters[i].value)
                set_variable(*inside, parameter, eval(*s.parameters[i].value));
            else
                set_variable(
                    *inside, parameter,
                    make_undefined(heap_, fmt::format("the argument '{}' of the macro '{}' is missing",
                                                      parameter, name)));
        }
    }
    Dict rest;
    bool has_caller = false;
    for (std::size_t k = 0; k < arguments.keyword.size(); ++k) {
        if (used[k]) continue;
        const auto& [key, value] = arguments.keyword[k];
        if (key == "caller") {
            if (!s.uses_caller)
                fail("the macro '{}' does not use 'caller()', so it cannot be the target of a call block",
                     name);
            set_variable(*inside, "caller", value);
            has_caller = true;
        } else if (s.uses_kwargs) {
            rest.set(string(key), value);
        } else {
            fail("the macro '{}' has no argument '{}'", name, key);
        }
    }
    if (s.uses_caller && !has_caller)
        set_variable(
            *inside, "caller",
            make_undefined(
                heap_,
                fmt::format("the macro '{}' is not called by a call block, so it has no caller", name)));
    if (s.uses_kwargs) set_variable(*inside, "kwargs", make_dict(heap_, std::move(rest)));
    if (s.uses_varargs) {
        Values surplus;
        for (std::size_t i = s.parameters.size(); i < arguments.positional.size(); ++i)
            surplus.push_back(arguments.positional[i]);
        set_variable(*inside, "varargs", make_tuple(heap_, std::move(surplus)));
    }
    return buffered(s.body, inside);
}

void Evaluator::run_call(const Stmt& s) {
    const Expr& call_expr = *s.expr;
    Arguments arguments;
    const Value function = eval(*call_expr.items[0]);
    eval_arguments(call_expr, arguments);
    arguments.keyword.emplace_back("caller", macro_value(s, "caller"));
    print(call(function, arguments));
}

}  // namespace forge::jinja
