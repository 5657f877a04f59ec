#include "fields.h"

#include <cmath>
#include <mutex>

#include "base/log.h"

namespace forge::server {
namespace {

constexpr int max_depth = 128;
constexpr std::size_t max_values = 4'000'000;   // each takes memory of its own, many times its text

// Said once for each name, however many requests carry it.
void note_ignored(const std::string& name) {
    static std::mutex mutex;
    static std::set<std::string> said;
    std::lock_guard lock(mutex);
    if (said.size() < 1000 && said.insert(name).second) log_info("the field {} of requests changes nothing here and is ignored", name);
}

}  // namespace

std::string describe(const Json& value) {
    const std::string text = value.is_structured() ? std::string() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    const char* kind = value.is_null() ? "null" : value.is_boolean() ? "a boolean" : value.is_number_integer() ? "an integer"
        : value.is_number() ? "a number" : value.is_string() ? "a text" : value.is_array() ? "a list" : "an object";
    return text.empty() || text.size() > 60 || value.is_null() ? kind : fmt::format("{} ({})", kind, text);
}

Json parse_object(std::string_view body) {
    if (body.empty()) throw ApiError(400, "", "the body is empty; a JSON object is wanted");
    // The parser takes a zero byte for the end, and would not look at what follows.
    if (body.find('\0') != std::string_view::npos) throw ApiError(400, "", "the body is not valid JSON: it holds a zero byte");
    std::size_t values = 0;
    const auto bounded = [&](int depth, Json::parse_event_t event, Json&) {
        const bool ends = event == Json::parse_event_t::object_end || event == Json::parse_event_t::array_end || event == Json::parse_event_t::key;
        if (!ends && ++values > max_values) throw ApiError(400, "", fmt::format("the JSON has more than {} values", max_values));
        if (depth > max_depth && (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start))
            throw ApiError(400, "", fmt::format("the JSON is nested more than {} deep", max_depth));
        return true;
    };
    try {
        Json json = Json::parse(body, bounded);
        if (!json.is_object()) throw ApiError(400, "", fmt::format("the body should be a JSON object, found {}", describe(json)));
        return json;
    } catch (const Json::exception& error) {
        std::string message = error.what();
        if (const std::size_t end = message.find("] "); end != std::string::npos) message = message.substr(end + 2);
        for (char& c : message)
            if (static_cast<unsigned char>(c) >= 0x80) c = '?';   // it may quote bytes that are no UTF-8
        throw ApiError(400, "", fmt::format("the body is not valid JSON: {}", message));
    }
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) bad_field(path_, "{} should be an object, found {}", path_, describe(object));
}

void Fields::wrong(const char* name, const char* wanted, const Json& found) const {
    bad_field(name_of(name), "{} should be {}, found {}", name_of(name), wanted, describe(found));
}

const Json* Fields::find(const char* name) {
    known_.emplace(name);
    const auto it = object_.find(name);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<std::string> Fields::text(const char* name) {
    const Json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_string()) wrong(name, "a text", *value);
    return value->get<std::string>();
}

std::optional<bool> Fields::flag(const char* name) {
    const Json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) wrong(name, "true or false", *value);
    return value->get<bool>();
}

std::optional<double> Fields::number(const char* name, double least, double most) {
    const Json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_number()) wrong(name, "a number", *value);
    const double x = value->get<double>();
    if (!(x >= least && x <= most)) bad_field(name_of(name), "{} should be from {} to {}, found {}", name_of(name), least, most, x);
    return x;
}

std::optional<std::int64_t> Fields::whole(const char* name, std::int64_t least, std::int64_t most) {
    const Json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_number()) wrong(name, "an integer", *value);
    const double x = value->get<double>();
    if (value->is_number_float() && (x != std::floor(x) || std::abs(x) > 9e15)) wrong(name, "an integer", *value);
    if (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
        if (most != INT64_MAX) bad_field(name_of(name), "{} should be from {} to {}, found {}", name_of(name), least, most, value->dump());
        return static_cast<std::int64_t>(value->get<std::uint64_t>());   // seeds use all 64 bits
    }
    const std::int64_t n = value->is_number_float() ? static_cast<std::int64_t>(x) : value->get<std::int64_t>();
    if (n < least || n > most) bad_field(name_of(name), "{} should be from {} to {}, found {}", name_of(name), least, most, n);
    return n;
}

std::vector<std::string> Fields::texts(const char* name, std::size_t most) {
    const Json* value = find(name);
    std::vector<std::string> out;
    if (!value) return out;
    if (value->is_string()) {
        out.push_back(value->get<std::string>());
    } else if (value->is_array()) {
        for (std::size_t i = 0; i < value->size(); ++i) {
            if (!(*value)[i].is_string())
                bad_field(fmt::format("{}[{}]", name_of(name), i), "{}[{}] should be a text, found {}", name_of(name), i, describe((*value)[i]));
            out.push_back((*value)[i].get<std::string>());
        }
    } else {
        wrong(name, "a text or a list of texts", *value);
    }
    if (out.size() > most) bad_field(name_of(name), "{} should have at most {} texts, found {}", name_of(name), most, out.size());
    return out;
}

const Json* Fields::object(const char* name) {
    const Json* value = find(name);
    if (value && !value->is_object()) wrong(name, "an object", *value);
    return value;
}

const Json* Fields::list(const char* name) {
    const Json* value = find(name);
    if (value && !value->is_array()) wrong(name, "a list", *value);
    return value;
}

void Fields::ignore(std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (find(name)) note_ignored(name_of(name));
}

void Fields::refuse(const char* name, std::string_view why, const Json& harmless) {
    const Json* value = find(name);
    if (!value || *value == harmless || (value->is_structured() && value->empty())) return;
    bad_field(name_of(name), "{} is not supported: {}", name_of(name), why);
}

void Fields::finish() const {
    for (const auto& [name, value] : object_.items())
        if (!known_.count(name) && !value.is_null())
            bad_field(name_of(name), "the field {} is not known here, so it is not clear what it should change; leave it out", name_of(name.substr(0, 80)));
}

}  // namespace forge::server
