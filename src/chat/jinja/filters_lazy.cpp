// map, select and their relatives give a sequence that is computed while it is read.
#include "jinja/filters.h"

namespace forge::jinja::filters {
namespace {

int depth_of(const Value& input, const Arguments& arguments) {
    int depth = input.depth();
    for (const Value& v : arguments.positional) depth = std::max(depth, v.depth());
    for (const auto& [name, v] : arguments.keyword) depth = std::max(depth, v.depth());
    return depth + 1;
}

// For none, 0 and other false inputs, which need not be sequences then.
Value nothing(Evaluator& ev) {
    return make_generator(ev.heap(), 1, [](Value&) { return false; });
}

// select, reject and the ...attr forms, which test an attribute of the item.
Value select_or_reject(Evaluator& ev, std::string_view name, const Value& input, Arguments& arguments,
                       bool wanted, bool by_attribute) {
    if (!truthy(input)) return nothing(ev);
    const int depth = depth_of(input, arguments);
    Value attribute;
    Arguments rest = arguments;
    if (by_attribute) {
        if (rest.positional.empty()) ev.fail("'{}' needs the name of an attribute", name);
        attribute = rest.positional.front();
        rest.positional.erase(rest.positional.begin());
    }
    TestFunction test = nullptr;
    if (!rest.positional.empty()) {
        const std::string test_name = to_string_argument(ev, name, rest.positional.front());
        test = find_test(test_name);
        if (!test) ev.fail("there is no test named '{}'", test_name);
        rest.positional.erase(rest.positional.begin());
    }
    return make_generator(
        ev.heap(), depth,
        [&ev, next = ev.iterate(input), attribute, by_attribute, rest, test, wanted](Value& out) {
            while (next(out)) {
                const Value tested = by_attribute ? deep_attribute(ev, out, attribute) : out;
                Arguments copy = rest;
                if ((test ? test(ev, tested, copy) : truthy(tested)) == wanted) return true;
            }
            return false;
        });
}

}  // namespace

Value map(Evaluator& ev, const Value& input, Arguments& arguments) {
    if (!truthy(input)) return nothing(ev);
    const int depth = depth_of(input, arguments);
    if (arguments.positional.empty()) {
        const auto a = bind(ev, "map", arguments, {"attribute", "default"}, 1);
        return make_generator(ev.heap(), depth,
                              [&ev, next = ev.iterate(input), attribute = *a[0],
                               has_default = a[1] != nullptr, absent = a[1] ? *a[1] : Value()](Value& out) {
                                  if (!next(out)) return false;
                                  out = deep_attribute(ev, out, attribute);
                                  if (has_default && out.is_undefined()) out = absent;
                                  return true;
                              });
    }
    const std::string name = to_string_argument(ev, "map", arguments.positional.front());
    const FilterFunction function = find_filter(name);
    if (!function) ev.fail("there is no filter named '{}'", name);
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    return make_generator(ev.heap(), depth, [&ev, next = ev.iterate(input), function, rest](Value& out) {
        if (!next(out)) return false;
        Arguments copy = rest;
        out = function(ev, out, copy);
        return true;
    });
}

Value select(Evaluator& ev, const Value& input, Arguments& arguments) {
    return select_or_reject(ev, "select", input, arguments, true, false);
}
Value reject(Evaluator& ev, const Value& input, Arguments& arguments) {
    return select_or_reject(ev, "reject", input, arguments, false, false);
}
Value selectattr(Evaluator& ev, const Value& input, Arguments& arguments) {
    return select_or_reject(ev, "selectattr", input, arguments, true, true);
}
Value rejectattr(Evaluator& ev, const Value& input, Arguments& arguments) {
    return select_or_reject(ev, "rejectattr", input, arguments, false, true);
}

}  // namespace forge::jinja::filters
