// Options that several commands share.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "runtime/sampler.h"

namespace CLI {
class App;
}

namespace forge::cli {

// MODEL as the first argument or -m/--model. Checked by require_argument, so that an unknown
// option is named before a missing model is.
void add_model_argument(CLI::App& command, std::string& model);

// A usage error when `value` is empty.
void require_argument(const std::string& value, const char* name);

// --device, --dtype, --threads, --ctx, --tune, --pass.
struct EngineFlags {
    LoadOptions load;
    std::string dtype = "bf16";
    std::vector<std::string> tune;  // empty: FORGE_TUNE, else auto
    std::vector<std::string> passes;
    LoadOptions options() const;  // with dtype, tune and passes filled in
};
void add_engine_flags(CLI::App& command, EngineFlags& flags);
// "bf16" -> DType; a usage error otherwise.
DType parse_dtype(const std::string& name);

// --temp, --top-k, ... Only what was given replaces the model's own recommendation.
class SamplingFlags {
  public:
    void add(CLI::App& command);
    // `base`: what holds where no option was given. Without --seed a new seed each time.
    SamplingOptions apply(SamplingOptions base) const;

  private:
    std::optional<float> temperature_, top_p_, min_p_, typical_p_, repeat_, presence_, frequency_;
    std::optional<int> top_k_, window_;
    std::optional<std::uint64_t> seed_;
    std::vector<std::string> bias_;
};

// --think, --no-think, --reasoning-effort, --template-var: what the chat template is told.
class ThinkingFlags {
  public:
    void add(CLI::App& command);
    nlohmann::ordered_json variables() const;  // null when nothing was given
    bool show() const { return !hide_; }       // reasoning on the terminal

    std::optional<bool> think;
    std::string effort;

  private:
    std::vector<std::string> variables_;
    bool hide_ = false;
};

// -q/--quiet and -v/--verbose set the log level.
void add_log_flags(CLI::App& command);

}  // namespace forge::cli
