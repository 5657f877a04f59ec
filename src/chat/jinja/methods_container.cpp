#include <algorithm>
#include <unordered_map>

#include "jinja/methods.h"

namespace forge::jinja {
namespace methods {
namespace {

Value get(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "get", arguments, {"key", "default"}, 1);
    std::size_t hash = 0;
    if (!hash_value(*a[0], hash)) ev.fail("{} cannot be the key of a dict", indefinite_type_name(*a[0]));
    if (const Value* found = self.dict().map.find(*a[0])) return *found;
    return a[1] ? *a[1] : Value::none();
}

template <ViewObject::What what>
Value view(Evaluator& ev, const Value& self, Arguments& arguments) {
    bind(ev, "dict", arguments, {});
    auto object = std::make_shared<ViewObject>(&ev.heap());
    object->account(sizeof(ViewObject));
    object->what = what;
    object->dict = self;
    object->depth = self.depth() + 1;
    object->plain = self.plain();
    ev.heap().check_depth(object->depth);
    return Value(Kind::view, std::move(object));
}

Value copy_dict(Evaluator& ev, const Value& self, Arguments& arguments) {
    bind(ev, "copy", arguments, {});
    ev.heap().step(self.dict().map.size());
    return make_dict(ev.heap(), self.dict().map);
}

Value count(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "count", arguments, {"value"}, 1);
    std::int64_t n = 0;
    for (const Value& item : self.list().items) n += equal(&ev.heap(), item, *a[0]);
    return Value::integer(n);
}

Value index(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "index", arguments, {"value", "start", "stop"}, 1);
    const Values& items = self.list().items;
    const auto n = static_cast<std::int64_t>(items.size());
    const auto place = [&](const Value* v, std::int64_t absent) {
        const std::int64_t i = v ? to_index(ev, "index", *v) : absent;
        return i < 0 ? std::max<std::int64_t>(i + n, 0) : i;
    };
    const std::int64_t stop = std::min(place(a[2], n), n);
    for (std::int64_t i = place(a[1], 0); i < stop; ++i)
        if (equal(&ev.heap(), items[static_cast<std::size_t>(i)], *a[0])) return Value::integer(i);
    ev.fail("the value that 'index' looks for is not in {}", indefinite_type_name(self));
}

Value copy_list(Evaluator& ev, const Value& self, Arguments& arguments) {
    bind(ev, "copy", arguments, {});
    ev.heap().step(self.list().items.size());
    return make_list(ev.heap(), self.list().items, false);
}

// What goes into a list that can still change must be plain data, so that no list can
// come to contain itself.
void add_item(Evaluator& ev, const Value& self, std::size_t at, const Value& item) {
    ListObject& list = self.list();
    if (!item.plain()) ev.fail("only plain data can be added to a list, not {}", indefinite_type_name(item));
    if (item.object() && item.object() == self.object()) ev.fail("a list cannot be added to itself");
    ev.heap().check_depth(item.depth() + 1);
    list.account(sizeof(Value));
    list.depth = std::max(list.depth, item.depth() + 1);
    if (item.is(Kind::list)) item.list().frozen = true;
    ev.heap().step((list.items.size() - at) / 16);
    list.items.insert(list.items.begin() + static_cast<std::ptrdiff_t>(at), item);
}

Value append(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "append", arguments, {"object"}, 1);
    add_item(ev, self, self.list().items.size(), *a[0]);
    return Value::none();
}

Value extend(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "extend", arguments, {"iterable"}, 1);
    ev.need_defined(*a[0]);
    for (const Value& item : ev.collect(*a[0])) add_item(ev, self, self.list().items.size(), item);
    return Value::none();
}

Value insert(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "insert", arguments, {"index", "object"}, 2);
    const auto n = static_cast<std::int64_t>(self.list().items.size());
    std::int64_t i = to_index(ev, "insert", *a[0]);
    if (i < 0) i += n;
    add_item(ev, self, static_cast<std::size_t>(std::clamp<std::int64_t>(i, 0, n)), *a[1]);
    return Value::none();
}

Value pop(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "pop", arguments, {"index"});
    Values& items = self.list().items;
    const auto n = static_cast<std::int64_t>(items.size());
    std::int64_t i = a[0] ? to_index(ev, "pop", *a[0]) : -1;
    if (i < 0) i += n;
    if (i < 0 || i >= n) ev.fail("'pop' wants an item that a list of {} items does not have", n);
    Value out = items[static_cast<std::size_t>(i)];
    ev.heap().step(static_cast<std::uint64_t>(n - i) / 16);
    items.erase(items.begin() + i);
    return out;
}

Value cycle(Evaluator& ev, const Value& self, Arguments& arguments) {
    if (!arguments.keyword.empty() || arguments.positional.empty())
        ev.fail("'loop.cycle' needs at least one value");
    return arguments.positional[static_cast<std::size_t>(self.loop().index0) % arguments.positional.size()];
}

// Whether the values differ from those of the call before.
Value changed(Evaluator& ev, const Value& self, Arguments& arguments) {
    if (!arguments.keyword.empty()) ev.fail("'loop.changed' takes no keyword arguments");
    LoopObject& loop = self.loop();
    bool same = loop.has_changed && loop.changed.size() == arguments.positional.size();
    for (std::size_t i = 0; same && i < loop.changed.size(); ++i)
        same = equal(&ev.heap(), loop.changed[i], arguments.positional[i]);
    if (same) return Value::boolean(false);
    for (const Value& v : arguments.positional)
        if (!v.plain()) ev.fail("'loop.changed' compares plain data only, not {}", indefinite_type_name(v));
    loop.has_changed = true;
    loop.changed = arguments.positional;
    return Value::boolean(true);
}

Method look_up(const std::unordered_map<std::string_view, Method>& table, std::string_view name) {
    const auto it = table.find(name);
    return it == table.end() ? nullptr : it->second;
}

}  // namespace

Method find_dict(std::string_view name) {
    static const std::unordered_map<std::string_view, Method> table = {
        {"copy", copy_dict},
        {"get", get},
        {"items", view<ViewObject::What::items>},
        {"keys", view<ViewObject::What::keys>},
        {"values", view<ViewObject::What::values>},
    };
    return look_up(table, name);
}

Method find_list(std::string_view name) {
    static const std::unordered_map<std::string_view, Method> table = {
        {"copy", copy_list}, {"count", count}, {"index", index}};
    return look_up(table, name);
}

Method find_list_change(std::string_view name) {
    static const std::unordered_map<std::string_view, Method> table = {
        {"append", append}, {"extend", extend}, {"insert", insert}, {"pop", pop}};
    return look_up(table, name);
}

Method find_loop(std::string_view name) {
    static const std::unordered_map<std::string_view, Method> table = {{"changed", changed},
                                                                       {"cycle", cycle}};
    return look_up(table, name);
}

}  // namespace methods

Method find_method(Evaluator& ev, const Value& self, std::string_view name) {
    switch (self.kind()) {
        case Kind::string:
            return methods::find_string(name);
        case Kind::dict:
            return methods::find_dict(name);
        case Kind::tuple:
            return name == "copy" ? nullptr : methods::find_list(name);
        case Kind::list:
            if (Method method = methods::find_list(name)) return method;
            return ev.options().allow_list_changes && !self.list().frozen ? methods::find_list_change(name)
                                                                          : nullptr;
        case Kind::loop:
            return methods::find_loop(name);
        default:
            return nullptr;
    }
}

bool is_refused_method(const Value& self, std::string_view name) {
    constexpr std::string_view of_list[] = {"append", "clear",  "extend",  "insert",
                                            "pop",    "remove", "reverse", "sort"};
    constexpr std::string_view of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    if (self.is(Kind::list))
        return std::find(std::begin(of_list), std::end(of_list), name) != std::end(of_list);
    if (self.is(Kind::dict))
        return std::find(std::begin(of_dict), std::end(of_dict), name) != std::end(of_dict);
    return false;
}

}  // namespace forge::jinja
