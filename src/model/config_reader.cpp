#include "config_reader.h"

#include <cmath>

#include "base/error.h"

namespace forge {
namespace {

// The value as JSON text for a message, shortened and safe for any bytes.
std::string shown(const ConfigReader::Json& value) {
    std::string out = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (out.size() > 80) {
        std::size_t cut = 77;
        while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xC0) == 0x80) --cut;  // keep UTF-8 whole
        out = out.substr(0, cut) + "...";
    }
    return out;
}

}  // namespace

ConfigReader::ConfigReader(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {
    if (!object.is_object()) fail("{} should be a JSON object, but it is {}", where_, shown(object));
}

bool ConfigReader::stated(std::string_view key) const { return object_->find(std::string(key)) != object_->end(); }

const ConfigReader::Json* ConfigReader::find(std::string_view key) const {
    const auto it = object_->find(std::string(key));
    return it == object_->end() || it->is_null() ? nullptr : &*it;
}

std::optional<double> ConfigReader::number(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_number() || !std::isfinite(value->get<double>())) wrong(key, "a number");
    return value->get<double>();
}

std::optional<bool> ConfigReader::boolean(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) wrong(key, "true or false");
    return value->get<bool>();
}

std::optional<std::string> ConfigReader::text(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_string()) wrong(key, "a string");
    return value->get<std::string>();
}

std::optional<int> ConfigReader::count(std::string_view key, Range range) const {
    const std::optional<double> value = number(key);
    if (!value) return std::nullopt;
    if (*value != std::floor(*value) || *value < static_cast<double>(range.low) || *value > static_cast<double>(range.high))
        wrong(key, fmt::format("a whole number from {} to {}", range.low, range.high));
    return static_cast<int>(*value);
}

std::optional<ConfigReader> ConfigReader::object(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_object()) wrong(key, "an object");
    return ConfigReader(*value, fmt::format("{} {}", where_, key));
}

void ConfigReader::missing(std::string_view key) const { fail("{}: '{}' is missing", where_, key); }

void ConfigReader::refuse(std::string_view key, std::string_view why) const {
    const Json* value = find(key);
    fail(ErrorKind::unsupported, "{}: '{}' is {}: {}", where_, key, value ? shown(*value) : "absent", why);
}

void ConfigReader::wrong(std::string_view key, std::string_view wanted) const {
    const Json* value = find(key);
    fail("{}: '{}' should be {}, but it is {}", where_, key, wanted, value ? shown(*value) : "absent");
}

}  // namespace forge
