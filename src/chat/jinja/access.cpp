// Attributes, items, iteration and length.
#include "jinja/evaluator.h"
#include "jinja/unicode.h"

namespace forge::jinja {
namespace {

Value bound_method(Evaluator& ev, const Value& self, std::string_view name, Method method) {
    return make_function(
        ev.heap(), std::string(name),
        [self, method](Evaluator& inner, Arguments& arguments) { return method(inner, self, arguments); },
        self.depth() + 1);
}

// The attributes of the loop variable; false when there is none of that name.
bool loop_attribute(Evaluator& ev, LoopObject& loop, std::string_view name, Value& out) {
    if (name == "index")
        out = Value::integer(loop.index0 + 1);
    else if (name == "index0")
        out = Value::integer(loop.index0);
    else if (name == "first")
        out = Value::boolean(loop.index0 == 0);
    else if (name == "last")
        out = Value::boolean(!loop.peek());
    else if (name == "length")
        out = Value::integer(loop.count());
    else if (name == "revindex")
        out = Value::integer(loop.count() - loop.index0);
    else if (name == "revindex0")
        out = Value::integer(loop.count() - loop.index0 - 1);
    else if (name == "depth")
        out = Value::integer(loop.level);
    else if (name == "depth0")
        out = Value::integer(loop.level - 1);
    else if (name == "previtem")
        out = loop.has_previous ? loop.previous
                                : make_undefined(ev.heap(), "there is no previous item in this loop");
    else if (name == "nextitem")
        out = loop.peek() ? loop.ahead : make_undefined(ev.heap(), "there is no next item in this loop");
    else
        return false;
    return true;
}

Value missing(Evaluator& ev, const Value& object, std::string_view name) {
    if (object.is(Kind::dict)) return make_undefined(ev.heap(), fmt::format("a dict has no key '{}'", name));
    return make_undefined(ev.heap(),
                          fmt::format("{} has no attribute '{}'", indefinite_type_name(object), name));
}

// Item by key without the fallback to attributes; false when there is none.
bool plain_item(Evaluator& ev, const Value& object, const Value& key, Value& out) {
    if (object.is(Kind::dict)) {
        const Value* found = object.dict().map.find(key);
        if (!found) return false;
        out = *found;
        return true;
    }
    if (key.kind() != Kind::integer && key.kind() != Kind::boolean) return false;
    std::int64_t i = key.as_int();
    if (object.is_sequence_object()) {
        const Values& items = object.list().items;
        const auto n = static_cast<std::int64_t>(items.size());
        if (i < 0) i += n;
        if (i < 0 || i >= n) return false;
        out = items[static_cast<std::size_t>(i)];
        return true;
    }
    if (object.is_string()) {
        const std::string& text = object.text();
        ev.heap().work(text.size());
        const bool ascii = is_ascii(text);
        const auto n = static_cast<std::int64_t>(ascii ? text.size() : code_point_count(text));
        if (i < 0) i += n;
        if (i < 0 || i >= n) return false;
        std::size_t at =
            ascii ? static_cast<std::size_t>(i) : code_point_offset(text, static_cast<std::size_t>(i));
        const std::size_t start = at;
        next_code_point(text, at);
        out = ev.string(text.substr(start, at - start), object.safe());
        return true;
    }
    if (object.is(Kind::range)) {
        const RangeObject& r = object.range();
        if (i < 0) i += r.length;
        if (i < 0 || i >= r.length) return false;
        out = Value::integer(r.start + i * r.step);
        return true;
    }
    return false;
}

// Attribute without the fallback to items; false when there is none.
bool plain_attribute(Evaluator& ev, const Value& object, std::string_view name, Value& out) {
    if (Method method = find_method(ev, object, name)) {
        out = bound_method(ev, object, name, method);
        return true;
    }
    if (is_refused_method(object, name)) {
        out = make_undefined(ev.heap(), fmt::format("'{}' would change {}, which chat templates may not do",
                                                    name, indefinite_type_name(object)));
        return true;
    }
    switch (object.kind()) {
        case Kind::name_space:
            if (const Value* found = object.name_space().attributes.find(name)) {
                out = *found;
                return true;
            }
            return false;
        case Kind::loop:
            return loop_attribute(ev, object.loop(), name, out);
        case Kind::tuple:
            if (const auto* names = object.list().field_names)
                for (std::size_t i = 0; i < names->size(); ++i)
                    if ((*names)[i] == name) {
                        out = object.list().items[i];
                        return true;
                    }
            return false;
        case Kind::function:
            if (name != "name") return false;
            out = ev.string(object.function().name);
            return true;
        case Kind::range:
            if (name == "start")
                out = Value::integer(object.range().start);
            else if (name == "stop")
                out = Value::integer(object.range().stop);
            else if (name == "step")
                out = Value::integer(object.range().step);
            else
                return false;
            return true;
        default:
            return false;
    }
}

}  // namespace

Value Evaluator::attribute(const Value& object, std::string_view name) {
    need_defined(object);
    Value out;
    if (plain_attribute(*this, object, name, out)) return out;
    if (object.is(Kind::dict))
        if (const Value* found = object.dict().map.find(name)) return *found;
    return missing(*this, object, name);
}

Value Evaluator::item(const Value& object, const Value& key) {
    need_defined(object);
    Value out;
    if (plain_item(*this, object, key, out)) return out;
    if (key.is_string() && plain_attribute(*this, object, key.text(), out)) return out;
    if (object.is_sequence_object() && key.is(Kind::integer))
        return make_undefined(heap_,
                              fmt::format("{} of {} items has no item {}", indefinite_type_name(object),
                                          object.list().items.size(), key.as_int()));
    return missing(*this, object, text(key));
}

Next Evaluator::iterate(const Value& value) {
    switch (value.kind()) {
        case Kind::undefined:
            return [](Value&) { return false; };
        case Kind::string:
            return [this, value, at = std::size_t{0}](Value& out) mutable {
                const std::string& text = value.text();
                if (at >= text.size()) return false;
                heap_.step();
                const std::size_t start = at;
                next_code_point(text, at);
                out = string(text.substr(start, at - start));
                return true;
            };
        case Kind::list:
        case Kind::tuple:
            return [this, value, i = std::size_t{0}](Value& out) mutable {
                const Values& items = value.list().items;
                if (i >= items.size()) return false;
                heap_.step();
                out = items[i++];
                return true;
            };
        case Kind::dict:
            return [this, value, i = std::size_t{0}](Value& out) mutable {
                if (i >= value.dict().map.size()) return false;
                heap_.step();
                out = value.dict().map.entries()[i++].key;
                return true;
            };
        case Kind::view:
            return [this, value, i = std::size_t{0}](Value& out) mutable {
                const auto& entries = value.view().dict.dict().map.entries();
                if (i >= entries.size()) return false;
                heap_.step();
                const Dict::Entry& e = entries[i++];
                switch (value.view().what) {
                    case ViewObject::What::keys:
                        out = e.key;
                        break;
                    case ViewObject::What::values:
                        out = e.value;
                        break;
                    case ViewObject::What::items:
                        out = make_tuple(heap_, {e.key, e.value});
                        break;
                }
                return true;
            };
        case Kind::range:
            return [this, value, i = std::int64_t{0}](Value& out) mutable {
                const RangeObject& r = value.range();
                if (i >= r.length) return false;
                heap_.step();
                out = Value::integer(r.start + i++ * r.step);
                return true;
            };
        case Kind::generator:
            return [this, value](Value& out) {
                heap_.step();
                const Level level(*this);
                return value.generator().next(out);
            };
        default:
            fail("{} cannot be looped over", indefinite_type_name(value));
    }
}

Values Evaluator::collect(const Value& value) {
    Values out;
    const Next next = iterate(value);
    Value item;
    while (next(item)) {
        if (out.size() % 1024 == 0) check_size(out.size() * 2 * sizeof(Value));
        out.push_back(std::move(item));
    }
    return out;
}

std::int64_t Evaluator::length(const Value& value) {
    switch (value.kind()) {
        case Kind::undefined:
            return 0;
        case Kind::string:
            heap_.work(value.text().size());
            return static_cast<std::int64_t>(code_point_count(value.text()));
        case Kind::list:
        case Kind::tuple:
            return static_cast<std::int64_t>(value.list().items.size());
        case Kind::dict:
            return static_cast<std::int64_t>(value.dict().map.size());
        case Kind::view:
            return static_cast<std::int64_t>(value.view().dict.dict().map.size());
        case Kind::range:
            return value.range().length;
        case Kind::loop:
            return value.loop().count();
        default:
            fail("{} has no length", indefinite_type_name(value));
    }
}

}  // namespace forge::jinja
