// Reference files: what other software computed for a model (docs/references.md).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"

namespace forge::cli {

struct ReferenceRecord {
    enum class Kind { greedy, forced };
    using Candidate = std::pair<std::int32_t, float>;  // id, logit

    Kind kind = Kind::greedy;
    nlohmann::ordered_json prompt;             // null, a text, or {"user": text}
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> tokens;          // greedy
    std::vector<std::vector<Candidate>> top;   // falling; greedy: tokens.size(), forced: ids.size() - 1
    std::vector<double> nll;                   // forced
    int line = 0;                              // in its file, for messages
};

struct ReferenceFile {
    std::string path, engine, model;
    DType dtype = DType::f32;
    std::vector<ReferenceRecord> records;
};

// Errors name the file, the line and what is wrong there.
ReferenceFile read_reference(const std::string& path);

}  // namespace forge::cli
