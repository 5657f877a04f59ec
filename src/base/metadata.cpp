#include "base/metadata.h"

#include <limits>

#include "base/error.h"

namespace forge {
namespace {

std::string_view type_name(const MetaValue& value) {
    constexpr std::string_view names[] = {"a boolean", "an integer", "an integer", "a number", "a string",
        "an array of booleans", "an array of integers", "an array of numbers", "an array of strings"};
    return names[value.index()];
}

[[noreturn]] void wrong_type(const Metadata& meta, std::string_view key, std::string_view wanted, const MetaValue& found) {
    fail("{}: metadata key '{}' should be {}, but it is {}", meta.source, key, wanted, type_name(found));
}

std::int64_t to_integer(const Metadata& meta, std::string_view key, const MetaValue& value) {
    if (auto* i = std::get_if<std::int64_t>(&value)) return *i;
    if (auto* u = std::get_if<std::uint64_t>(&value)) {
        if (*u > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
            fail("{}: metadata key '{}' is {}, too large for a count", meta.source, key, *u);
        return static_cast<std::int64_t>(*u);
    }
    wrong_type(meta, key, "an integer", value);
}

}  // namespace

const MetaValue* Metadata::find(std::string_view key) const {
    auto it = values_.find(key);
    return it == values_.end() ? nullptr : &it->second;
}

std::int64_t Metadata::integer(std::string_view key) const {
    const MetaValue* value = find(key);
    if (!value) fail("{}: metadata key '{}' is missing", source, key);
    return to_integer(*this, key, *value);
}

std::int64_t Metadata::integer(std::string_view key, std::int64_t absent) const {
    const MetaValue* value = find(key);
    return value ? to_integer(*this, key, *value) : absent;
}

double Metadata::number(std::string_view key, double absent) const {
    const MetaValue* value = find(key);
    if (!value) return absent;
    if (auto* d = std::get_if<double>(value)) return *d;
    if (auto* i = std::get_if<std::int64_t>(value)) return static_cast<double>(*i);
    if (auto* u = std::get_if<std::uint64_t>(value)) return static_cast<double>(*u);
    wrong_type(*this, key, "a number", *value);
}

bool Metadata::boolean(std::string_view key, bool absent) const {
    const MetaValue* value = find(key);
    if (!value) return absent;
    if (auto* b = std::get_if<bool>(value)) return *b;
    wrong_type(*this, key, "a boolean", *value);
}

const std::string& Metadata::string(std::string_view key) const {
    const MetaValue* value = find(key);
    if (!value) fail("{}: metadata key '{}' is missing", source, key);
    if (auto* s = std::get_if<std::string>(value)) return *s;
    wrong_type(*this, key, "a string", *value);
}

std::string Metadata::string(std::string_view key, std::string_view absent) const {
    return has(key) ? string(key) : std::string(absent);
}

std::vector<std::int64_t> Metadata::integers(std::string_view key, std::size_t count, std::int64_t absent) const {
    const MetaValue* value = find(key);
    if (!value) return std::vector<std::int64_t>(count, absent);
    if (auto* list = std::get_if<std::vector<std::int64_t>>(value)) {
        if (list->size() != count)
            fail("{}: metadata key '{}' should have {} elements, but it has {}", source, key, count, list->size());
        return *list;
    }
    return std::vector<std::int64_t>(count, to_integer(*this, key, *value));
}

template <typename T>
static const T* typed(const Metadata& meta, std::string_view key, std::string_view wanted) {
    const MetaValue* value = meta.find(key);
    if (!value) return nullptr;
    if (auto* list = std::get_if<T>(value)) return list;
    wrong_type(meta, key, wanted, *value);
}

const std::vector<std::string>* Metadata::strings(std::string_view key) const {
    return typed<std::vector<std::string>>(*this, key, "an array of strings");
}
const std::vector<std::int64_t>* Metadata::integer_array(std::string_view key) const {
    return typed<std::vector<std::int64_t>>(*this, key, "an array of integers");
}
const std::vector<double>* Metadata::number_array(std::string_view key) const {
    return typed<std::vector<double>>(*this, key, "an array of numbers");
}
const std::vector<bool>* Metadata::boolean_array(std::string_view key) const {
    return typed<std::vector<bool>>(*this, key, "an array of booleans");
}

}  // namespace forge
