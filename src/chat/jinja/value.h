// The values of a template: Python's types as far as templates can tell.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/big_int.h"
#include "jinja/heap.h"

namespace forge::jinja {

class Evaluator;

enum class Kind : std::uint8_t {
    undefined,  // a missing variable, key or attribute
    none,
    boolean,
    integer,      // 64 bits
    big_integer,  // beyond 64 bits, never a value that would fit
    real,
    string,  // valid UTF-8
    list,
    tuple,
    dict,  // keeps insertion order
    range,
    view,        // dict.keys(), .values(), .items()
    name_space,  // namespace(...): the only thing whose attributes can be set
    generator,   // map, select, ...: can be read once
    loop,        // the loop variable
    function,    // a global, method or macro
};

// What a value shares by reference. Depth and plainness keep destructors, printing and
// comparison from running away: containers deeper than the limit cannot be built.
struct Object {
    explicit Object(Heap* owner = nullptr) : heap(owner) {}
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;
    virtual ~Object() {
        if (heap) heap->release(bytes);
    }
    void account(std::size_t n) {
        if (!heap) return;
        heap->charge(n);
        bytes += n;
    }

    Heap* heap;             // null for the constants of a parsed template
    std::size_t bytes = 0;  // charged to the heap
    int depth = 1;          // 1 + the depth of what it holds
    bool plain = true;      // holds only plain data: no namespace, function, loop or generator
};

struct StringObject;
struct ListObject;
struct DictObject;
struct UndefinedObject;
struct RangeObject;
struct ViewObject;
struct NamespaceObject;
struct GeneratorObject;
struct LoopObject;
struct FunctionObject;
struct BigIntObject;

class Value {
  public:
    Value() = default;  // none
    static Value none() { return Value(); }
    static Value boolean(bool b) { return Value(Kind::boolean, b); }
    static Value integer(std::int64_t i) { return Value(Kind::integer, i); }
    static Value real(double d);
    // Constants of a template, which no heap accounts for.
    static Value literal(std::string text);
    static Value literal(BigInt value);
    Value(Kind kind, std::shared_ptr<Object> object, bool safe = false)
        : kind_(kind), safe_(safe), object_(std::move(object)) {}

    Kind kind() const { return kind_; }
    bool is(Kind kind) const { return kind_ == kind; }
    bool is_undefined() const { return kind_ == Kind::undefined; }
    bool is_none() const { return kind_ == Kind::none; }
    bool is_string() const { return kind_ == Kind::string; }
    // bool counts as a number, as in Python.
    bool is_int_like() const {
        return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::big_integer;
    }
    bool is_number() const { return is_int_like() || kind_ == Kind::real; }
    bool is_sequence_object() const { return kind_ == Kind::list || kind_ == Kind::tuple; }

    bool as_bool() const { return integer_ != 0; }
    std::int64_t as_int() const { return integer_; }  // boolean or integer
    double as_real() const { return real_; }
    bool safe() const { return safe_; }  // a string marked as safe: '+' escapes its other side
    const std::string& text() const;
    ListObject& list() const;  // list or tuple
    DictObject& dict() const;
    UndefinedObject& undefined() const;
    RangeObject& range() const;
    ViewObject& view() const;
    NamespaceObject& name_space() const;
    GeneratorObject& generator() const;
    LoopObject& loop() const;
    FunctionObject& function() const;
    const BigInt& big() const;
    BigInt to_big() const;  // any int-like
    const std::shared_ptr<Object>& object() const { return object_; }

    int depth() const { return object_ ? object_->depth : 0; }
    bool plain() const;

  private:
    Value(Kind kind, std::int64_t i) : kind_(kind), integer_(i) {}

    Kind kind_ = Kind::none;
    bool safe_ = false;
    union {
        std::int64_t integer_ = 0;
        double real_;
    };
    std::shared_ptr<Object> object_;
};

using Values = std::vector<Value>;

struct StringObject : Object {
    using Object::Object;
    std::string text;
};

struct BigIntObject : Object {
    using Object::Object;
    BigInt value;
};

struct UndefinedObject : Object {
    using Object::Object;
    std::string message;  // what a use that needs a value reports
};

struct ListObject : Object {
    using Object::Object;
    Values items;
    bool frozen = true;  // may not be appended to: an input, or part of another container
    const std::vector<std::string>* field_names = nullptr;  // groupby's pairs
    bool has_hash = false;                                  // of a tuple, kept because tuples may share parts
    std::size_t hash = 0;
};

// Insertion order; equal keys (1, 1.0 and true are one key) keep their place and the first key.
class Dict {
  public:
    struct Entry {
        Value key, value;
    };
    const Value* find(const Value& key) const;  // the key must be hashable
    const Value* find(std::string_view key) const;
    void set(Value key, Value value);
    const std::vector<Entry>& entries() const { return entries_; }
    std::size_t size() const { return entries_.size(); }
    void clear();

    Heap* heap = nullptr;  // counts the work of comparing keys

  private:
    std::size_t locate(const Value& key, std::size_t hash) const;
    std::vector<Entry> entries_;
    std::unordered_multimap<std::size_t, std::size_t> index_;  // hash -> entry, once there are several
};

struct DictObject : Object {
    using Object::Object;
    Dict map;
};

struct RangeObject : Object {
    using Object::Object;
    std::int64_t start = 0, stop = 0, step = 1, length = 0;
};

struct ViewObject : Object {
    using Object::Object;
    enum class What { keys, values, items } what = What::keys;
    Value dict;
};

struct NamespaceObject : Object {
    using Object::Object;
    Dict attributes;
};

// Produces the next item, or false at the end.
using Next = std::function<bool(Value&)>;

struct GeneratorObject : Object {
    using Object::Object;
    Next next;
};

struct Arguments {
    Values positional;
    std::vector<std::pair<std::string, Value>> keyword;
};

struct FunctionObject : Object {
    using Object::Object;
    std::string name;
    std::function<Value(Evaluator&, Arguments&)> call;
};

// The state behind `loop`. Items are read from the source one by one, at most one ahead,
// so that a loop's filter sees what its body has set.
struct LoopObject : Object {
    using Object::Object;
    Next next;
    std::function<Value(Evaluator&, const Value&)> recurse;  // only in `for ... recursive`
    std::int64_t index0 = -1;
    int level = 1;
    bool has_previous = false, has_current = false, has_ahead = false;
    bool drained = false;  // the source has ended
    Value previous, current, ahead;
    std::int64_t length = -1;  // known once asked
    std::vector<Value> rest;   // read ahead when the length was asked, in order
    std::size_t rest_taken = 0;
    bool has_changed = false;
    Values changed;

    bool advance();  // moves to the next item
    bool peek();     // true when another item follows; it is then in `ahead`
    std::int64_t count();
};

std::string_view type_name(const Value& value);  // Python's: str, int, NoneType, dict, ...
bool truthy(const Value& value);
std::string_view indefinite_type_name(const Value& value);  // for messages: "a string", "nothing (None)"
// Hash consistent with equality; false when the value (a list, a dict) cannot be a key.
bool hash_value(const Value& value, std::size_t& hash);
// Deep equality; the heap counts the work and may be null.
bool equal(Heap* heap, const Value& a, const Value& b);

// New values, charged to the heap. They fail when a limit is reached.
Value make_string(Heap& heap, std::string text, bool safe = false);
Value make_int(Heap& heap, BigInt value);
Value make_list(Heap& heap, Values items, bool frozen = true);
Value make_tuple(Heap& heap, Values items);
Value make_dict(Heap& heap, Dict map);
Value make_undefined(Heap& heap, std::string message);
Value make_function(Heap& heap, std::string name, std::function<Value(Evaluator&, Arguments&)> call,
                    int depth = 1);
Value make_generator(Heap& heap, int depth, Next next);

// Exact comparison of two numbers: -1, 0, 1; 2 when a NaN is involved.
int compare_numbers(const Value& a, const Value& b);

}  // namespace forge::jinja
