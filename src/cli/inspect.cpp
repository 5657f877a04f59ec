// forge inspect: what each step from the file to the program returns.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "base/progress.h"
#include "commands.h"
#include "formats/model_file.h"
#include "options.h"
#include "table.h"

namespace forge::cli {
namespace {

struct InspectOptions {
    std::string model;
    bool tensors = false, metadata = false;
};

std::string_view name_of(ModelFormat format) {
    switch (format) {
        case ModelFormat::gguf: return "GGUF";
        case ModelFormat::huggingface: return "Hugging Face safetensors";
        case ModelFormat::mlx: return "MLX safetensors";
        case ModelFormat::forge: return "Forge";
    }
    return "unknown";
}

std::string type_of(const Tensor& tensor) {
    return std::string(tensor.is_block ? gguf_type_name(static_cast<std::uint32_t>(tensor.block)) : name_of(tensor.dtype));
}

std::string shape_of(const Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.shape, ", ")); }

void print_file(const ModelFile& file) {
    fmt::print("file          {}\n", file.path);
    fmt::print("format        {}, {} tensors, {}\n", name_of(file.format), file.tensors.size(), format_bytes(file.tensor_bytes()));
}

void print_types(const ModelFile& file) {
    struct Sum { std::size_t tensors = 0; std::int64_t elements = 0; std::uint64_t bytes = 0; };
    std::map<std::string, Sum> sums;
    for (const Tensor& tensor : file.tensors) {
        Sum& sum = sums[type_of(tensor)];
        ++sum.tensors;
        sum.elements += tensor.elements();
        sum.bytes += tensor.data.size();
    }
    Table table({{"type"}, {"tensors", Table::Align::right}, {"elements", Table::Align::right},
                 {"size", Table::Align::right}, {"bits/element", Table::Align::right}});
    for (const auto& [type, sum] : sums)
        table.add({type, std::to_string(sum.tensors), format_count(static_cast<double>(sum.elements)), format_bytes(sum.bytes),
                   sum.elements ? fmt::format("{:.2f}", 8.0 * static_cast<double>(sum.bytes) / static_cast<double>(sum.elements)) : "-"});
    fmt::print("\n{}", table.text());
}

void print_tensors(const ModelFile& file) {
    Table table({{"tensor"}, {"shape"}, {"type"}, {"size", Table::Align::right}});
    for (const Tensor& tensor : file.tensors)
        table.add({tensor.name, shape_of(tensor), type_of(tensor), format_bytes(tensor.data.size())});
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

void inspect(const InspectOptions& options) {
    const auto file = open_model_file(options.model);
    print_file(*file);
    print_types(*file);
    if (options.metadata) print_metadata(*file);
    if (options.tensors) print_tensors(*file);
}

}  // namespace

void add_inspect(CLI::App& app, int&) {
    auto options = std::make_shared<InspectOptions>();
    CLI::App* command = app.add_subcommand("inspect", "Print what a model file holds and what Forge makes of it");
    add_model_argument(*command, options->model);
    command->add_flag("--tensors", options->tensors, "List every tensor");
    command->add_flag("--metadata", options->metadata, "Print the metadata or config");
    command->footer("Examples:\n"
                    "  forge inspect model.gguf\n"
                    "  forge inspect model.gguf --tensors --metadata");
    command->callback([options] {
        require_argument(options->model, "MODEL");
        inspect(*options);
    });
}

}  // namespace forge::cli
