// forge pack: any model that Forge reads -> a .forge model, in the store or in a file.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>

#include "api/model_text.h"
#include "base/progress.h"
#include "commands.h"
#include "options.h"
#include "pack/pack.h"
#include "pack/proof.h"
#include "table.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct Flags {
    PackOptions options;
    std::string layout = "auto", device = "auto";
    bool no_proof = false;
};

// A text with common words, a number and punctuation; models without a tokenizer get a few low ids.
std::vector<std::int32_t> proof_prompt(const std::string& path) {
    if (!has_tokenizer(path)) return {1, 2, 3, 4, 5, 6, 7, 8};
    std::vector<std::int32_t> ids = load_tokenizer(path)->encode("The three largest cities of France are Paris, Marseille and", {.add_bos = true});
    if (ids.empty()) ids.push_back(0);
    return ids;
}

void pack(const Flags& flags) {
    PackOptions options = flags.options;
    options.source = model_path(options.source);
    options.version = FORGE_VERSION;
    options.layout = flags.layout == "rows"      ? WeightLayout::rows
                     : flags.layout == "tiled16" ? WeightLayout::tiles
                                                 : fastest_layout(flags.device);
    if (!flags.no_proof)
        options.prove = [&](const std::string& path) { return compute_proof(path, proof_prompt(path), options.threads); };
    const PackSummary made = pack_model(options);
    fmt::print("packed {}: {} parameters, {} in {} shards (from {} of weights), layout {}\n", options.output, format_count(static_cast<double>(made.parameters)),
               format_bytes(made.bytes), made.shards, format_bytes(made.source_bytes), made.tiled > 0 ? "tiled16" : "rows");
    if (made.resumed > 0) fmt::print("{} shards were there from a run that had been stopped\n", made.resumed);
    if (made.shared > 0) fmt::print("{} of it were in the store already\n", format_bytes(made.shared));
}

}  // namespace

void add_pack(CLI::App& app, int&) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("pack", "Turn a model into a .forge model: mapped, checked, shared");
    command->add_option("source", flags->options.source, "A GGUF file, a Hugging Face or MLX folder, a .forge model; or NAME[:TAG] in the store, hf:ORG/NAME or oci:HOST/NAME[:TAG] that was pulled")->type_name("SRC");
    command->add_option("-o,--output", flags->options.output, "NAME[:TAG] in the store, or a file that ends in .forge")->type_name("NAME|FILE");
    command->add_option("--quantize", flags->options.recipes, "Quantise weights that are f32, f16 or bf16: q4, q4g32, mxfp4, mixed, ... or PATTERN=RECIPE (see forge quantize). Repeatable. "
                         "What is quantised already is refused")
        ->type_name("RECIPE")->take_all()->expected(1)->allow_extra_args(false);
    command->add_option("--layout", flags->layout, "How weights with codes lie: rows (any device), tiled16 (fastest on CPUs), auto: what --device reads fastest")
        ->type_name("LAYOUT")->check(CLI::IsMember({"auto", "rows", "tiled16"}));
    command->add_option("--device", flags->device, "The device that --layout auto is for (default: this machine's)")->type_name("NAME");
    command->add_flag("--no-proof", flags->no_proof, "Leave out the proof: tokens and logits that forge verify --run compares");
    command->add_option("-t,--threads", flags->options.threads, "CPU threads (default: one a core)")->type_name("N")->check(CLI::Range(1, 1024));
    command->add_flag("--force", flags->options.overwrite, "Replace a model or file of that name");
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge pack qwen3-0.6b-q4_k_m.gguf -o qwen3:q4_k_m\n"
                    "  forge pack Qwen3-0.6B/ -o qwen3:q4 --quantize q4\n"
                    "  forge pack model-bf16.gguf -o model:q4 --quantize q4 --quantize 'blk.*.attn_v=q8'\n"
                    "  forge pack model.gguf -o model.forge --layout rows\n"
                    "  forge pack qwen3:q4 -o qwen3-q4.forge          (out of the store into a file; the other way likewise)\n"
                    "A run that was stopped goes on where it was when the same command is given again.");
    command->callback([flags] {
        require_argument(flags->options.source, "SRC");
        require_argument(flags->options.output, "-o NAME|FILE");
        pack(*flags);
    });
}

}  // namespace forge::cli
