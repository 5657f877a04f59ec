// What a schema says about a value, with references and combinations worked out: one or more shapes, of
// which the value must have one. Schemas inside (of properties and items) stay schemas, by number.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "decimal.h"

namespace forge::grammar {

using Json = nlohmann::ordered_json;

// Schemas that all hold, as sorted numbers without repeats; empty: anything.
using Conjunction = std::vector<int>;

enum Type : unsigned { type_null = 1, type_boolean = 2, type_number = 4, type_string = 8, type_array = 16, type_object = 32, all_types = 63 };

constexpr std::uint64_t no_limit = UINT64_MAX;

struct Bound {
    Decimal value;
    bool exclusive = false;
};

// The array keywords of one schema: its own items begin after its own prefixItems.
struct ItemsOf {
    std::vector<int> prefix;
    int items = -1;   // a schema; -1: not given
};

// The object keywords of one schema: its additionalProperties are those that its own other two do not know.
struct MembersOf {
    std::vector<std::pair<std::string, int>> properties, patterns;
    int additional = -1;
};

struct Shape {
    unsigned types = all_types;
    std::optional<std::vector<Json>> values;   // enum, const: one of these
    bool whole = false;                        // numbers are integers
    std::optional<Bound> least, most;
    std::vector<Decimal> multiples;
    std::uint64_t least_length = 0, most_length = no_limit;
    std::vector<std::string> patterns;         // a string matches all
    std::uint64_t least_items = 0, most_items = no_limit;
    std::vector<ItemsOf> items;
    std::uint64_t least_members = 0, most_members = no_limit;
    std::vector<MembersOf> members;
    std::vector<std::string> required;
    Conjunction names;                         // propertyNames
};

Shape both(const Shape& a, const Shape& b);

// Equal as JSON Schema means it: 1 is 1.0, objects in any order.
bool same_value(const Json& a, const Json& b);
unsigned type_of(const Json& value);

Conjunction item_schemas(const Shape& shape, std::uint64_t index);

}  // namespace forge::grammar
