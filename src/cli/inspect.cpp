// forge inspect: what each step from the file to the program returns.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "api/model_text.h"
#include "backends/outline.h"
#include "backends/registry.h"
#include "formats/forge_model.h"
#include "base/progress.h"
#include "commands.h"
#include "formats/model_file.h"
#include "model/bind.h"
#include "options.h"
#include "roofline.h"
#include "runtime/engine.h"
#include "table.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct InspectOptions {
    std::string model, chip, as;
    EngineFlags engine;
    bool tensors = false, metadata = false, plan = false, unfused = false, memory = false;
    int program = 0;
};

std::string_view name_of(ModelFormat format) {
    switch (format) {
        case ModelFormat::gguf: return "GGUF";
        case ModelFormat::huggingface: return "Hugging Face safetensors";
        case ModelFormat::mlx: return "MLX safetensors";
    }
    return "unknown";
}

std::string type_of(const Tensor& tensor) {
    return std::string(tensor.is_block ? gguf_type_name(static_cast<std::uint32_t>(tensor.block)) : name_of(tensor.dtype));
}

std::string shape_of(const Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.shape, ", ")); }

void print_file(const ModelFile& file) {
    fmt::print("file          {}\n", file.path);
    if (file.packed) {
        fmt::print("format        .forge made from {}, {} shards, {} layout, {}\n", name_of(file.format), file.packed->shards().size(), file.packed->layout(),
                   format_bytes(file.packed->manifest().bytes()));
    } else {
        fmt::print("format        {}, {} tensors, {}\n", name_of(file.format), file.tensors.size(), format_bytes(file.tensor_bytes()));
    }
}

void print_types(const ModelFile& file) {
    struct Sum { std::size_t tensors = 0; std::int64_t elements = 0; std::uint64_t bytes = 0; };
    std::map<std::string, Sum> sums;
    const auto add = [&](const std::string& type, std::int64_t elements, std::uint64_t bytes) {
        Sum& sum = sums[type];
        ++sum.tensors;
        sum.elements += elements;
        sum.bytes += bytes;
    };
    if (file.packed) {   // the source's tensors are not there: its planes are
        for (const ForgeModel::Shard& shard : file.packed->shards())
            for (const PackedWeight& weight : shard.index.weights) {
                std::uint64_t bytes = 0;
                for (const PackedPlane& plane : weight.planes) bytes += plane.bytes;
                add(describe(weight.format), weight.rows * weight.cols, bytes);
            }
    } else {
        for (const Tensor& tensor : file.tensors) add(type_of(tensor), tensor.elements(), tensor.data.size());
    }
    Table table({{"type"}, {file.packed ? "weights" : "tensors", Table::Align::right}, {"elements", Table::Align::right},
                 {"size", Table::Align::right}, {"bits/element", Table::Align::right}});
    for (const auto& [type, sum] : sums)
        table.add({type, std::to_string(sum.tensors), format_count(static_cast<double>(sum.elements)), format_bytes(sum.bytes),
                   sum.elements ? fmt::format("{:.2f}", 8.0 * static_cast<double>(sum.bytes) / static_cast<double>(sum.elements)) : "-"});
    fmt::print("\n{}", table.text());
}

void print_tensors(const ModelFile& file) {
    Table table({{"tensor"}, {"shape"}, {"type"}, {"size", Table::Align::right}});
    for (const Tensor& tensor : file.tensors)
        table.add({tensor.name, shape_of(tensor), type_of(tensor), file.packed ? "" : format_bytes(tensor.data.size())});
    fmt::print("\n{}", table.text());
}

// One line a value; long texts and arrays are cut, with their length.
std::string shown(const MetaValue& value) {
    return std::visit([]<typename T>(const T& v) -> std::string {
        if constexpr (std::is_same_v<T, std::string>) {
            std::string line = nlohmann::json(v).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
            if (line.size() <= 100) return line;
            std::size_t cut = 90;
            while (cut > 0 && (line[cut] & 0xc0) == 0x80) --cut;
            return fmt::format("{}... ({} bytes)", line.substr(0, cut), v.size());
        } else if constexpr (std::is_same_v<T, bool> || std::is_arithmetic_v<T>) {
            return fmt::format("{}", v);
        } else {
            std::string line = "[";
            for (std::size_t i = 0; i < v.size() && i < 6; ++i) {
                if (i) line += ", ";
                if constexpr (std::is_same_v<T, std::vector<std::string>>) {
                    line += nlohmann::json(v[i]).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
                } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
                    line += v[i] ? "true" : "false";
                } else {
                    line += fmt::format("{}", v[i]);
                }
            }
            return line + (v.size() > 6 ? fmt::format(", ... {} in all]", v.size()) : "]");
        }
    }, value);
}

void print_metadata(const ModelFile& file) {
    fmt::print("\n");
    for (const auto& [key, value] : file.metadata.all()) fmt::print("{} = {}\n", key, shown(value));
    if (!file.config.is_null()) fmt::print("config.json = {}\n", file.config.dump(2));
    if (!file.generation_config.is_null()) fmt::print("generation_config.json = {}\n", file.generation_config.dump(2));
}

std::string attention_text(const AttentionSpec& a) {
    std::string text = fmt::format("attention {} heads of {}, {} for keys", a.n_heads, a.head_dim, a.n_kv_heads);
    if (a.window) text += fmt::format(", window {}", a.window);
    if (a.qk_norm) text += ", q/k norm";
    if (a.gated) text += ", gated";
    if (a.softcap != 0) text += fmt::format(", softcap {}", a.softcap);
    return text + fmt::format(", rope {}", a.rope);
}

std::string layer_text(const LayerSpec& layer, int index) {
    std::string text = layer.mixer == MixerKind::attention
        ? attention_text(layer.attention)
        : fmt::format("gated delta {} key heads of {}, {} value heads of {}, conv {}", layer.delta.n_k_heads, layer.delta.k_dim,
                      layer.delta.n_v_heads, layer.delta.v_dim, layer.delta.conv_kernel);
    if (layer.mixer == MixerKind::attention && layer.attention.kv_layer != index)
        text += fmt::format(", cache of layer {}", layer.attention.kv_layer);
    const FeedForwardSpec& ff = layer.feed_forward;
    const char* act = ff.activation == Activation::silu ? "silu" : "gelu";
    if (ff.width) text += fmt::format("; mlp {} {}", ff.width, act);
    if (ff.moe.experts)
        text += fmt::format("; {} experts of {}, {} a token{}", ff.moe.experts, ff.moe.width, ff.moe.per_token,
                            ff.moe.shared_width ? fmt::format(", shared {}", ff.moe.shared_width) : "");
    return text;
}

// The descriptor; runs of equal layers take one line.
void print_spec(const ModelSpec& spec) {
    fmt::print("model         {}\n", spec.name.empty() ? "(no name)" : spec.name);
    fmt::print("architecture  {}, {} parameters\n", spec.architecture, format_count(static_cast<double>(spec.parameters)));
    fmt::print("dimensions    {} layers of {}, vocabulary {}{}, trained for {} tokens\n", spec.layers.size(), spec.hidden, spec.vocab,
               spec.head == spec.embed ? " (head tied to the embedding)" : "", spec.context_length);
    for (std::size_t i = 0; i < spec.ropes.size(); ++i) fmt::print("rope {}        {}\n", i, spec.ropes[i].description);
    for (std::size_t first = 0; first < spec.layers.size();) {
        const std::string text = layer_text(spec.layers[first], static_cast<int>(first));
        std::size_t last = first + 1;
        while (last < spec.layers.size() && layer_text(spec.layers[last], static_cast<int>(last)) == text) ++last;
        fmt::print("{:13} {}\n", last - first == 1 ? fmt::format("layer {}", first) : fmt::format("layers {}-{}", first, last - 1), text);
        first = last;
    }
    if (!spec.stop_ids.empty()) fmt::print("stop ids      {}\n", fmt::join(spec.stop_ids, " "));
}

// Loads for the device, or as if for a GPU that need not be here: --as, and a chip's bound, which is Metal's.
std::shared_ptr<Engine> load_engine(const InspectOptions& options) {
    LoadOptions load = options.engine.options();
    if (!options.as.empty() && load.device != "auto") fail_usage("--as and --device exclude each other");
    const std::string as = options.as.empty() && !options.chip.empty() && load.device == "auto" ? "metal" : options.as;
    if (as.empty()) return Engine::load(options.model, load);
    if (as != "metal" && as != "cuda") fail_usage("--as should be metal or cuda, found {}", as);
    const auto always = [](std::string*) { return true; };
    register_device({"metal-outline", -1, always, [](ThreadPool&, int) { return make_outline_backend(OutlineTarget::metal); }});
    register_device({"cuda-outline", -1, always, [](ThreadPool&, int) { return make_outline_backend(OutlineTarget::cuda); }});
    load.device = as + "-outline";
    return Engine::load(options.model, load);
}

void print_engine(const InspectOptions& options) {
    const auto engine = load_engine(options);
    if (options.memory) {
        const MemoryUse m = engine->memory();
        fmt::print("\nmemory        weights {} ({} of them mapped), cache {} ({} x {} tokens{}), scratch {}\n", format_bytes(m.weights), format_bytes(m.mapped), format_bytes(m.kv_cache),
                   engine->options().parallel, engine->options().ctx, m.state > 0 ? fmt::format(", {} of it recurrent state", format_bytes(m.state)) : "", format_bytes(m.scratch));
        std::uint64_t bytes = 0;
        for (const LaunchProfile& launch : engine->predict(1, 0)) bytes += launch.work.bytes;
        fmt::print("a token reads {} of weights and state, in {} ({})\n", format_bytes(bytes), describe(engine->step_counts()), engine->backend_name());
    }
    if (!options.chip.empty()) fmt::print("\n{}", roofline(*engine, options.chip));
    if (options.plan) fmt::print("\n{}", engine->print_plan(!options.unfused));
    if (options.program > 0) fmt::print("\n{}", engine->print_program(options.program));
}

void inspect(InspectOptions& options) {
    options.model = model_path(options.model);
    const auto file = open_model_file(options.model);
    print_file(*file);
    // A file without a model inside (only a vocabulary) is shown as far as it goes.
    if (!file->tensors.empty()) print_spec(read_spec(*file));
    print_types(*file);
    if (options.metadata) print_metadata(*file);
    if (options.tensors) print_tensors(*file);
    if (options.plan || options.program > 0 || options.memory || !options.chip.empty()) print_engine(options);
}

}  // namespace

void add_inspect(CLI::App& app, int&) {
    auto options = std::make_shared<InspectOptions>();
    CLI::App* command = app.add_subcommand("inspect", "Print what a model file holds and what Forge makes of it");
    add_model_argument(*command, options->model);
    command->add_flag("--tensors", options->tensors, "List every tensor");
    command->add_flag("--metadata", options->metadata, "Print the metadata or config");
    command->add_flag("--plan", options->plan, "Print the plan: one line an operation");
    command->add_flag("--unfused", options->unfused, "With --plan: before the passes");
    command->add_option("--program", options->program, "Print the program for steps of N rows: launches and barriers")
        ->type_name("N")->check(CLI::Range(1, 1 << 20));
    command->add_flag("--memory", options->memory, "Load the model and print the memory it takes");
    command->add_option("--chip", options->chip, fmt::format("Bound on a chip's speed, from its data sheet: {}", chip_names()))->type_name("CHIP");
    command->add_option("--as", options->as, "What the engine makes of it for a GPU that need not be here: metal or cuda (--chip alone: metal)")->type_name("KIND");
    add_engine_flags(*command, options->engine);
    options->engine.tune = {"off"};   // what it prints does not run
    command->footer("Examples:\n"
                    "  forge inspect model.gguf\n"
                    "  forge inspect model.gguf --chip m4-pro\n"
                    "  forge inspect model.gguf --tensors --metadata\n"
                    "  forge inspect model.gguf --plan --pass -all\n"
                    "  forge inspect model.gguf --program 1 --memory --ctx 8192\n"
                    "  forge inspect model.gguf --memory --as metal");
    command->callback([options] {
        require_argument(options->model, "MODEL");
        inspect(*options);
    });
}

}  // namespace forge::cli
