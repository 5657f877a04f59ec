// What can stand after `is`.
#include <unordered_map>

#include "jinja/evaluator.h"
#include "jinja/unicode.h"

namespace forge::jinja {
namespace {

template <Kind... kinds>
bool of_kind(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "test", arguments, {});
    return (input.is(kinds) || ...);
}

bool is_defined(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "defined", arguments, {});
    return !input.is_undefined();
}

bool is_bool(Evaluator& ev, const Value& input, Arguments& arguments, bool wanted) {
    bind(ev, wanted ? "true" : "false", arguments, {});
    return input.is(Kind::boolean) && input.as_bool() == wanted;
}
bool is_true(Evaluator& ev, const Value& input, Arguments& arguments) {
    return is_bool(ev, input, arguments, true);
}
bool is_false(Evaluator& ev, const Value& input, Arguments& arguments) {
    return is_bool(ev, input, arguments, false);
}

bool is_filter(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "filter", arguments, {});
    return input.is_string() && find_filter(input.text());
}
bool is_test(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "test", arguments, {});
    return input.is_string() && find_test(input.text());
}

bool is_escaped(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "escaped", arguments, {});
    return input.is_string() && input.safe();
}

bool is_lower(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "lower", arguments, {});
    Arguments none;
    const Value text = ev.string(ev.text(input));
    return truthy(find_method(ev, text, "islower")(ev, text, none));
}
bool is_upper(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "upper", arguments, {});
    Arguments none;
    const Value text = ev.string(ev.text(input));
    return truthy(find_method(ev, text, "isupper")(ev, text, none));
}

bool same_as(Evaluator& ev, const Value& input, Arguments& arguments) {
    const Value& other = *bind(ev, "sameas", arguments, {"other"}, 1)[0];
    if (input.kind() != other.kind()) return false;
    return input.object()
               ? input.object() == other.object() || (input.is_string() && equal(&ev.heap(), input, other))
               : equal(&ev.heap(), input, other);
}

bool is_in(Evaluator& ev, const Value& input, Arguments& arguments) {
    return ev.contains(*bind(ev, "in", arguments, {"seq"}, 1)[0], input);
}

Value remainder(Evaluator& ev, const Value& input, const Value& by) { return ev.binary("%", input, by); }

bool divisible_by(Evaluator& ev, const Value& input, Arguments& arguments) {
    return equal(&ev.heap(), remainder(ev, input, *bind(ev, "divisibleby", arguments, {"num"}, 1)[0]),
                 Value::integer(0));
}
bool is_even(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "even", arguments, {});
    return equal(&ev.heap(), remainder(ev, input, Value::integer(2)), Value::integer(0));
}
bool is_odd(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "odd", arguments, {});
    return equal(&ev.heap(), remainder(ev, input, Value::integer(2)), Value::integer(1));
}

#define FORGE_JINJA_COMPARISON(name, op)                                            \
    bool name(Evaluator& ev, const Value& input, Arguments& arguments) {            \
        return ev.compare(op, input, *bind(ev, #name, arguments, {"other"}, 1)[0]); \
    }
FORGE_JINJA_COMPARISON(eq, "==")
FORGE_JINJA_COMPARISON(ne, "!=")
FORGE_JINJA_COMPARISON(lt, "<")
FORGE_JINJA_COMPARISON(le, "<=")
FORGE_JINJA_COMPARISON(gt, ">")
FORGE_JINJA_COMPARISON(ge, ">=")
#undef FORGE_JINJA_COMPARISON

}  // namespace

TestFunction find_test(std::string_view name) {
    constexpr auto number = of_kind<Kind::boolean, Kind::integer, Kind::big_integer, Kind::real>;
    constexpr auto sequence =
        of_kind<Kind::string, Kind::list, Kind::tuple, Kind::dict, Kind::range, Kind::undefined>;
    constexpr auto iterable = of_kind<Kind::string, Kind::list, Kind::tuple, Kind::dict, Kind::range,
                                      Kind::undefined, Kind::view, Kind::generator, Kind::loop>;
    static const std::unordered_map<std::string_view, TestFunction> table = {
        {"!=", ne},
        {"<", lt},
        {"<=", le},
        {"==", eq},
        {">", gt},
        {">=", ge},
        {"boolean", of_kind<Kind::boolean>},
        {"callable", of_kind<Kind::function, Kind::loop, Kind::undefined>},
        {"defined", is_defined},
        {"divisibleby", divisible_by},
        {"eq", eq},
        {"equalto", eq},
        {"escaped", is_escaped},
        {"even", is_even},
        {"false", is_false},
        {"filter", is_filter},
        {"float", of_kind<Kind::real>},
        {"ge", ge},
        {"greaterthan", gt},
        {"gt", gt},
        {"in", is_in},
        {"integer", of_kind<Kind::integer, Kind::big_integer>},
        {"iterable", iterable},
        {"le", le},
        {"lessthan", lt},
        {"lower", is_lower},
        {"lt", lt},
        {"mapping", of_kind<Kind::dict>},
        {"ne", ne},
        {"none", of_kind<Kind::none>},
        {"number", number},
        {"odd", is_odd},
        {"sameas", same_as},
        {"sequence", sequence},
        {"string", of_kind<Kind::string>},
        {"test", is_test},
        {"true", is_true},
        {"undefined", of_kind<Kind::undefined>},
        {"upper", is_upper},
    };
    const auto it = table.find(name);
    return it == table.end() ? nullptr : it->second;
}

}  // namespace forge::jinja
