// Reads JSON whose bulk (vocabularies, merges: hundreds of thousands of
// entries) goes to callbacks instead of into a tree.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace forge {

using Json = nlohmann::json;

struct JsonStreams {
    // Path of keys joined with '/' ("model/vocab") -> receives each member of
    // that object (key, value) or element of that array ("", value), which is then dropped.
    std::map<std::string, std::function<void(const std::string& key, const Json& value)>> at;
};

// Throws Error with `source`, line and column when the text is not JSON.
Json read_json(std::string_view text, std::string_view source, const JsonStreams& streams = {});

// Getters that name the place when a value has another type than wanted; a
// missing or null value gives `absent`.
std::string json_string(const Json& object, const char* key, std::string_view absent, std::string_view where);
bool json_bool(const Json& object, const char* key, bool absent, std::string_view where);
// The member, or a null value.
const Json& json_member(const Json& object, const char* key);

}  // namespace forge
