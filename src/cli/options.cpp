#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "usage.h"

namespace forge::cli {

void add_model_argument(CLI::App& command, std::string& model) {
    command.add_option("-m,--model,model", model, "Model: a .forge, GGUF or .safetensors file, a folder, NAME[:TAG] in the store, or hf:ORG/NAME or oci:HOST/NAME[:TAG] that was pulled")->type_name("MODEL");
}

void require_argument(const std::string& value, const char* name) {
    if (value.empty()) fail_usage("{} is required", name);
}

DType parse_dtype(const std::string& name) {
    if (name == "bf16") return DType::bf16;
    if (name == "f16") return DType::f16;
    if (name == "f32") return DType::f32;
    fail_usage("--dtype should be bf16, f16 or f32, found {}", name);
}

void add_engine_flags(CLI::App& command, EngineFlags& flags) {
    command.add_option("--device", flags.load.device, "auto, cpu, cuda or cuda:N (metal on a Mac)")->type_name("NAME");
    command.add_option("--dtype", flags.dtype, "Type of activations and cache: bf16 (default), f16 or f32")->type_name("TYPE");
    command.add_option("-t,--threads", flags.load.threads, "CPU threads (default: one a core)")
        ->type_name("N")->check(CLI::Range(1, 1024));
    command.add_option("-c,--ctx,--ctx-size", flags.load.ctx, "Tokens of context to reserve memory for (default: the model's, at most 4096)")
        ->type_name("N")->check(CLI::Range(1, 1 << 24));
    command.add_flag("--verify", flags.load.verify, "Compare a .forge model's weights with their hashes while they are read");
    command.add_flag("--mlock", flags.load.lock_memory, "Keep the model in memory, where the system's limit allows it");
    command.add_flag("--repack", flags.load.repack, "Copy an MLX folder's weights into the CPU's own layout: more memory and a longer start for speed");
    command.add_option("--tune", flags.tune, "Time kernels on this machine once and keep what is fastest: off, fast, full or auto (the default: fast, but on NVIDIA GPUs only what was kept); "
                       "KERNEL=VARIANT takes a variant unasked and can be repeated")
        ->type_name("MODE")->expected(1)->take_all()->allow_extra_args(false);
    command.add_option("--pass", flags.passes, "Leave a plan pass out, such as -fuse_norm, or -all (see forge inspect --plan)")
        ->type_name("-NAME")->expected(1)->take_all()->allow_extra_args(false);
}

LoadOptions EngineFlags::options() const {
    LoadOptions result = load;
    result.dtype = parse_dtype(dtype);
    const char* environment = std::getenv("FORGE_TUNE");
    result.tune = environment && *environment ? environment : "auto";
    for (const std::string& word : tune) result.tune = &word == &tune.front() && word.find('=') == std::string::npos ? word : result.tune + ";" + word;
    for (const std::string& pass : passes) {
        if (pass.size() < 2 || pass[0] != '-')
            fail_usage("--pass wants a name with a minus before it, such as -all, to leave the pass out; found {}", pass);
        result.passes_off.push_back(pass.substr(1));
    }
    return result;
}

void SamplingFlags::add(CLI::App& command) {
    command.add_option("--temp,--temperature", temperature_, "Temperature; 0 always takes the likeliest token")->type_name("X");
    command.add_option("--top-k", top_k_, "Keep the K likeliest tokens; 0 = all")->type_name("K");
    command.add_option("--top-p", top_p_, "Keep the likeliest tokens that add up to P; 1 = all")->type_name("P");
    command.add_option("--min-p", min_p_, "Keep tokens at least P times as likely as the likeliest; 0 = all")->type_name("P");
    command.add_option("--typical,--typical-p", typical_p_, "Locally typical sampling; 1 = off")->type_name("P");
    command.add_option("--repeat-penalty", repeat_, "Make seen tokens less likely; 1 = off")->type_name("X");
    command.add_option("--presence-penalty", presence_, "Subtracted from the logits of seen tokens; 0 = off")->type_name("X");
    command.add_option("--frequency-penalty", frequency_, "The same, for each time seen; 0 = off")->type_name("X");
    command.add_option("--repeat-last-n", window_, "Tokens that count as seen: the last N; -1 = all")->type_name("N");
    command.add_option("--logit-bias", bias_, "Add to a token's logit, such as 42=-5 or 42=-inf; can be repeated")
        ->type_name("ID=X")->expected(1)->take_all()->allow_extra_args(false);
    command.add_option("-s,--seed", seed_, "The same seed gives the same text; without one every run differs")->type_name("N");
}

SamplingOptions SamplingFlags::apply(SamplingOptions o) const {
    o.temperature = temperature_.value_or(o.temperature);
    o.top_k = top_k_.value_or(o.top_k);
    o.top_p = top_p_.value_or(o.top_p);
    o.min_p = min_p_.value_or(o.min_p);
    o.typical_p = typical_p_.value_or(o.typical_p);
    o.repetition_penalty = repeat_.value_or(o.repetition_penalty);
    o.presence_penalty = presence_.value_or(o.presence_penalty);
    o.frequency_penalty = frequency_.value_or(o.frequency_penalty);
    o.penalty_window = window_.value_or(o.penalty_window);
    o.seed = seed_ ? *seed_ : std::random_device()();
    for (const std::string& entry : bias_) {
        std::int32_t id = 0;
        float value = 0;
        int used = 0;
        if (std::sscanf(entry.c_str(), "%d=%f%n", &id, &value, &used) != 2 || static_cast<std::size_t>(used) != entry.size())
            fail_usage("--logit-bias should look like 42=-5, found {}", entry);
        o.logit_bias.emplace_back(id, value);
    }
    check_options(o);
    return o;
}

void ThinkingFlags::add(CLI::App& command) {
    command.add_flag_callback("--think", [this] { think = true; }, "Let the model think first, where its template can switch that");
    command.add_flag_callback("--no-think", [this] { think = false; }, "Answer at once, where its template can switch that");
    command.add_option("--reasoning-effort", effort, "low, medium or high, where the template reads it")->type_name("LEVEL");
    command.add_flag("--hide-thinking", hide_, "Do not print what the model thinks");
    command.add_option("--template-var", variables_, "A variable of the chat template, such as date_string=\"1 May 2026\"; JSON, else text")
        ->type_name("NAME=VALUE")->expected(1)->take_all()->allow_extra_args(false);
}

nlohmann::ordered_json ThinkingFlags::variables() const {
    nlohmann::ordered_json result = nullptr;
    if (think) result["enable_thinking"] = *think;
    if (!effort.empty()) result["reasoning_effort"] = effort;
    for (const std::string& entry : variables_) {
        const std::size_t equals = entry.find('=');
        if (equals == 0 || equals == std::string::npos)
            fail_usage("--template-var should look like NAME=VALUE, found {}", entry);
        const std::string value = entry.substr(equals + 1);
        auto json = parse_json<nlohmann::ordered_json>(value, "--template-var", false);
        result[entry.substr(0, equals)] = json.is_discarded() ? nlohmann::ordered_json(value) : json;
    }
    return result;
}

void add_log_flags(CLI::App& command) {
    command.add_flag_callback("-q,--quiet", [] { set_log_level(LogLevel::error); }, "Only errors");
    command.add_flag_callback("-v,--verbose", [] { set_log_level(LogLevel::debug); }, "Say what is being done");
}

}  // namespace forge::cli
