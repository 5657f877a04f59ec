#include "tune/record.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/paths.h"

namespace forge::tune {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Record& r) {
    Json choices = Json::array();
    for (const Choice& c : r.choices)
        choices.push_back({{"site", c.site}, {"rows", c.rows}, {"variant", c.variant}, {"seconds", c.seconds}, {"default", c.standard}});
    return {{"device", r.key.device}, {"driver", r.key.driver}, {"version", r.key.version}, {"shape", r.key.shape}, {"dtype", r.key.dtype},
            {"full", r.full}, {"sentinel", {{"site", r.sentinel.site}, {"rows", r.sentinel.rows}, {"seconds", r.sentinel.seconds}}}, {"choices", choices}};
}

Record record_of(const Json& j) {
    Record r;
    r.key = {j.at("device").get<std::string>(), j.at("driver").get<std::string>(), j.at("version").get<std::string>(), j.at("shape").get<std::string>(), j.at("dtype").get<std::string>()};
    r.full = j.at("full").get<bool>();
    const Json& s = j.at("sentinel");
    r.sentinel = {s.at("site").get<std::string>(), s.at("rows").get<int>(), s.at("seconds").get<double>()};
    for (const Json& c : j.at("choices"))
        r.choices.push_back({c.at("site").get<std::string>(), c.at("rows").get<int>(), c.at("variant").get<std::string>(), c.at("seconds").get<double>(), c.at("default").get<bool>()});
    return r;
}

}  // namespace

std::filesystem::path record_path(const std::filesystem::path& folder, const RecordKey& key) {
    return folder / fmt::format("{:016x}.json", fnv1a(key.device + "\n" + key.shape + "\n" + key.dtype));
}

std::optional<Record> load_record(const std::filesystem::path& folder, const RecordKey& key, std::string* why) {
    const std::filesystem::path path = record_path(folder, key);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
        *why = "nothing was tuned yet for this model's shape on this device";
        return std::nullopt;
    }
    Record record;
    try {
        record = record_of(parse_json<Json>(read_file(path), path.string(), true));
    } catch (const std::exception& e) {
        log_warn("{} cannot be used and is made anew: {}", path.string(), e.what());
        *why = "its record was damaged";
        return std::nullopt;
    }
    const std::pair<const char*, std::string RecordKey::*> fields[] = {
        {"driver", &RecordKey::driver}, {"version of Forge", &RecordKey::version}, {"device", &RecordKey::device}, {"shape", &RecordKey::shape}, {"type", &RecordKey::dtype}};
    for (const auto& [name, field] : fields)
        if (record.key.*field != key.*field) {
            *why = fmt::format("the {} was '{}' and is '{}'", name, record.key.*field, key.*field);
            return std::nullopt;
        }
    return record;
}

void save_record(const std::filesystem::path& folder, const Record& record) {
    const std::filesystem::path path = record_path(folder, record.key);
    try {
        std::filesystem::create_directories(folder);
        write_file_atomically(path, json_of(record).dump(1) + "\n");
    } catch (const std::exception& e) {
        log_warn("what was tuned is not kept: {}", e.what());
    }
}

}  // namespace forge::tune
