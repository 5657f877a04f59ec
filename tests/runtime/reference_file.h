// Reads the reference files of tests/data/models (docs/references.md).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace forge::test {

struct ReferenceRecord {
    bool greedy = false;
    std::vector<std::int32_t> ids, tokens;
    std::vector<std::vector<std::pair<std::int32_t, float>>> top;
};

std::vector<ReferenceRecord> read_reference(const std::filesystem::path& path);
// All logits of the forced record, [positions][vocab].
std::vector<float> read_floats(const std::filesystem::path& path);

// The committed tiny models: folder, and what to hand to Engine::load.
struct TinyModel { std::string name; std::filesystem::path folder, model; };
inline void PrintTo(const TinyModel& model, std::ostream* out) { *out << model.name; }   // what a test is listed with
std::vector<TinyModel> tiny_models();
TinyModel tiny_model(const std::string& name);

}  // namespace forge::test
