#include "expand.h"

#include <algorithm>

#include "base/error.h"

namespace forge::grammar {
namespace {

constexpr std::size_t most_shapes = 512, most_work = 1'000'000;
constexpr int most_depth = 40;   // schemas inside schemas that are looked into for emptiness

// Whether a number of the range exists; integers when `whole`.
bool no_number(const Shape& s) {
    if (!s.least || !s.most) return false;
    if (s.least->value > s.most->value) return true;
    if (s.least->value == s.most->value) return s.least->exclusive || s.most->exclusive || (s.whole && !s.least->value.fraction.empty());
    return false;
}

}  // namespace

void Expander::spend(std::size_t work) {
    spent_ += work;
    if (spent_ > most_work) fail(ErrorKind::unsupported, "the schema's combinations (allOf, anyOf, oneOf, $ref) take too long to work out");
}

std::vector<Shape> Expander::shapes(const Conjunction& schemas) {
    std::vector<Shape> out(1);
    for (const int schema : schemas) out = product(schema, "allOf", out, expand(schema));
    return out;
}

std::vector<Shape> Expander::product(int schema, const char* keyword, const std::vector<Shape>& a, const std::vector<Shape>& b) {
    std::vector<Shape> out;
    spend(a.size() * b.size());
    for (const Shape& x : a) {
        for (const Shape& y : b) {
            Shape merged = both(x, y);
            if (!prune(merged)) continue;
            if (out.size() >= most_shapes) reader_.refuse(schema, keyword, fmt::format("it makes more than {} combinations", most_shapes));
            out.push_back(std::move(merged));
        }
    }
    return out;
}

std::vector<Shape> Expander::expand(int schema) {
    if (std::find(active_.begin(), active_.end(), schema) != active_.end()) reader_.refuse(schema, "$ref", "the schema refers to itself without anything in between");
    if (active_.size() > 200) reader_.refuse(schema, "$ref", "schemas are nested too deep");
    struct Active {
        std::vector<int>& list;
        Active(std::vector<int>& l, int s) : list(l) { list.push_back(s); }
        ~Active() { list.pop_back(); }
    } guard(active_, schema);
    spend(1);
    const Keywords& k = reader_.read(schema);
    if (k.never) return {};
    std::vector<Shape> out{k.own};
    if (!prune(out[0])) return {};
    if (k.reference >= 0) out = product(schema, "$ref", out, expand(k.reference));
    for (const int part : k.all_of) out = product(schema, "allOf", out, expand(part));
    if (k.has_any) {
        std::vector<Shape> any;
        for (const int part : k.any_of)
            for (Shape& s : expand(part)) any.push_back(std::move(s));
        out = product(schema, "anyOf", out, any);
    }
    if (k.has_one) {
        std::vector<std::vector<Shape>> branches;
        for (const int part : k.one_of) branches.push_back(expand(part));
        check_disjoint(schema, out, branches);
        std::vector<Shape> one;
        for (auto& branch : branches)
            for (Shape& s : branch) one.push_back(std::move(s));
        out = product(schema, "oneOf", out, one);
    }
    return out;
}

void Expander::check_disjoint(int schema, const std::vector<Shape>& base, const std::vector<std::vector<Shape>>& branches) {
    for (std::size_t i = 0; i < branches.size(); ++i)
        for (std::size_t j = i + 1; j < branches.size(); ++j)
            for (const Shape& b : base)
                for (const Shape& x : branches[i])
                    for (const Shape& y : branches[j]) {
                        spend(1);
                        Shape common = both(both(b, x), y);
                        if (prune(common))
                            reader_.refuse(schema, "oneOf", fmt::format("the branches {} and {} are not known to exclude each other; use anyOf, or tell them apart by a required member with a const", i, j));
                    }
}

bool Expander::prune(Shape& s) {
    if (s.values) {
        std::erase_if(*s.values, [&](const Json& v) { return !(s.types & type_of(v)); });
        if (nesting_ < most_depth) {
            Shape rest = s;
            rest.values.reset();
            std::erase_if(*s.values, [&](const Json& v) { return !accepts(rest, v); });
        }
        unsigned types = 0;
        for (const Json& v : *s.values) types |= type_of(v);
        s.types &= types;
        return s.types != 0;
    }
    if ((s.types & type_number) && no_number(s)) s.types &= ~static_cast<unsigned>(type_number);
    if ((s.types & type_string) && s.least_length > s.most_length) s.types &= ~static_cast<unsigned>(type_string);
    if ((s.types & type_string) && s.patterns.size() > 1) {
        const auto& a = automaton(s.patterns, all_bits(s.patterns.size()));
        if (a.states[0].steps.empty() && (a.states[0].matches & all_bits(s.patterns.size())) != all_bits(s.patterns.size())) s.types &= ~static_cast<unsigned>(type_string);
    }
    if (s.types & type_array) {
        if (nesting_ < most_depth) {
            // An item that nothing fits ends the array before it.
            std::size_t longest = 0;
            for (const ItemsOf& source : s.items) longest = std::max(longest, source.prefix.size());
            for (std::uint64_t i = 0; i <= longest && i < s.most_items; ++i)
                if (empty(item_schemas(s, i))) s.most_items = std::min(s.most_items, i);
        }
        if (s.least_items > s.most_items) s.types &= ~static_cast<unsigned>(type_array);
    }
    if (s.types & type_object) {
        bool impossible = s.least_members > s.most_members || s.required.size() > s.most_members;
        for (const std::string& name : s.required) {
            if (impossible || nesting_ >= most_depth) break;
            Conjunction schemas;
            impossible = !member(s, name, schemas) || empty(schemas);
        }
        if (impossible) s.types &= ~static_cast<unsigned>(type_object);
    }
    return s.types != 0;
}

bool Expander::empty(const Conjunction& schemas) {
    if (schemas.empty() || nesting_ >= most_depth) return false;
    // While it is being found out it counts as not empty: it may refer to itself.
    const auto [it, added] = emptiness_.try_emplace(schemas, false);
    if (!added) return it->second;
    const Inner inner(*this);
    return emptiness_[schemas] = shapes(schemas).empty();
}

bool Expander::accepts(const Conjunction& schemas, const Json& value) {
    if (nesting_ > 2 * most_depth) return false;
    const Inner inner(*this);
    for (const int schema : schemas) {
        const std::vector<Shape> list = expand(schema);
        if (std::none_of(list.begin(), list.end(), [&](const Shape& s) { return accepts(s, value); })) return false;
    }
    return true;
}

bool Expander::accepts(const Shape& s, const Json& value) {
    spend(1);
    if (!(s.types & type_of(value))) return false;
    if (s.values && std::none_of(s.values->begin(), s.values->end(), [&](const Json& v) { return same_value(v, value); })) return false;
    if (value.is_number()) {
        const Decimal d = decimal_of(value);
        if (s.whole && !d.fraction.empty()) return false;
        if (s.least && (d < s.least->value || (s.least->exclusive && d == s.least->value))) return false;
        if (s.most && (d > s.most->value || (s.most->exclusive && d == s.most->value))) return false;
        return std::all_of(s.multiples.begin(), s.multiples.end(), [&](const Decimal& m) { return is_multiple(d, m); });
    }
    if (value.is_string()) {
        const std::string& text = value.get_ref<const std::string&>();
        const std::size_t length = code_points(text).size();
        if (length < s.least_length || length > s.most_length) return false;
        if (s.patterns.empty()) return true;
        const std::uint64_t needed = all_bits(s.patterns.size());
        const auto* end = automaton(s.patterns, needed).read(text);
        return end && (end->matches & needed) == needed;
    }
    if (value.is_array()) {
        if (value.size() < s.least_items || value.size() > s.most_items) return false;
        for (std::size_t i = 0; i < value.size(); ++i)
            if (!accepts(item_schemas(s, i), value[i])) return false;
        return true;
    }
    if (value.is_object()) {
        if (value.size() < s.least_members || value.size() > s.most_members) return false;
        for (const std::string& name : s.required)
            if (!value.contains(name)) return false;
        for (const auto& [key, v] : value.items()) {
            Conjunction schemas;
            if (!member(s, key, schemas) || !accepts(schemas, v)) return false;
        }
    }
    return true;
}

bool Expander::takes_others(const Shape& s) const {
    bool listed = false, said = false;
    for (const MembersOf& source : s.members) {
        listed |= !source.properties.empty() || !source.patterns.empty();
        said |= source.additional >= 0;
    }
    return open_ || said || !listed;
}

bool Expander::member(const Shape& s, const std::string& key, Conjunction& out) {
    out.clear();
    bool listed = false;
    for (const MembersOf& source : s.members) {
        bool known = false;
        for (const auto& [name, schema] : source.properties)
            if (name == key) out.push_back(schema), known = true;
        for (const auto& [pattern, schema] : source.patterns) {
            const auto* end = automaton({pattern}, 0).read(key);
            if (end && end->matches) out.push_back(schema), known = true;
        }
        listed |= known;
        if (!known && source.additional >= 0) out.push_back(source.additional);
    }
    if (!s.names.empty() && !accepts(s.names, Json(key))) return false;
    listed |= std::find(s.required.begin(), s.required.end(), key) != s.required.end();
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    for (const int schema : out)
        if (reader_.read(schema).never) return false;
    return listed || takes_others(s);
}

const PatternAutomaton& Expander::automaton(const std::vector<std::string>& patterns, std::uint64_t needed) {
    const auto key = std::make_pair(patterns, needed);
    if (const auto it = automata_.find(key); it != automata_.end()) return it->second;
    spend(10);
    try {
        std::vector<Pattern> parsed;
        for (const std::string& p : patterns) parsed.push_back(parse_pattern(p));
        return automata_.emplace(key, build_automaton(parsed, needed)).first->second;
    } catch (const Error& e) {
        fail(ErrorKind::unsupported, "the schema's keyword pattern (or format, patternProperties): {}", e.what());
    }
}

}  // namespace forge::grammar
