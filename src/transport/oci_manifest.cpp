// The manifest of a model in a registry, and what registries say about credentials.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "base/json.h"
#include "transport/oci_registry.h"

namespace forge {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kImageManifest = "application/vnd.oci.image.manifest.v1+json";

std::string text_of(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

OciDescriptor read_descriptor(const Json& json, const std::string& where) {
    if (!json.is_object()) fail("{}: a blob is described by an object", where);
    OciDescriptor blob;
    blob.media_type = text_of(json, "mediaType");
    blob.digest = parse_sha256(text_of(json, "digest"), where);
    const auto size = json.find("size");
    if (size == json.end() || !size->is_number_unsigned() || size->get<std::uint64_t>() > std::uint64_t{1} << 44)
        fail("{}: the size of {} is missing or no size", where, blob.digest.text());
    blob.size = size->get<std::uint64_t>();
    if (const auto notes = json.find("annotations"); notes != json.end() && notes->is_object())
        for (const auto& [name, value] : notes->items())
            if (value.is_string()) blob.annotations.emplace_back(name, value.get<std::string>());
    return blob;
}

Json written(const OciDescriptor& blob) {
    Json json{{"mediaType", blob.media_type}, {"digest", blob.digest.text()}, {"size", blob.size}};
    for (const auto& [name, value] : blob.annotations) json["annotations"][name] = value;
    return json;
}

}  // namespace

std::string OciDescriptor::annotation(std::string_view name) const {
    for (const auto& [key, value] : annotations)
        if (key == name) return value;
    return "";
}

std::string OciManifest::dump() const {
    Json json{{"schemaVersion", 2}, {"mediaType", kImageManifest}, {"artifactType", artifact_type}, {"config", written(config)}, {"layers", Json::array()}};
    for (const OciDescriptor& layer : layers) json["layers"].push_back(written(layer));
    return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

OciManifest OciManifest::parse(std::string_view text, const std::string& where) {
    const Json json = parse_json<Json>(text, where, false);
    if (!json.is_object()) fail("{} answers with something that is no manifest", where);
    if (json.contains("manifests")) fail(ErrorKind::unsupported, "{} is an index of several manifests; a model is one", where);
    OciManifest manifest;
    manifest.artifact_type = text_of(json, "artifactType");
    if (!json.contains("config") || !json.contains("layers") || !json["layers"].is_array() || json["layers"].size() > 100000)
        fail("{}: \"config\" and a list of \"layers\" should be here", where);
    manifest.config = read_descriptor(json["config"], where);
    for (const Json& layer : json["layers"]) manifest.layers.push_back(read_descriptor(layer, where));
    return manifest;
}

std::string AuthChallenge::parameter(std::string_view name) const {
    for (const auto& [key, value] : parameters)
        if (key == name) return value;
    return "";
}

std::vector<AuthChallenge> parse_challenges(std::string_view text) {
    std::vector<AuthChallenge> challenges;
    const auto skip = [&](std::string_view these) {
        while (!text.empty() && these.find(text.front()) != std::string_view::npos) text.remove_prefix(1);
    };
    const auto word = [&] {
        const std::size_t end = std::min(text.find_first_of(" \t,=\""), text.size());
        const std::string_view found = text.substr(0, end);
        text.remove_prefix(end);
        return found;
    };
    // A word followed by '=' is a parameter of the scheme before it; any other word is a scheme.
    while (skip(" \t,"), !text.empty() && challenges.size() < 20) {
        const std::string_view name = word();
        if (name.empty()) {  // a stray '=' or '"'
            text.remove_prefix(1);
            continue;
        }
        skip(" \t");
        if (!text.starts_with("=")) {
            challenges.push_back({ascii_lower(name), {}});
            continue;
        }
        text.remove_prefix(1);
        skip(" \t");
        std::string value;
        if (text.starts_with("\"")) {
            text.remove_prefix(1);
            while (!text.empty() && text.front() != '"') {
                if (text.front() == '\\' && text.size() > 1) text.remove_prefix(1);
                value += text.front();
                text.remove_prefix(1);
            }
            if (!text.empty()) text.remove_prefix(1);
        } else {
            value = std::string(word());
        }
        if (!challenges.empty() && challenges.back().parameters.size() < 20) challenges.back().parameters.emplace_back(ascii_lower(name), std::move(value));
    }
    return challenges;
}

}  // namespace forge
