#include <algorithm>

#include "jinja/filters.h"
#include "jinja/stable_sort.h"
#include "jinja/unicode.h"

namespace forge::jinja::filters {

Value without_case(Evaluator& ev, const Value& value) {
    if (!value.is_string()) return value;
    ev.heap().work(value.text().size() * 4);
    return ev.string(to_lower(value.text()));
}

Value deep_attribute(Evaluator& ev, const Value& value, const Value& attribute) {
    if (!attribute.is_string()) return ev.item(value, attribute);
    Value out = value;
    const std::string& path = attribute.text();
    for (std::size_t start = 0; start <= path.size();) {
        const std::size_t end = std::min(path.find('.', start), path.size());
        const std::string part = path.substr(start, end - start);
        const bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                         [](char c) { return c >= '0' && c <= '9'; });
        const auto index = number ? parse_int(part, 10) : std::nullopt;
        out = ev.item(out, index ? make_int(ev.heap(), *index) : ev.string(part));
        start = end + 1;
    }
    return out;
}

namespace {

// What sort, min, ... compare: the value or an attribute of it, in lower case by default.
Value sort_key(Evaluator& ev, const Value& value, const Value* attribute, bool case_sensitive) {
    const Value key = attribute && !attribute->is_none() ? deep_attribute(ev, value, *attribute) : value;
    return case_sensitive ? key : without_case(ev, key);
}

Value extreme(Evaluator& ev, std::string_view name, const Value& input, Arguments& arguments, bool want_max) {
    const auto a = bind(ev, name, arguments, {"case_sensitive", "attribute"});
    const bool case_sensitive = a[0] && truthy(*a[0]);
    Value best, best_key;
    bool any = false;
    const Next next = ev.iterate(input);
    Value item;
    while (next(item)) {
        const Value key = sort_key(ev, item, a[1], case_sensitive);
        const bool better = !any || (want_max ? ev.less(best_key, key) : ev.less(key, best_key));
        if (better) {
            best = item;
            best_key = key;
        }
        any = true;
    }
    return any ? best : make_undefined(ev.heap(), "there is no item in an empty sequence");
}

}  // namespace

Value length(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "length", arguments, {});
    return Value::integer(ev.length(input));
}

Value first(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "first", arguments, {});
    Value out;
    if (ev.iterate(input)(out)) return out;
    return make_undefined(ev.heap(), "there is no first item in an empty sequence");
}

Value last(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "last", arguments, {});
    if (input.is(Kind::generator))
        ev.fail("'last' needs a sequence, but it is given {}", indefinite_type_name(input));
    Values items = ev.collect(input);
    if (!items.empty()) return items.back();
    return make_undefined(ev.heap(), "there is no last item in an empty sequence");
}

Value list(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "list", arguments, {});
    return make_list(ev.heap(), ev.collect(input), false);
}

Value join(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "join", arguments, {"d", "attribute"});
    const std::string separator = a[0] ? ev.text(*a[0]) : "";
    std::string out;
    bool any = false;
    const Next next = ev.iterate(input);
    Value item;
    while (next(item)) {
        if (any) out += separator;
        any = true;
        ev.append_text(out, a[1] && !a[1]->is_none() ? deep_attribute(ev, item, *a[1]) : item);
        ev.check_size(out.size());
    }
    return ev.string(std::move(out));
}

Value reverse(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "reverse", arguments, {});
    if (input.is_string()) {
        const Value none = Value::none(), step = Value::integer(-1);
        return ev.slice(input, &none, &none, &step);
    }
    if (input.is(Kind::generator) || input.is_undefined()) {
        Values items = ev.collect(input);
        std::reverse(items.begin(), items.end());
        return make_list(ev.heap(), std::move(items), false);
    }
    Values items = ev.collect(input);
    const int depth = input.depth() + 1;
    return make_generator(ev.heap(), depth, [items = std::move(items)](Value& out) mutable {
        if (items.empty()) return false;
        out = std::move(items.back());
        items.pop_back();
        return true;
    });
}

Value items(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "items", arguments, {});
    if (input.is_undefined()) return make_generator(ev.heap(), 1, [](Value&) { return false; });
    if (!input.is(Kind::dict))
        ev.fail("'items' needs a dict, but it is given {}", indefinite_type_name(input));
    return make_generator(ev.heap(), input.depth() + 1, [&ev, input, i = std::size_t{0}](Value& out) mutable {
        const auto& entries = input.dict().map.entries();
        if (i >= entries.size()) return false;
        out = make_tuple(ev.heap(), {entries[i].key, entries[i].value});
        ++i;
        return true;
    });
}

Value dictsort(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
    ev.need_defined(input);
    if (!input.is(Kind::dict))
        ev.fail("'dictsort' needs a dict, but it is given {}", indefinite_type_name(input));
    const std::string by = a[1] ? ev.text(*a[1]) : "key";
    if (by != "key" && by != "value") ev.fail("'dictsort' sorts by 'key' or 'value', not by '{}'", by);
    const bool case_sensitive = a[0] && truthy(*a[0]), reversed = a[2] && truthy(*a[2]);
    const auto& entries = input.dict().map.entries();
    Values keys;
    for (const Dict::Entry& e : entries)
        keys.push_back(sort_key(ev, by == "key" ? e.key : e.value, nullptr, case_sensitive));
    const auto order = sorted_order(keys.size(), [&](std::size_t x, std::size_t y) {
        return reversed ? ev.less(keys[y], keys[x]) : ev.less(keys[x], keys[y]);
    });
    Values out;
    for (std::size_t i : order) out.push_back(make_tuple(ev.heap(), {entries[i].key, entries[i].value}));
    return make_list(ev.heap(), std::move(out), false);
}

Value sort(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
    const bool reversed = a[0] && truthy(*a[0]), case_sensitive = a[1] && truthy(*a[1]);
    // attribute="a,b" sorts by several.
    Values attributes;
    if (a[2] && a[2]->is_string()) {
        const std::string& text = a[2]->text();
        for (std::size_t start = 0; start <= text.size();) {
            const std::size_t end = std::min(text.find(',', start), text.size());
            attributes.push_back(ev.string(text.substr(start, end - start)));
            start = end + 1;
        }
    } else if (a[2] && !a[2]->is_none()) {
        attributes.push_back(*a[2]);
    }
    Values items = ev.collect(input);
    std::vector<Values> keys;
    for (const Value& item : items) {
        Values key;
        for (const Value& attribute : attributes)
            key.push_back(sort_key(ev, item, &attribute, case_sensitive));
        if (attributes.empty()) key.push_back(sort_key(ev, item, nullptr, case_sensitive));
        keys.push_back(std::move(key));
    }
    const auto less = [&](std::size_t x, std::size_t y) {
        for (std::size_t i = 0; i < keys[x].size(); ++i)
            if (!equal(&ev.heap(), keys[x][i], keys[y][i])) return ev.less(keys[x][i], keys[y][i]);
        return false;
    };
    const auto order = sorted_order(
        items.size(), [&](std::size_t x, std::size_t y) { return reversed ? less(y, x) : less(x, y); });
    Values out;
    for (std::size_t i : order) out.push_back(items[i]);
    return make_list(ev.heap(), std::move(out), false);
}

Value unique(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "unique", arguments, {"case_sensitive", "attribute"});
    const bool case_sensitive = a[0] && truthy(*a[0]);
    Dict seen;
    seen.heap = &ev.heap();
    Values kept;
    const Next next = ev.iterate(input);
    Value item;
    while (next(item)) {
        const Value key = sort_key(ev, item, a[1], case_sensitive);
        std::size_t hash = 0;
        if (!hash_value(key, hash)) ev.fail("'unique' cannot compare {}", indefinite_type_name(key));
        if (seen.find(key)) continue;
        seen.set(key, Value::none());
        kept.push_back(item);
    }
    const int depth = input.depth() + 1;
    return make_generator(ev.heap(), depth, [kept = std::move(kept), i = std::size_t{0}](Value& out) mutable {
        if (i >= kept.size()) return false;
        out = kept[i++];
        return true;
    });
}

// Pairs of a key and the items that have it, sorted by the key.
Value groupby(Evaluator& ev, const Value& input, Arguments& arguments) {
    static const std::vector<std::string> names = {"grouper", "list"};
    const auto a = bind(ev, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
    const bool case_sensitive = a[2] && truthy(*a[2]);
    const Values items = ev.collect(input);
    Values raw, keys;
    for (const Value& item : items) {
        Value key = deep_attribute(ev, item, *a[0]);
        if (key.is_undefined() && a[1]) key = *a[1];
        raw.push_back(key);
        keys.push_back(case_sensitive ? key : without_case(ev, key));
    }
    const auto order =
        sorted_order(items.size(), [&](std::size_t x, std::size_t y) { return ev.less(keys[x], keys[y]); });
    Values groups;
    for (std::size_t i = 0; i < order.size();) {
        Values members;
        const std::size_t first = order[i];
        for (; i < order.size() && equal(&ev.heap(), keys[order[i]], keys[first]); ++i)
            members.push_back(items[order[i]]);
        if (members.empty()) members.push_back(items[order[i++]]);  // a NaN equals not even itself
        Value group = make_tuple(ev.heap(), {raw[first], make_list(ev.heap(), std::move(members))});
        group.list().field_names = &names;
        groups.push_back(std::move(group));
    }
    return make_list(ev.heap(), std::move(groups), false);
}

Value batch(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "batch", arguments, {"linecount", "fill_with"}, 1);
    const std::int64_t size = to_index(ev, "batch", *a[0]);
    if (size < 1) ev.fail("'batch' needs a positive number of items");
    Values rows, row;
    const auto finish = [&] { rows.push_back(make_list(ev.heap(), std::exchange(row, {}), false)); };
    for (Value& item : ev.collect(input)) {
        row.push_back(std::move(item));
        if (static_cast<std::int64_t>(row.size()) == size) finish();
    }
    if (!row.empty()) {
        if (a[1] && !a[1]->is_none()) {
            ev.check_size(static_cast<std::size_t>(std::min<std::int64_t>(size, std::int64_t{1} << 40)) *
                          sizeof(Value));
            while (static_cast<std::int64_t>(row.size()) < size) row.push_back(*a[1]);
        }
        finish();
    }
    const Value list = make_list(ev.heap(), std::move(rows));
    return make_generator(ev.heap(), list.depth() + 1, ev.iterate(list));
}

Value slice(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "slice", arguments, {"slices", "fill_with"}, 1);
    const Values items = ev.collect(input);
    const std::int64_t slices = to_index(ev, "slice", *a[0]);
    if (slices < 1 || slices > 100000) ev.fail("'slice' needs between 1 and 100000 slices");
    const auto n = static_cast<std::int64_t>(items.size()), per_slice = n / slices, longer = n % slices;
    Values rows;
    std::int64_t offset = 0;
    for (std::int64_t s = 0; s < slices; ++s) {
        ev.heap().step();
        const std::int64_t count = per_slice + (s < longer ? 1 : 0);
        Values row(items.begin() + offset, items.begin() + offset + count);
        offset += count;
        if (a[1] && !a[1]->is_none() && s >= longer) row.push_back(*a[1]);
        rows.push_back(make_list(ev.heap(), std::move(row), false));
    }
    const Value list = make_list(ev.heap(), std::move(rows));
    return make_generator(ev.heap(), list.depth() + 1, ev.iterate(list));
}

Value sum(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "sum", arguments, {"attribute", "start"});
    Value total = a[1] ? *a[1] : Value::integer(0);
    const Next next = ev.iterate(input);
    Value item;
    while (next(item))
        total = ev.binary("+", total, a[0] && !a[0]->is_none() ? deep_attribute(ev, item, *a[0]) : item);
    return total;
}

Value min(Evaluator& ev, const Value& input, Arguments& arguments) {
    return extreme(ev, "min", input, arguments, false);
}
Value max(Evaluator& ev, const Value& input, Arguments& arguments) {
    return extreme(ev, "max", input, arguments, true);
}

}  // namespace forge::jinja::filters
