#include "typed_value.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace forge::tools {
namespace {

bool equal_folded(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return std::tolower(static_cast<unsigned char>(x)) == y; });
}

// Follows $ref inside the schema a few steps.
const Json* resolved(const Json* schema, const Json& root) {
    for (int i = 0; schema && schema->is_object() && schema->contains("$ref") && (*schema)["$ref"].is_string() && i < 16; ++i) {
        const std::string& ref = (*schema)["$ref"].get_ref<const std::string&>();
        if (!ref.starts_with("#")) return nullptr;
        try {
            schema = &root.at(Json::json_pointer(ref.substr(1)));
        } catch (const Json::exception&) {
            return nullptr;
        }
    }
    return schema;
}

void collect_types(const Json* schema, const Json& root, std::set<std::string>& types, int depth = 0) {
    schema = resolved(schema, root);
    if (!schema || !schema->is_object() || depth > 8) return;
    if (const auto type = schema->find("type"); type != schema->end()) {
        if (type->is_string()) types.insert(type->get<std::string>());
        else if (type->is_array())
            for (const Json& t : *type)
                if (t.is_string()) types.insert(t.get<std::string>());
    }
    const auto add_value = [&](const Json& v) {
        types.insert(v.is_string() ? "string" : v.is_boolean() ? "boolean" : v.is_number_integer() ? "integer" : v.is_number() ? "number" : v.is_null() ? "null" : v.is_array() ? "array" : "object");
    };
    if (const auto values = schema->find("enum"); values != schema->end() && values->is_array() && !schema->contains("type"))
        for (const Json& v : *values) add_value(v);
    if (const auto value = schema->find("const"); value != schema->end() && !schema->contains("type")) add_value(*value);
    for (const char* key : {"anyOf", "oneOf", "allOf"})
        if (const auto list = schema->find(key); list != schema->end() && list->is_array())
            for (const Json& s : *list) collect_types(&s, root, types, depth + 1);
    if (!schema->contains("type") && schema->contains("properties")) types.insert("object");
    if (schema->value("nullable", Json(false)) == true) types.insert("null");
}

std::string without_outer_newlines(std::string_view raw) {
    if (raw.starts_with("\r\n")) raw.remove_prefix(2);
    else if (raw.starts_with("\n")) raw.remove_prefix(1);
    if (raw.ends_with("\r\n")) raw.remove_suffix(2);
    else if (raw.ends_with("\n")) raw.remove_suffix(1);
    return std::string(raw);
}

std::optional<Json> number_of(std::string_view text, bool integer) {
    const Json number = Json::parse(text, nullptr, false);
    if (!number.is_number()) return std::nullopt;
    if (number.is_number_integer()) return number;
    const double x = number.get<double>();
    if (x == std::floor(x) && std::abs(x) < 9e15) return Json(static_cast<std::int64_t>(x));
    if (integer) return std::nullopt;
    return number;
}

std::optional<Json> structure(std::string_view text, bool array) {
    Json value = Json::parse(text, nullptr, false);
    if (value.is_string()) value = Json::parse(value.get<std::string>(), nullptr, false);   // JSON in a JSON string
    if (value.is_discarded()) {
        std::size_t used = 0;
        const auto lenient = lenient_value(text, used);
        if (lenient && skip_white(text, used) == text.size()) value = *lenient;
    }
    if (array ? value.is_array() : value.is_object()) return value;
    return std::nullopt;
}

}  // namespace

Json typed_value(std::string_view raw, const Json& parameters, const std::string& key) {
    const std::string text = without_outer_newlines(raw);
    std::set<std::string> types;
    if (parameters.is_object() && parameters.contains("properties") && parameters["properties"].is_object() && parameters["properties"].contains(key))
        collect_types(&parameters["properties"][key], parameters, types);
    if (types.empty() || (types.size() == 1 && types.count("string"))) return text;
    const std::string_view word = trimmed(text);
    const bool nullable = types.count("null") > 0;
    if ((nullable || !types.count("string")) && (equal_folded(word, "null") || equal_folded(word, "none"))) return nullptr;
    if (types.count("boolean")) {
        if (equal_folded(word, "true")) return true;
        if (equal_folded(word, "false")) return false;
    }
    if (types.count("integer"))
        if (const auto n = number_of(word, true)) return *n;
    if (types.count("number"))
        if (const auto n = number_of(word, false)) return *n;
    if (types.count("array"))
        if (const auto v = structure(word, true)) return *v;
    if (types.count("object"))
        if (const auto v = structure(word, false)) return *v;
    return text;
}

}  // namespace forge::tools
