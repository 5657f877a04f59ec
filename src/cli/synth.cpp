// forge synth: random weights in a real model's shape, for benchmarks.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "base/progress.h"
#include "commands.h"
#include "options.h"
#include "pack/synth.h"
#include "table.h"

namespace forge::cli {

void add_synth(CLI::App& app, int&) {
    auto options = std::make_shared<SynthOptions>();
    CLI::App* command = app.add_subcommand("synth", "Write a model of random weights in a real model's shape");
    command->add_option("shape", options->shape, fmt::format("{}", fmt::join(synth_shapes(), ", ")))->type_name("SHAPE");
    command->add_option("-o,--output", options->output, "The file or folder to write")->type_name("PATH");
    command->add_option("--type", options->type, fmt::format("{} (default q4_k_m; hf: bf16); mlx: q4 (default), q8, q4g32, mxfp4, ...", fmt::join(synth_types(), ", ")))->type_name("TYPE");
    command->add_option("--format", options->format, "gguf (default), hf or mlx")->type_name("FORMAT");
    command->add_option("--seed", options->seed, "The same shape and seed give the same weights (default 1)")->type_name("N");
    command->add_option("-t,--threads", options->threads, "CPU threads (default: one a core)")->type_name("N")->check(CLI::Range(1, 1024));
    command->add_flag("--outline", options->outline, "With --format hf: no weights, only their names and shapes; takes no room, for forge inspect");
    command->add_flag("--force", options->overwrite, "Replace an output that exists");
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge synth qwen3-0.6b -o qwen3-0.6b.gguf --type q4_0\n"
                    "  forge synth llama-3.2-1b -o llama-1b/ --format hf --type bf16 --seed 7\n"
                    "  forge synth qwen3.6-35b-a3b -o q36/ --format mlx --type q4\n"
                    "  forge synth qwen3.6-35b-a3b -o outline/ --format hf --outline && forge inspect outline/ --memory --as metal\n"
                    "The weights are random: the model measures speed and says nothing.");
    command->callback([options] {
        require_argument(options->shape, "SHAPE");
        require_argument(options->output, "-o PATH");
        const SynthSummary made = synthesise(*options);
        fmt::print("wrote {}: {} parameters in {} tensors, {}\n", options->output, format_count(static_cast<double>(made.parameters)),
                   made.tensors, format_bytes(made.tensor_bytes));
    });
}

}  // namespace forge::cli
