#include "pack/proof.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "runtime/session.h"

namespace forge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view proof_format = "forge-proof";
constexpr int proof_version = 1, proof_steps = 16;
constexpr std::size_t proof_top = 8;

// How far a logit may be from the proof's, as a fraction of the step's largest: other backends sum in
// other orders, and round 16-bit activations at the same places from slightly other sums.
constexpr double f32_bound = 1e-3, bf16_bound = 0.05;

struct Top {
    std::int32_t id;
    float logit;
};

std::vector<Top> top_of(std::span<const float> logits, std::size_t count) {
    std::vector<std::int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    count = std::min(count, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), [&](std::int32_t a, std::int32_t b) {
        const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
        return x > y || (x == y && a < b);
    });
    std::vector<Top> top;
    for (std::size_t i = 0; i < count; ++i) top.push_back({order[i], logits[static_cast<std::size_t>(order[i])]});
    return top;
}

LoadOptions proof_options(LoadOptions options, DType type, std::size_t positions) {
    options.dtype = type;
    options.ctx = static_cast<int>(positions) + 1;
    options.parallel = 1;
    options.chunk = std::min(options.chunk, options.ctx);
    return options;
}

struct Run {
    DType type;
    double bound;
    std::vector<std::int32_t> tokens;
    std::vector<std::vector<Top>> top;
};

struct Proof {
    std::vector<std::int32_t> prompt;
    std::vector<Run> runs;
};

std::vector<std::int32_t> ids_of(const Json& json, const char* key) {
    std::vector<std::int32_t> ids;
    if (!json.is_object() || !json.contains(key) || !json[key].is_array()) fail("the proof lacks its list '{}'", key);
    for (const Json& id : json[key]) {
        if (!id.is_number_integer() || id < 0 || id > (1 << 30)) fail("the proof's '{}' should hold token ids", key);
        ids.push_back(id.get<std::int32_t>());
    }
    if (ids.empty() || ids.size() > 4096) fail("the proof's '{}' should hold 1 to 4096 ids", key);
    return ids;
}

Proof parse_proof(std::string_view text) {
    const Json json = parse_json<Json>(text, "the proof", false);
    if (!json.is_object() || json.value("format", Json()) != std::string(proof_format) || json.value("version", Json()) != proof_version)
        fail(ErrorKind::unsupported, "the proof is none that this version of Forge knows");
    Proof proof;
    proof.prompt = ids_of(json, "prompt");
    if (!json.contains("runs") || !json["runs"].is_array()) fail("the proof lacks its runs");
    for (const Json& item : json["runs"]) {
        Run run{};
        const std::string dtype = item.is_object() && item.contains("dtype") && item["dtype"].is_string() ? item["dtype"].get<std::string>() : "";
        if (dtype != "f32" && dtype != "bf16") fail("a run of the proof has a type of activations that is not known");
        run.type = dtype == "f32" ? DType::f32 : DType::bf16;
        if (!item.contains("bound") || !item["bound"].is_number()) fail("a run of the proof lacks its bound");
        run.bound = item["bound"].get<double>();
        run.tokens = ids_of(item, "tokens");
        if (!item.contains("top") || !item["top"].is_array() || item["top"].size() != run.tokens.size()) fail("a run of the proof should have the logits of every token");
        for (const Json& step : item["top"]) {
            if (!step.is_array() || step.empty()) fail("a step of the proof lacks its logits");
            std::vector<Top> tops;
            for (const Json& pair : step) {
                if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer() || pair[0] < 0 || pair[0] > (1 << 30) || !pair[1].is_number()) fail("a step of the proof should hold pairs of id and logit");
                tops.push_back({pair[0].get<std::int32_t>(), pair[1].get<float>()});
            }
            run.top.push_back(std::move(tops));
        }
        proof.runs.push_back(std::move(run));
    }
    return proof;
}

}  // namespace

std::string compute_proof(const std::string& path, std::span<const std::int32_t> prompt, int threads) {
    Json json;
    json["format"] = proof_format;
    json["version"] = proof_version;
    json["prompt"] = std::vector<std::int32_t>(prompt.begin(), prompt.end());
    json["runs"] = Json::array();
    for (const auto& [type, bound] : {std::pair{DType::f32, f32_bound}, std::pair{DType::bf16, bf16_bound}}) {
        LoadOptions options;
        options.device = "cpu";
        options.threads = threads;
        Session session(Engine::load(path, proof_options(options, type, prompt.size() + proof_steps)));
        session.feed(prompt);
        std::vector<std::int32_t> tokens;
        Json top = Json::array();
        for (int i = 0; i < proof_steps; ++i) {
            Json step = Json::array();
            const std::vector<Top> best = top_of(session.logits(), proof_top);
            for (const Top& t : best) step.push_back({t.id, t.logit});
            top.push_back(std::move(step));
            tokens.push_back(best.front().id);
            if (i + 1 < proof_steps) session.append(best.front().id);
        }
        json["runs"].push_back({{"dtype", name_of(type)}, {"bound", bound}, {"tokens", tokens}, {"top", std::move(top)}});
    }
    return json.dump() + "\n";
}

std::vector<ProofResult> check_proof(std::string_view text, const std::string& path, const LoadOptions& options) {
    const Proof proof = parse_proof(text);
    std::vector<ProofResult> results;
    for (const Run& run : proof.runs) {
        ProofResult result{std::string(name_of(run.type)), static_cast<int>(run.tokens.size()), 0, 0, 0, run.bound};
        Session session(Engine::load(path, proof_options(options, run.type, proof.prompt.size() + run.tokens.size())));
        session.feed(proof.prompt);
        for (std::size_t i = 0; i < run.tokens.size(); ++i) {
            if (i > 0) session.append(run.tokens[i - 1]);
            const std::span<const float> logits = session.logits();
            double scale = 0;
            for (const Top& t : run.top[i]) {
                if (static_cast<std::size_t>(t.id) >= logits.size()) fail("{}: the proof names token {}, but the vocabulary has {} tokens", path, t.id, logits.size());
                scale = std::max(scale, std::fabs(static_cast<double>(t.logit)));
            }
            scale = std::max(scale, 1e-9);
            for (const Top& t : run.top[i]) {
                const double difference = std::fabs(static_cast<double>(logits[static_cast<std::size_t>(t.id)]) - t.logit) / scale;
                result.largest = std::isnan(difference) ? INFINITY : std::max(result.largest, difference);
            }
            if (top_of(logits, 1).front().id == run.tokens[i]) continue;
            ++result.different;
            if (run.top[i].size() > 1 && (run.top[i][0].logit - run.top[i][1].logit) / scale <= run.bound) ++result.near_ties;
        }
        results.push_back(result);
    }
    return results;
}

}  // namespace forge
