// forge quantize: a Hugging Face folder to a folder quantised as MLX does it.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "api/model_text.h"
#include "base/progress.h"
#include "commands.h"
#include "options.h"
#include "pack/quantize.h"
#include "table.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct Flags {
    QuantizeOptions options;
    std::optional<int> bits, group;
    std::string mode;
    std::vector<std::string> recipes;
};

// --bits, --group and --mode spell one recipe for the whole model.
std::string whole_recipe(const Flags& flags, const std::string& named) {
    const std::string mode = flags.mode.empty() ? "affine" : flags.mode;
    if (named.empty() && mode != "affine") {
        if (flags.bits && *flags.bits != (mode == "mxfp8" ? 8 : 4)) throw UsageError(fmt::format("{} has {} bits, not {}", mode, mode == "mxfp8" ? 8 : 4, *flags.bits));
        if (flags.group && *flags.group != (mode == "nvfp4" ? 16 : 32)) throw UsageError(fmt::format("{} has groups of {}, not {}", mode, mode == "nvfp4" ? 16 : 32, *flags.group));
        return mode;
    }
    if (!named.empty() && named != "mixed") {
        const bool grouped = flags.group && named.starts_with("mixed");
        if (flags.bits || !flags.mode.empty() || (flags.group && !grouped)) throw UsageError(fmt::format("the recipe {} says bits, group and mode itself", named));
        return grouped ? fmt::format("{}g{}", named, *flags.group) : named;
    }
    const std::string group = flags.group ? fmt::format("g{}", *flags.group) : "";
    if (named.empty()) return fmt::format("q{}{}", flags.bits.value_or(4), group);
    if (mode != "affine") throw UsageError("mixed recipes are affine");
    switch (flags.bits.value_or(4)) {
        case 2: return "mixed_2_6" + group;
        case 3: return "mixed_3_6" + group;
        case 4: return "mixed_4_6" + group;
        default: throw UsageError("a mixed recipe has 2, 3 or 4 bits for most modules");
    }
}

}  // namespace

void add_quantize(CLI::App& app, int&) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("quantize", "Write a folder with quantised weights, as mlx-lm converts it");
    command->add_option("source", flags->options.source, "A Hugging Face folder (config.json and safetensors), or hf:ORG/NAME that was pulled")->type_name("SRC");
    command->add_option("-o,--output", flags->options.output, "The folder to write")->type_name("PATH");
    command->add_option("--bits", flags->bits, "1, 2, 3, 4, 5, 6 or 8 (default 4)")->type_name("N");
    command->add_option("--group", flags->group, "Weights that share a scale: 32, 64 or 128 (default 64)")->type_name("N");
    command->add_option("--mode", flags->mode, "affine (default), mxfp4, mxfp8 or nvfp4")->type_name("MODE")
        ->check(CLI::IsMember({"affine", "mxfp4", "mxfp8", "nvfp4"}));
    command->add_option("--recipe", flags->recipes,
                        "q4, q4g32, mxfp4, mxfp8, nvfp4, mixed, mixed_3_4, ...; or PATTERN=RECIPE for modules of a name, with plain for none. Repeatable")
        ->type_name("RECIPE")->take_all()->expected(1)->allow_extra_args(false);
    command->add_flag("--global-scale", flags->options.global_scale, "nvfp4: a second scale for each expert");
    command->add_option("-t,--threads", flags->options.threads, "CPU threads (default: one a core)")->type_name("N")->check(CLI::Range(1, 1024));
    command->add_flag("--force", flags->options.overwrite, "Replace a folder that exists");
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge quantize Qwen3-0.6B/ -o qwen3-0.6b-4bit/ --bits 4 --group 64\n"
                    "  forge quantize Qwen3-30B-A3B/ -o qwen3-30b-mxfp4/ --mode mxfp4\n"
                    "  forge quantize SmolLM2-135M/ -o smollm2/ --recipe mixed --recipe '*embed_tokens=q8'\n"
                    "The result is what mlx-lm writes, and both load it.");
    command->callback([flags] {
        require_argument(flags->options.source, "SRC");
        require_argument(flags->options.output, "-o PATH");
        flags->options.source = model_path(flags->options.source);
        std::string whole;
        std::vector<std::string> patterns;
        for (const std::string& recipe : flags->recipes) {
            if (recipe.find('=') != std::string::npos) {
                patterns.push_back(recipe);
            } else if (!whole.empty()) {
                throw UsageError("only one recipe without a pattern can be given");
            } else {
                whole = recipe;
            }
        }
        flags->options.recipes = {whole_recipe(*flags, whole)};
        flags->options.recipes.insert(flags->options.recipes.end(), patterns.begin(), patterns.end());
        const QuantizeSummary made = quantize(flags->options);
        fmt::print("wrote {}: {} parameters, {} of {} tensors quantised, {} in {} file{} (from {}, {:.2f} bits a weight)\n", flags->options.output,
                   format_count(static_cast<double>(made.parameters)), made.quantised, made.tensors, format_bytes(made.bytes), made.files,
                   made.files == 1 ? "" : "s", format_bytes(made.source_bytes),
                   8.0 * static_cast<double>(made.bytes) / static_cast<double>(made.parameters));
    });
}

}  // namespace forge::cli
