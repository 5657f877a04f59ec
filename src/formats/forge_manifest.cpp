#include "formats/forge_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "text.h"

namespace forge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 7> roles{"shard", "metadata", "tokenizer", "tensors", "file", "licence", "proof"};
constexpr std::size_t most_blobs = 100'000;

struct Place {
    const std::string& source;
    std::string where;
    template <typename... Args>
    [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
        fail("{}: {}{}", source, where, fmt::format(format, std::forward<Args>(args)...));
    }
};

const Json& member(const Json& object, const char* key, const Place& place) {
    const auto found = object.find(key);
    if (found == object.end()) place.wrong("'{}' is missing", key);
    return *found;
}

std::string text_at(const Json& object, const char* key, const Place& place) {
    const Json& value = member(object, key, place);
    if (!value.is_string()) place.wrong("'{}' should be a text, but it is {}", key, value.type_name());
    return value.get<std::string>();
}

std::string one_of(const Json& object, const char* key, std::initializer_list<std::string_view> words, const Place& place) {
    std::string value = text_at(object, key, place);
    if (std::find(words.begin(), words.end(), value) == words.end())
        place.wrong("'{}' is '{}', which this version does not know", key, printable(value));
    return value;
}

Json object_at(const Json& object, const char* key, const Place& place) {
    const Json& value = member(object, key, place);
    if (!value.is_object()) place.wrong("'{}' should be an object, but it is {}", key, value.type_name());
    return value;
}

// Hashes of 64 bits are written as sixteen digits: JSON's numbers are not exact beyond 2^53 everywhere.
std::uint64_t hash_at(const Json& object, const char* key, const Place& place) {
    const std::string text = text_at(object, key, place);
    std::uint64_t value = 0;
    bool good = text.size() == 16;
    for (const char c : text) {
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        good = good && digit >= 0;
        value = value * 16 + static_cast<std::uint64_t>(digit & 15);
    }
    if (!good) place.wrong("'{}' should be 16 hexadecimal digits, but it is '{}'", key, printable(text));
    return value;
}

// A name that is also a file's: no folders, nothing hidden.
bool is_file_name(std::string_view name) {
    if (name.empty() || name.size() > 255 || name.front() == '.' || name.front() == '/' || name.back() == '/') return false;
    for (const char c : name)
        if (static_cast<unsigned char>(c) < 32 || c == '\\') return false;
    return name.find("//") == std::string_view::npos && name.find("/.") == std::string_view::npos;
}

ManifestBlob read_blob(const Json& json, const Place& place) {
    if (!json.is_object()) place.wrong("it should be an object, but it is {}", json.type_name());
    ManifestBlob blob;
    blob.role = text_at(json, "role", place);
    if (std::find(roles.begin(), roles.end(), blob.role) == roles.end())
        place.wrong("the role '{}' is not known; the model may need a newer version of Forge", printable(blob.role));
    if (json.contains("name")) blob.name = text_at(json, "name", place);
    if (blob.role == "file" && !is_file_name(blob.name)) place.wrong("'{}' is no name for a file", printable(blob.name));
    const std::string digest = text_at(json, "digest", place);
    const auto parsed = digest.starts_with("blake3:") ? Digest::parse(digest) : std::nullopt;
    if (!parsed) place.wrong("the digest '{}' should be blake3: and 64 hexadecimal digits", printable(digest));
    blob.digest = *parsed;
    const Json& bytes = member(json, "bytes", place);
    if (!bytes.is_number_unsigned() || bytes.get<std::uint64_t>() > (std::uint64_t{1} << 56)) place.wrong("'bytes' should be a size, but it is {}", bytes.dump(-1, ' ', true, Json::error_handler_t::replace));
    blob.bytes = bytes.get<std::uint64_t>();
    if (blob.role != "shard") return blob;
    blob.index_hash = hash_at(json, "index_xxh3", place);
    const Json& tensors = member(json, "tensors", place);
    if (!tensors.is_array()) place.wrong("'tensors' should be a list, but it is {}", tensors.type_name());
    for (const Json& name : tensors) {
        if (!name.is_string()) place.wrong("'tensors' should hold names");
        blob.tensors.push_back(name.get<std::string>());
    }
    return blob;
}

}  // namespace

Manifest Manifest::parse(std::string_view text, const std::string& source) {
    const Place place{source, ""};
    const Json json = parse_json<Json>(text, source, false);
    if (json.is_discarded()) place.wrong("it is no valid JSON, so it is no manifest of a .forge model");
    if (!json.is_object()) place.wrong("it should hold a JSON object, but it holds {}", json.type_name());
    if (const auto format = json.find("format"); format == json.end() || *format != std::string(kManifestFormat))
        place.wrong("it is no manifest of a .forge model ('format' should be '{}')", kManifestFormat);
    const Json& version = member(json, "version", place);
    if (!version.is_number_integer() || version != kForgeVersion)
        fail(ErrorKind::unsupported, "{}: the manifest has version {}, and this version of Forge reads {}; use a matching Forge or pack the model again",
             source, version.dump(-1, ' ', true, Json::error_handler_t::replace), kForgeVersion);
    Manifest out;
    out.source = source;
    out.origin = one_of(json, "origin", {"gguf", "huggingface", "mlx"}, place);
    out.layout = one_of(json, "layout", {"rows", "tiled16"}, place);
    out.model = object_at(json, "model", place);
    out.provenance = object_at(json, "provenance", place);
    const Json& blobs = member(json, "blobs", place);
    if (!blobs.is_array() || blobs.empty() || blobs.size() > most_blobs) place.wrong("'blobs' should be a list of 1 to {} blobs", most_blobs);
    for (std::size_t i = 0; i < blobs.size(); ++i) out.blobs.push_back(read_blob(blobs[i], {source, fmt::format("blob {}: ", i)}));
    return out;
}

std::string Manifest::dump() const {
    Json json;
    json["format"] = kManifestFormat;
    json["version"] = kForgeVersion;
    json["origin"] = origin;
    json["layout"] = layout;
    json["model"] = model;
    json["provenance"] = provenance;
    Json list = Json::array();
    for (const ManifestBlob& blob : blobs) {
        Json entry;
        entry["role"] = blob.role;
        if (!blob.name.empty()) entry["name"] = blob.name;
        entry["digest"] = blob.digest.text();
        entry["bytes"] = blob.bytes;
        if (blob.role == "shard") {
            entry["index_xxh3"] = fmt::format("{:016x}", blob.index_hash);
            entry["tensors"] = blob.tensors;
        }
        list.push_back(std::move(entry));
    }
    json["blobs"] = std::move(list);
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

const ManifestBlob* Manifest::find(std::string_view role, std::string_view name) const {
    for (const ManifestBlob& blob : blobs)
        if (blob.role == role && (name.empty() || blob.name == name)) return &blob;
    return nullptr;
}

std::uint64_t Manifest::bytes() const {
    std::uint64_t sum = 0;
    for (const ManifestBlob& blob : blobs) sum += blob.bytes;
    return sum;
}

std::filesystem::path blob_path_in(const std::filesystem::path& root, const Digest& digest) {
    const std::string hex = digest.hex();
    return root / hex.substr(0, 2) / hex;
}

}  // namespace forge
