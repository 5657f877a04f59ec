#include "reference.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "input.h"

namespace forge::cli {
namespace {

using Json = nlohmann::ordered_json;

// Where we are, for messages.
struct Place {
    const std::string& path;
    int line;
    template <typename... Args>
    [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
        fail("{} line {}: {}", path, line, fmt::format(format, std::forward<Args>(args)...));
    }
};

const Json& member(const Json& object, const char* key, const Place& place) {
    const auto found = object.find(key);
    if (found == object.end()) place.wrong("\"{}\" is missing", key);
    return *found;
}

std::int32_t id_of(const Json& value, const char* key, const Place& place) {
    if (!value.is_number_integer()) place.wrong("\"{}\" should hold token ids, found {}", key, value.dump());
    const auto id = value.get<std::int64_t>();
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) place.wrong("\"{}\" holds {}, which is no token id", key, id);
    return static_cast<std::int32_t>(id);
}

std::vector<std::int32_t> ids_of(const Json& object, const char* key, const Place& place) {
    const Json& list = member(object, key, place);
    if (!list.is_array() || list.empty()) place.wrong("\"{}\" should be a list of token ids", key);
    std::vector<std::int32_t> ids;
    for (const Json& value : list) ids.push_back(id_of(value, key, place));
    return ids;
}

std::vector<std::vector<ReferenceRecord::Candidate>> tops_of(const Json& object, std::size_t count, const Place& place) {
    const Json& list = member(object, "top", place);
    if (!list.is_array() || list.size() != count)
        place.wrong("\"top\" should be {} lists, one a position, found {}", count, list.is_array() ? list.size() : 0);
    std::vector<std::vector<ReferenceRecord::Candidate>> tops;
    for (const Json& position : list) {
        if (!position.is_array() || position.empty()) place.wrong("each entry of \"top\" should be a list of [id, logit]");
        std::vector<ReferenceRecord::Candidate> top;
        for (const Json& pair : position) {
            if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number())
                place.wrong("\"top\" should hold pairs [id, logit], found {}", pair.dump());
            top.emplace_back(id_of(pair[0], "top", place), pair[1].get<float>());
            if (!std::isfinite(top.back().second)) place.wrong("\"top\" holds a logit that is not finite");
            if (top.size() > 1 && top[top.size() - 2].second < top.back().second)
                place.wrong("the logits of a position in \"top\" should fall");
        }
        tops.push_back(std::move(top));
    }
    return tops;
}

ReferenceRecord parse_record(const Json& json, const Place& place) {
    ReferenceRecord record;
    record.line = place.line;
    const Json& kind = member(json, "kind", place);
    if (kind == "greedy") {
        record.kind = ReferenceRecord::Kind::greedy;
    } else if (kind == "forced") {
        record.kind = ReferenceRecord::Kind::forced;
    } else {
        place.wrong("\"kind\" should be greedy or forced, found {}", kind.dump());
    }
    if (json.contains("prompt")) record.prompt = json["prompt"];
    const bool user = record.prompt.is_object() && record.prompt.contains("user") && record.prompt["user"].is_string();
    if (!record.prompt.is_null() && !record.prompt.is_string() && !user)
        place.wrong("\"prompt\" should be null, a text or {{\"user\": text}}");
    record.ids = ids_of(json, "ids", place);
    if (record.kind == ReferenceRecord::Kind::greedy) {
        record.tokens = ids_of(json, "tokens", place);
        record.top = tops_of(json, record.tokens.size(), place);
        return record;
    }
    if (record.ids.size() < 2) place.wrong("a forced record needs at least two ids");
    record.top = tops_of(json, record.ids.size() - 1, place);
    const Json& nll = member(json, "nll", place);
    if (!nll.is_array() || nll.size() != record.ids.size() - 1) place.wrong("\"nll\" should be {} numbers", record.ids.size() - 1);
    for (const Json& value : nll) {
        if (!value.is_number()) place.wrong("\"nll\" should hold numbers, found {}", value.dump());
        record.nll.push_back(value.get<double>());
    }
    return record;
}

void parse_header(const Json& json, const Place& place, ReferenceFile& file) {
    const Json& format = member(json, "format", place);
    if (format != "forge-reference-1") place.wrong("the format is {}, and \"forge-reference-1\" is wanted", format.dump());
    const auto text = [&](const char* key) {
        const auto found = json.find(key);
        return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    file.engine = text("engine");
    file.model = text("model");
    const std::string dtype = text("dtype");
    if (dtype == "float32") {
        file.dtype = DType::f32;
    } else if (dtype == "bfloat16") {
        file.dtype = DType::bf16;
    } else if (dtype == "float16") {
        file.dtype = DType::f16;
    } else {
        place.wrong("\"dtype\" should be float32, bfloat16 or float16, found \"{}\"", dtype);
    }
}

}  // namespace

ReferenceFile read_reference(const std::string& path) {
    ReferenceFile file;
    file.path = path;
    int line = 0;
    bool header = false;
    for_each_line(path, [&](const std::string& text) {
        const Place place{path, ++line};
        if (text.find_first_not_of(" \t\r") == std::string::npos) return;
        const Json json = parse_json<Json>(text, path, false);
        if (!json.is_object()) place.wrong("this is not a JSON object");
        if (!header) {
            parse_header(json, place, file);
            header = true;
        } else {
            file.records.push_back(parse_record(json, place));
        }
    });
    if (!header) fail("{} is empty; the header of a reference file is wanted", path);
    return file;
}

}  // namespace forge::cli
