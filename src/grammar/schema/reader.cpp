#include "reader.h"

#include <algorithm>

#include "base/error.h"
#include "../pattern.h"
#include "formats.h"

namespace forge::grammar {
namespace {

constexpr std::size_t most_schemas = 100'000;

std::string pointer_part(std::string text) {
    std::string out;
    for (const char c : text) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return out;
}

std::string percent_decoded(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '%' && i + 2 < text.size() && std::isxdigit(static_cast<unsigned char>(text[i + 1])) && std::isxdigit(static_cast<unsigned char>(text[i + 2]))) {
            out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

bool natural(const Json& v) { return v.is_number_unsigned() || (v.is_number_integer() && v.get<std::int64_t>() >= 0) || (v.is_number_float() && v.get<double>() >= 0 && v.get<double>() < 1e15 && v.get<double>() == static_cast<double>(static_cast<std::uint64_t>(v.get<double>()))); }

// Keywords that restrict what is valid in ways that cannot be compiled, and why.
struct Refused { const char* keyword; const char* why; };
constexpr Refused refused[] = {
    {"if", "conditions are not supported; write the cases as anyOf"},
    {"dependentSchemas", "dependencies between members are not supported; write the cases as anyOf"},
    {"dependentRequired", "dependencies between members are not supported; write the cases as anyOf"},
    {"dependencies", "dependencies between members are not supported; write the cases as anyOf"},
    {"contains", "what an array must contain somewhere is not supported"},
    {"unevaluatedItems", "this is not supported; use items or prefixItems"},
    {"unevaluatedProperties", "this is not supported; use additionalProperties"},
    {"additionalItems", "this belongs to an older draft; use prefixItems and items"},
    {"$dynamicRef", "dynamic references are not supported; use $ref"},
    {"$recursiveRef", "dynamic references are not supported; use $ref"},
    {"extends", "this belongs to an older draft; use allOf"},
    {"disallow", "this belongs to an older draft"},
    {"divisibleBy", "this belongs to an older draft; use multipleOf"},
};

}  // namespace

SchemaReader::SchemaReader(const Json& document) : document_(document) {
    if (document.is_object() && document.contains("$id") && document["$id"].is_string()) id_ = document["$id"].get<std::string>();
    index_anchors();
    number(document, "#");
}

void SchemaReader::refuse(int schema, std::string_view keyword, std::string_view why) const {
    fail(ErrorKind::unsupported, "the schema's keyword {} at {}: {}", keyword, where(schema).substr(0, 300), why);
}

// $anchor, and whether parts of the document have identifiers of their own.
void SchemaReader::index_anchors() {
    std::vector<const Json*> work{&document_};
    while (!work.empty()) {
        const Json* at = work.back();
        work.pop_back();
        if (at->is_object()) {
            if (const auto it = at->find("$anchor"); it != at->end() && it->is_string()) anchors_.emplace(it->get<std::string>(), at);
            if (const auto it = at->find("$id"); it != at->end() && it->is_string() && at != &document_) inner_ids_ = true;
        }
        if (!at->is_structured()) continue;
        for (const auto& [key, v] : at->items())   // values are no schemas
            if (!at->is_object() || (key != "enum" && key != "const" && key != "default" && key != "examples")) work.push_back(&v);
    }
}

int SchemaReader::number(const Json& schema, const std::string& where) {
    const auto [it, added] = numbers_.try_emplace(&schema, static_cast<int>(schemas_.size()));
    if (added) {
        if (schemas_.size() >= most_schemas) fail(ErrorKind::unsupported, "the schema has more than {} parts, which is too large", most_schemas);
        schemas_.push_back(&schema);
        places_.push_back(where.size() > 1000 ? where.substr(0, 1000) : where);
    }
    return it->second;
}

int SchemaReader::child(int schema, const char* keyword, const Json& s) { return number(s, where(schema) + "/" + keyword); }

std::vector<int> SchemaReader::children(int schema, const char* keyword, const Json& list) {
    if (!list.is_array() || list.empty()) refuse(schema, keyword, "it should be a list of schemas that is not empty");
    std::vector<int> out;
    for (std::size_t i = 0; i < list.size(); ++i) out.push_back(number(list[i], fmt::format("{}/{}/{}", where(schema), keyword, i)));
    return out;
}

int SchemaReader::resolve(int schema, const std::string& reference) {
    std::string rest = reference;
    if (!rest.starts_with('#')) {
        if (id_.empty() || !(rest == id_ || rest.starts_with(id_ + "#"))) refuse(schema, "$ref", fmt::format("{:?} is not in this schema; only references to its own parts (#/$defs/...) are followed", reference.substr(0, 200)));
        rest.erase(0, id_.size());
        if (rest.empty()) rest = "#";
    }
    if (inner_ids_) refuse(schema, "$ref", "references are not followed in a schema whose parts have an $id of their own");
    const std::string fragment = percent_decoded(rest.substr(1));
    if (fragment.empty()) return root();
    if (fragment[0] != '/') {
        const auto it = anchors_.find(fragment);
        if (it == anchors_.end()) refuse(schema, "$ref", fmt::format("there is no $anchor {:?}", fragment.substr(0, 200)));
        return number(*it->second, "#" + fragment);
    }
    const Json* at = &document_;
    for (std::size_t from = 1; from <= fragment.size();) {
        const std::size_t to = std::min(fragment.find('/', from), fragment.size());
        std::string part;
        for (std::size_t i = from; i < to; ++i) {
            if (fragment[i] == '~' && i + 1 < to) part += fragment[++i] == '1' ? '/' : '~';
            else part += fragment[i];
        }
        const Json* next = nullptr;
        if (at->is_object()) {
            const auto it = at->find(part);
            if (it != at->end()) next = &*it;
        } else if (at->is_array() && !part.empty() && part.size() < 7 && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; })) {
            const auto index = static_cast<std::size_t>(std::stoul(part));
            if (index < at->size()) next = &(*at)[index];
        }
        if (!next) refuse(schema, "$ref", fmt::format("{:?} leads nowhere", reference.substr(0, 200)));
        at = next;
        from = to + 1;
    }
    return number(*at, rest);
}

std::uint64_t SchemaReader::count(int schema, const Json& s, const char* keyword, std::uint64_t otherwise) const {
    const auto it = s.find(keyword);
    if (it == s.end()) return otherwise;
    if (!natural(*it)) refuse(schema, keyword, "it should be a whole number from 0 on");
    return it->is_number_float() ? static_cast<std::uint64_t>(it->get<double>()) : it->get<std::uint64_t>();
}

void SchemaReader::check_pattern(int schema, const char* keyword, const std::string& pattern) const {
    try {
        parse_pattern(pattern);
    } catch (const Error& e) {
        refuse(schema, keyword, e.what());
    }
}

void SchemaReader::read_types(int schema, const Json& s, Keywords& out) {
    if (const auto it = s.find("type"); it != s.end()) {
        unsigned types = 0;
        bool number = false, integer = false;
        const auto add = [&](const Json& name) {
            const std::string word = name.is_string() ? name.get<std::string>() : "";
            if (word == "null") types |= type_null;
            else if (word == "boolean") types |= type_boolean;
            else if (word == "number") types |= type_number, number = true;
            else if (word == "integer") types |= type_number, integer = true;
            else if (word == "string") types |= type_string;
            else if (word == "array") types |= type_array;
            else if (word == "object") types |= type_object;
            else refuse(schema, "type", fmt::format("{} is no type", name.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 100)));
        };
        if (it->is_array()) {
            for (const Json& name : *it) add(name);
        } else {
            add(*it);
        }
        out.own.types = types;
        out.own.whole = integer && !number;
    }
    if (const auto it = s.find("enum"); it != s.end()) {
        if (!it->is_array()) refuse(schema, "enum", "it should be a list of values");
        out.own.values.emplace(it->begin(), it->end());
    }
    if (const auto it = s.find("const"); it != s.end()) {
        Shape one;
        one.values.emplace(1, *it);
        out.own = both(out.own, one);
    }
}

void SchemaReader::read_numbers(int schema, const Json& s, Shape& out) {
    const auto bound = [&](const char* keyword, bool exclusive, bool lower) {
        const auto it = s.find(keyword);
        if (it == s.end()) return;
        if (!it->is_number()) refuse(schema, keyword, "it should be a number");
        Shape one;
        (lower ? one.least : one.most) = Bound{decimal_of(*it), exclusive};
        out = both(out, one);
    };
    bound("minimum", false, true);
    bound("exclusiveMinimum", true, true);
    bound("maximum", false, false);
    bound("exclusiveMaximum", true, false);
    if (const auto it = s.find("multipleOf"); it != s.end()) {
        if (!it->is_number() || it->get<double>() <= 0) refuse(schema, "multipleOf", "it should be a number above 0");
        out.multiples.push_back(decimal_of(*it));
    }
}

void SchemaReader::read_strings(int schema, const Json& s, Shape& out) {
    out.least_length = count(schema, s, "minLength", 0);
    out.most_length = count(schema, s, "maxLength", no_limit);
    if (const auto it = s.find("pattern"); it != s.end()) {
        if (!it->is_string()) refuse(schema, "pattern", "it should be a text");
        check_pattern(schema, "pattern", it->get<std::string>());
        out.patterns.push_back(it->get<std::string>());
    }
    if (const auto it = s.find("format"); it != s.end() && it->is_string()) {
        const std::string name = it->get<std::string>();
        const FormatRule rule = format_rule(name);
        if (rule.kind == FormatRule::refused) refuse(schema, "format", fmt::format("{} is not supported", name));
        if (rule.kind == FormatRule::pattern)
            for (const auto& pattern : rule.patterns) out.patterns.push_back(pattern);
    }
}

void SchemaReader::read_arrays(int schema, const Json& s, Shape& out) {
    out.least_items = count(schema, s, "minItems", 0);
    out.most_items = count(schema, s, "maxItems", no_limit);
    if (const auto it = s.find("uniqueItems"); it != s.end()) {
        if (!it->is_boolean()) refuse(schema, "uniqueItems", "it should be true or false");
        if (it->get<bool>() && out.most_items > 1) refuse(schema, "uniqueItems", "items that must differ are not supported");
    }
    ItemsOf items;
    if (const auto it = s.find("prefixItems"); it != s.end()) items.prefix = children(schema, "prefixItems", *it);
    if (const auto it = s.find("items"); it != s.end()) {
        if (it->is_array()) refuse(schema, "items", "a list belongs to an older draft; use prefixItems");
        items.items = child(schema, "items", *it);
    }
    if (!items.prefix.empty() || items.items >= 0) out.items.push_back(std::move(items));
}

void SchemaReader::read_objects(int schema, const Json& s, Shape& out) {
    out.least_members = count(schema, s, "minProperties", 0);
    out.most_members = count(schema, s, "maxProperties", no_limit);
    MembersOf members;
    const auto named = [&](const char* keyword, std::vector<std::pair<std::string, int>>& list) {
        const auto it = s.find(keyword);
        if (it == s.end()) return;
        if (!it->is_object()) refuse(schema, keyword, "it should be an object of schemas");
        for (const auto& [name, value] : it->items()) list.emplace_back(name, number(value, where(schema) + "/" + keyword + "/" + pointer_part(name)));
    };
    named("properties", members.properties);
    named("patternProperties", members.patterns);
    for (const auto& [pattern, value] : members.patterns) check_pattern(schema, "patternProperties", pattern);
    if (const auto it = s.find("additionalProperties"); it != s.end()) members.additional = child(schema, "additionalProperties", *it);
    if (!members.properties.empty() || !members.patterns.empty() || members.additional >= 0) out.members.push_back(std::move(members));
    if (const auto it = s.find("required"); it != s.end()) {
        if (!it->is_array()) refuse(schema, "required", "it should be a list of names");
        for (const Json& name : *it) {
            if (!name.is_string()) refuse(schema, "required", "it should be a list of names");
            if (std::find(out.required.begin(), out.required.end(), name.get<std::string>()) == out.required.end()) out.required.push_back(name.get<std::string>());
        }
    }
    if (const auto it = s.find("propertyNames"); it != s.end()) out.names.push_back(child(schema, "propertyNames", *it));
}

void SchemaReader::read_combinations(int schema, const Json& s, Keywords& out) {
    if (const auto it = s.find("$ref"); it != s.end()) {
        if (!it->is_string()) refuse(schema, "$ref", "it should be a text");
        out.reference = resolve(schema, it->get<std::string>());
    }
    if (const auto it = s.find("allOf"); it != s.end()) out.all_of = children(schema, "allOf", *it);
    if (const auto it = s.find("anyOf"); it != s.end()) out.any_of = children(schema, "anyOf", *it), out.has_any = true;
    if (const auto it = s.find("oneOf"); it != s.end()) out.one_of = children(schema, "oneOf", *it), out.has_one = true;
    if (const auto it = s.find("not"); it != s.end()) {
        // Only where what is left can be told by the type alone.
        const Json& inner = *it;
        bool known = false;
        if (inner.is_boolean()) {
            known = true;
            if (inner.get<bool>()) out.never = true;
        } else if (inner.is_object()) {
            const bool only_type = std::all_of(inner.items().begin(), inner.items().end(), [](const auto& item) { return item.key() == "type" || item.key() == "$comment" || item.key() == "description" || item.key() == "title"; });
            if (only_type) {
                Keywords types;
                read_types(schema, inner, types);
                if (!types.own.whole) {
                    known = true;
                    out.excluded = types.own.types;
                }
            }
        }
        if (!known) refuse(schema, "not", "what must not be is only supported for types");
    }
}

void SchemaReader::check_form(int schema, const Json& s) const {
    for (const Refused& r : refused) {
        const auto it = s.find(r.keyword);
        if (it == s.end()) continue;
        const std::string_view word = r.keyword;
        if (word == "if" && !s.contains("then") && !s.contains("else")) continue;
        if (word.starts_with("unevaluated") && it->is_boolean() && it->get<bool>()) continue;
        if (word.starts_with("dependent") && it->is_object() && it->empty()) continue;
        refuse(schema, r.keyword, r.why);
    }
}

const Keywords& SchemaReader::read(int schema) {
    if (const auto it = read_.find(schema); it != read_.end()) return it->second;
    const Json& s = *schemas_[static_cast<std::size_t>(schema)];
    Keywords out;
    if (s.is_boolean()) {
        out.never = !s.get<bool>();
    } else if (!s.is_object()) {
        fail("the schema at {} should be an object, true or false", where(schema));
    } else {
        check_form(schema, s);
        read_types(schema, s, out);
        read_numbers(schema, s, out.own);
        read_strings(schema, s, out.own);
        read_arrays(schema, s, out.own);
        read_objects(schema, s, out.own);
        read_combinations(schema, s, out);
        out.own.types &= ~out.excluded;
    }
    return read_.emplace(schema, std::move(out)).first->second;
}

}  // namespace forge::grammar
