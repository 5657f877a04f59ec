#include "reference_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "base/paths.h"

namespace forge::test {

std::vector<ReferenceRecord> read_reference(const std::filesystem::path& path) {
    std::ifstream in(path);
    std::vector<ReferenceRecord> records;
    std::string line;
    std::getline(in, line);
    if (nlohmann::json::parse(line).at("format") != "forge-reference-1") throw std::runtime_error("format of " + path.string());
    while (std::getline(in, line)) {
        const auto json = nlohmann::json::parse(line);
        ReferenceRecord record;
        record.greedy = json.at("kind") == "greedy";
        record.ids = json.at("ids").get<std::vector<std::int32_t>>();
        if (record.greedy) record.tokens = json.at("tokens").get<std::vector<std::int32_t>>();
        for (const auto& list : json.at("top")) {
            record.top.emplace_back();
            for (const auto& pair : list) record.top.back().emplace_back(pair.at(0).get<std::int32_t>(), pair.at(1).get<float>());
        }
        records.push_back(std::move(record));
    }
    return records;
}

std::vector<float> read_floats(const std::filesystem::path& path) {
    const std::string bytes = read_file(path);
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), values.size() * 4);
    return values;
}

std::vector<TinyModel> tiny_models() {
    std::vector<TinyModel> models;
    for (const char* folder : {"models", "models-mixed", "models-mlx"}) {
        for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(FORGE_TEST_DATA) / folder)) {
            if (!entry.is_directory()) continue;
            const auto gguf = entry.path() / "model.gguf";
            models.push_back({entry.path().filename().string(), entry.path(), std::filesystem::exists(gguf) ? gguf : entry.path()});
        }
    }
    std::sort(models.begin(), models.end(), [](auto& a, auto& b) { return a.name < b.name; });
    return models;
}

TinyModel tiny_model(const std::string& name) {
    for (TinyModel& m : tiny_models())
        if (m.name == name) return m;
    throw std::runtime_error("no tiny model " + name);
}

}  // namespace forge::test
