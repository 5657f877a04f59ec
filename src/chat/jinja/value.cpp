#include "jinja/value.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace forge::jinja {

void Heap::too_many_steps() const {
    throw TemplateError(
        TemplateError::Cause::limit,
        fmt::format("The chat template was stopped after {} steps: it loops too long for this "
                    "conversation, or for ever. Shorten the conversation or fix the template.",
                    limits_.steps));
}
void Heap::too_much_memory() const {
    throw TemplateError(
        TemplateError::Cause::limit,
        fmt::format("The chat template was stopped because its values need more than {} bytes.",
                    limits_.memory));
}
void Heap::too_deep_value() const {
    throw TemplateError(
        TemplateError::Cause::limit,
        fmt::format(
            "The chat template was stopped because a list or object is nested more than {} levels deep.",
            limits_.value_depth));
}

Value Value::real(double d) {
    Value v;
    v.kind_ = Kind::real;
    v.real_ = d;
    return v;
}

Value Value::literal(std::string text) {
    auto object = std::make_shared<StringObject>();
    object->text = std::move(text);
    return Value(Kind::string, std::move(object));
}

Value Value::literal(BigInt value) {
    if (auto small = value.to_int64()) return integer(*small);
    auto object = std::make_shared<BigIntObject>();
    object->value = std::move(value);
    return Value(Kind::big_integer, std::move(object));
}

const std::string& Value::text() const { return static_cast<StringObject&>(*object_).text; }
ListObject& Value::list() const { return static_cast<ListObject&>(*object_); }
DictObject& Value::dict() const { return static_cast<DictObject&>(*object_); }
UndefinedObject& Value::undefined() const { return static_cast<UndefinedObject&>(*object_); }
RangeObject& Value::range() const { return static_cast<RangeObject&>(*object_); }
ViewObject& Value::view() const { return static_cast<ViewObject&>(*object_); }
NamespaceObject& Value::name_space() const { return static_cast<NamespaceObject&>(*object_); }
GeneratorObject& Value::generator() const { return static_cast<GeneratorObject&>(*object_); }
LoopObject& Value::loop() const { return static_cast<LoopObject&>(*object_); }
FunctionObject& Value::function() const { return static_cast<FunctionObject&>(*object_); }
const BigInt& Value::big() const { return static_cast<BigIntObject&>(*object_).value; }
BigInt Value::to_big() const { return kind_ == Kind::big_integer ? big() : BigInt(integer_); }

bool Value::plain() const {
    switch (kind_) {
        case Kind::name_space:
        case Kind::generator:
        case Kind::loop:
        case Kind::function:
            return false;
        default:
            return !object_ || object_->plain;
    }
}

std::string_view indefinite_type_name(const Value& value) {
    switch (value.kind()) {
        case Kind::undefined:
            return "something undefined";
        case Kind::none:
            return "none";
        case Kind::boolean:
            return "a boolean";
        case Kind::integer:
        case Kind::big_integer:
            return "an integer";
        case Kind::real:
            return "a float";
        case Kind::string:
            return "a string";
        case Kind::list:
            return "a list";
        case Kind::tuple:
            return "a tuple";
        case Kind::dict:
            return "a dict";
        case Kind::range:
            return "a range";
        case Kind::view:
            return "a dict's keys, values or items";
        case Kind::name_space:
            return "a namespace";
        case Kind::generator:
            return "a lazy sequence";
        case Kind::loop:
            return "the loop variable";
        case Kind::function:
            return "a function";
    }
    return "?";
}

std::string_view type_name(const Value& value) {
    switch (value.kind()) {
        case Kind::undefined:
            return "Undefined";
        case Kind::none:
            return "NoneType";
        case Kind::boolean:
            return "bool";
        case Kind::integer:
        case Kind::big_integer:
            return "int";
        case Kind::real:
            return "float";
        case Kind::string:
            return "str";
        case Kind::list:
            return "list";
        case Kind::tuple:
            return "tuple";
        case Kind::dict:
            return "dict";
        case Kind::range:
            return "range";
        case Kind::view:
            return "dict view";
        case Kind::name_space:
            return "namespace";
        case Kind::generator:
            return "generator";
        case Kind::loop:
            return "loop";
        case Kind::function:
            return "function";
    }
    return "?";
}

bool truthy(const Value& value) {
    switch (value.kind()) {
        case Kind::undefined:
        case Kind::none:
            return false;
        case Kind::boolean:
        case Kind::integer:
            return value.as_int() != 0;
        case Kind::real:
            return value.as_real() != 0.0;  // NaN is true
        case Kind::string:
            return !value.text().empty();
        case Kind::list:
        case Kind::tuple:
            return !value.list().items.empty();
        case Kind::dict:
            return value.dict().map.size() != 0;
        case Kind::range:
            return value.range().length != 0;
        case Kind::view:
            return value.view().dict.dict().map.size() != 0;
        default:
            return true;
    }
}

int compare_numbers(const Value& a, const Value& b) {
    const bool ra = a.is(Kind::real), rb = b.is(Kind::real);
    if (ra && rb) {
        const double x = a.as_real(), y = b.as_real();
        return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
    }
    if (rb) {
        const int c = compare_numbers(b, a);
        return c == 2 ? 2 : -c;
    }
    if (ra) {
        const double x = a.as_real();
        if (std::isnan(x)) return 2;
        if (std::isinf(x)) return x > 0 ? 1 : -1;
        const double whole = std::trunc(x);
        const auto order = BigInt::from_double(whole) <=> b.to_big();
        if (order != 0) return order < 0 ? -1 : 1;
        return x > whole ? 1 : x < whole ? -1 : 0;
    }
    if (!a.is(Kind::big_integer) && !b.is(Kind::big_integer))
        return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
    const auto order = a.to_big() <=> b.to_big();
    return order < 0 ? -1 : order > 0 ? 1 : 0;
}

bool hash_value(const Value& value, std::size_t& hash) {
    switch (value.kind()) {
        case Kind::boolean:
        case Kind::integer:
            hash = std::hash<std::int64_t>{}(value.as_int());
            return true;
        case Kind::real: {
            const double d = value.as_real();
            // An integral float equals an int, so it must hash like one.
            if (std::trunc(d) == d && std::fabs(d) < 9.2e18)
                hash = std::hash<std::int64_t>{}(static_cast<std::int64_t>(d));
            else if (std::trunc(d) == d && !std::isinf(d))
                hash = std::hash<std::string>{}(BigInt::from_double(d).to_string());
            else
                hash = std::hash<double>{}(d);
            return true;
        }
        case Kind::big_integer:
            hash = std::hash<std::string>{}(value.big().to_string());
            return true;
        case Kind::string:
            hash = std::hash<std::string_view>{}(value.text());
            return true;
        case Kind::tuple: {
            ListObject& tuple = value.list();
            if (tuple.has_hash) {
                hash = tuple.hash;
                return true;
            }
            hash = 0x345678;
            for (const Value& item : value.list().items) {
                std::size_t h = 0;
                if (!hash_value(item, h)) return false;
                hash = hash * 1000003 ^ h;
            }
            if (tuple.heap) {  // a constant of the template may be shared by threads: leave it alone
                tuple.has_hash = true;
                tuple.hash = hash;
            }
            return true;
        }
        case Kind::none:
        case Kind::undefined:
            hash = static_cast<std::size_t>(value.kind());
            return true;
        case Kind::list:
        case Kind::dict:
        case Kind::view:
            return false;
        default:
            hash = std::hash<const void*>{}(value.object().get());
            return true;
    }
}

bool equal(Heap* heap, const Value& a, const Value& b) {
    if (heap) heap->step();
    if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
        case Kind::undefined:
        case Kind::none:
            return true;
        case Kind::string:
            if (heap) heap->work(std::min(a.text().size(), b.text().size()));
            return a.text() == b.text();
        case Kind::list:
        case Kind::tuple: {
            const Values &x = a.list().items, &y = b.list().items;
            if (x.size() != y.size()) return false;
            for (std::size_t i = 0; i < x.size(); ++i)
                if (x[i].object() != y[i].object() || !x[i].object())
                    if (!equal(heap, x[i], y[i])) return false;
            return true;
        }
        case Kind::dict: {
            const Dict &x = a.dict().map, &y = b.dict().map;
            if (x.size() != y.size()) return false;
            for (const Dict::Entry& e : x.entries()) {
                const Value* other = y.find(e.key);
                if (!other || !equal(heap, e.value, *other)) return false;
            }
            return true;
        }
        case Kind::range: {
            const RangeObject &x = a.range(), &y = b.range();
            return x.length == y.length &&
                   (x.length == 0 || (x.start == y.start && (x.length == 1 || x.step == y.step)));
        }
        case Kind::view:
            return a.view().what == b.view().what && a.view().what != ViewObject::What::values &&
                   equal(heap, a.view().dict, b.view().dict);
        default:
            return a.object() == b.object();
    }
}

std::size_t Dict::locate(const Value& key, std::size_t hash) const {
    constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
    if (index_.empty()) {
        for (std::size_t i = 0; i < entries_.size(); ++i)
            if (equal(heap, entries_[i].key, key)) return i;
        return none;
    }
    const auto [first, last] = index_.equal_range(hash);
    for (auto it = first; it != last; ++it)
        if (equal(heap, entries_[it->second].key, key)) return it->second;
    return none;
}

const Value* Dict::find(const Value& key) const {
    std::size_t hash = 0;
    if (!hash_value(key, hash)) return nullptr;
    const std::size_t i = locate(key, hash);
    return i < entries_.size() ? &entries_[i].value : nullptr;
}

const Value* Dict::find(std::string_view key) const {
    if (index_.empty()) {
        for (const Entry& e : entries_)
            if (e.key.is_string() && e.key.text() == key) return &e.value;
        return nullptr;
    }
    const auto [first, last] = index_.equal_range(std::hash<std::string_view>{}(key));
    for (auto it = first; it != last; ++it) {
        const Entry& e = entries_[it->second];
        if (e.key.is_string() && e.key.text() == key) return &e.value;
    }
    return nullptr;
}

void Dict::set(Value key, Value value) {
    std::size_t hash = 0;
    hash_value(key, hash);
    const std::size_t i = locate(key, hash);
    if (i < entries_.size()) {
        entries_[i].value = std::move(value);
        return;
    }
    entries_.push_back({std::move(key), std::move(value)});
    if (!index_.empty()) {
        index_.emplace(hash, entries_.size() - 1);
    } else if (entries_.size() > 8) {
        for (std::size_t k = 0; k < entries_.size(); ++k) {
            std::size_t h = 0;
            hash_value(entries_[k].key, h);
            index_.emplace(h, k);
        }
    }
}

void Dict::clear() {
    entries_.clear();
    index_.clear();
}

bool LoopObject::peek() {
    if (has_ahead) return true;
    if (rest_taken < rest.size()) {
        ahead = std::move(rest[rest_taken++]);
        return has_ahead = true;
    }
    if (drained) return false;
    if (next(ahead)) return has_ahead = true;
    drained = true;
    return false;
}

bool LoopObject::advance() {
    const bool more = peek();
    has_previous = has_current;
    previous = std::move(current);
    current = std::move(ahead);
    ahead = Value();
    has_ahead = false;
    has_current = more;
    if (more) ++index0;
    return more;
}

std::int64_t LoopObject::count() {
    if (length >= 0) return length;
    // Read everything that is left, behind an item already read ahead.
    Value item;
    while (!drained && next(item)) {
        account(sizeof(Value));
        rest.push_back(std::move(item));
    }
    drained = true;
    return length = index0 + 1 + (has_ahead ? 1 : 0) + static_cast<std::int64_t>(rest.size() - rest_taken);
}

namespace {

// Common to every container: depth, plainness, and what it costs.
template <typename T>
std::shared_ptr<T> new_object(Heap& heap, std::size_t extra) {
    auto object = std::make_shared<T>(&heap);
    object->account(sizeof(T) + extra + 32);
    return object;
}

void note_child(Object& parent, const Value& child) {
    parent.depth = std::max(parent.depth, child.depth() + 1);
    parent.plain = parent.plain && child.plain();
    // What is part of something else can no longer change, so depths stay true and nothing
    // can contain itself.
    if (child.is(Kind::list)) child.list().frozen = true;
}

Value make_items(Heap& heap, Kind kind, Values items, bool frozen) {
    auto object = new_object<ListObject>(heap, items.size() * sizeof(Value));
    for (const Value& item : items) note_child(*object, item);
    heap.check_depth(object->depth);
    object->items = std::move(items);
    object->frozen = frozen;
    return Value(kind, std::move(object));
}

}  // namespace

Value make_string(Heap& heap, std::string text, bool safe) {
    auto object = new_object<StringObject>(heap, text.size());
    object->text = std::move(text);
    return Value(Kind::string, std::move(object), safe);
}

Value make_int(Heap& heap, BigInt value) {
    if (auto small = value.to_int64()) return Value::integer(*small);
    auto object = new_object<BigIntObject>(heap, value.size() * 4);
    object->value = std::move(value);
    return Value(Kind::big_integer, std::move(object));
}

Value make_list(Heap& heap, Values items, bool frozen) {
    return make_items(heap, Kind::list, std::move(items), frozen);
}
Value make_tuple(Heap& heap, Values items) { return make_items(heap, Kind::tuple, std::move(items), true); }

Value make_dict(Heap& heap, Dict map) {
    auto object = new_object<DictObject>(heap, map.size() * (sizeof(Dict::Entry) + 32));
    for (const Dict::Entry& e : map.entries()) {
        note_child(*object, e.key);
        note_child(*object, e.value);
    }
    heap.check_depth(object->depth);
    object->map = std::move(map);
    object->map.heap = &heap;
    return Value(Kind::dict, std::move(object));
}

Value make_undefined(Heap& heap, std::string message) {
    auto object = new_object<UndefinedObject>(heap, message.size());
    object->message = std::move(message);
    return Value(Kind::undefined, std::move(object));
}

Value make_function(Heap& heap, std::string name, std::function<Value(Evaluator&, Arguments&)> call,
                    int depth) {
    auto object = new_object<FunctionObject>(heap, name.size() + 64);
    heap.check_depth(depth);
    object->depth = depth;
    object->name = std::move(name);
    object->call = std::move(call);
    return Value(Kind::function, std::move(object));
}

Value make_generator(Heap& heap, int depth, Next next) {
    auto object = new_object<GeneratorObject>(heap, 64);
    heap.check_depth(depth);
    object->depth = depth;
    object->next = std::move(next);
    return Value(Kind::generator, std::move(object));
}

}  // namespace forge::jinja
