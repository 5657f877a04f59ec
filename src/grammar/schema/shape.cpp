#include "shape.h"

#include <algorithm>

namespace forge::grammar {
namespace {

template <typename T>
void add_new(std::vector<T>& list, const std::vector<T>& more) {
    for (const T& x : more)
        if (std::find(list.begin(), list.end(), x) == list.end()) list.push_back(x);
}

}  // namespace

bool same_value(const Json& a, const Json& b) {
    if (a.is_number() && b.is_number()) return decimal_of(a) == decimal_of(b);
    if (a.type() != b.type()) return false;
    if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_value);
    if (!a.is_object()) return a == b;
    if (a.size() != b.size()) return false;
    for (const auto& [key, value] : a.items())
        if (!b.contains(key) || !same_value(value, b[key])) return false;
    return true;
}

unsigned type_of(const Json& v) {
    return v.is_null() ? type_null : v.is_boolean() ? type_boolean : v.is_number() ? type_number : v.is_string() ? type_string : v.is_array() ? type_array : type_object;
}

Shape both(const Shape& a, const Shape& b) {
    Shape out = a;
    out.types &= b.types;
    out.whole |= b.whole;
    if (b.values) {
        if (!out.values) out.values = b.values;
        else std::erase_if(*out.values, [&](const Json& v) { return std::none_of(b.values->begin(), b.values->end(), [&](const Json& w) { return same_value(v, w); }); });
    }
    if (b.least && (!out.least || b.least->value > out.least->value || (b.least->value == out.least->value && b.least->exclusive))) out.least = b.least;
    if (b.most && (!out.most || b.most->value < out.most->value || (b.most->value == out.most->value && b.most->exclusive))) out.most = b.most;
    add_new(out.multiples, b.multiples);
    out.least_length = std::max(out.least_length, b.least_length);
    out.most_length = std::min(out.most_length, b.most_length);
    add_new(out.patterns, b.patterns);
    out.least_items = std::max(out.least_items, b.least_items);
    out.most_items = std::min(out.most_items, b.most_items);
    out.items.insert(out.items.end(), b.items.begin(), b.items.end());
    out.least_members = std::max(out.least_members, b.least_members);
    out.most_members = std::min(out.most_members, b.most_members);
    out.members.insert(out.members.end(), b.members.begin(), b.members.end());
    add_new(out.required, b.required);
    add_new(out.names, b.names);
    std::sort(out.names.begin(), out.names.end());
    return out;
}

Conjunction item_schemas(const Shape& shape, std::uint64_t index) {
    Conjunction out;
    for (const ItemsOf& source : shape.items) {
        if (index < source.prefix.size()) out.push_back(source.prefix[index]);
        else if (source.items >= 0) out.push_back(source.items);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

}  // namespace forge::grammar
