// forge show: what a .forge model is made of and where it comes from.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>

#include "api/model_text.h"
#include "base/error.h"
#include "base/progress.h"
#include "commands.h"
#include "formats/forge_model.h"
#include "options.h"
#include "table.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct ShowOptions {
    std::string model;
    bool manifest = false, licence = false, blobs = false;
};

std::string text_of(const BlobBytes& blob) { return {reinterpret_cast<const char*>(blob.bytes.data()), blob.bytes.size()}; }

void print_values(const nlohmann::ordered_json& object) {
    for (const auto& [key, value] : object.items())
        fmt::print("{:<16}{}\n", key, value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void show(const ShowOptions& o) {
    const auto file = open_model_file(model_path(o.model));
    if (!file->packed) fail("{} is no .forge model; `forge inspect` describes it", o.model);
    const ForgeModel& packed = *file->packed;
    const Manifest& manifest = packed.manifest();
    if (o.manifest) {
        fmt::print("{}", manifest.dump());
        return;
    }
    if (o.licence) {
        bool any = false;
        for (std::size_t i = 0; i < manifest.blobs.size(); ++i) {
            if (manifest.blobs[i].role != "licence") continue;
            fmt::print("{}\n", text_of(packed.blob(i)));
            any = true;
        }
        if (!any && manifest.model.contains("licence")) print_values(manifest.model["licence"]);
        else if (!any) fmt::print("{} states no licence\n", o.model);
        return;
    }
    print_values(manifest.model);
    fmt::print("{:<16}{}\n{:<16}{}\n{:<16}{}\n{:<16}{}\n", "origin", manifest.origin, "layout", packed.layout(), "size", format_bytes(manifest.bytes()), "proof",
               manifest.find("proof") ? "yes" : "no");
    print_values(manifest.provenance);
    if (!o.blobs) return;
    Table table({{"role"}, {"name"}, {"size", Table::Align::right}, {"digest"}});
    for (const ManifestBlob& blob : manifest.blobs) table.add({blob.role, blob.name, format_bytes(blob.bytes), blob.digest.hex()});
    fmt::print("\n{}", table.text());
}

}  // namespace

void add_show(CLI::App& app, int&) {
    auto options = std::make_shared<ShowOptions>();
    CLI::App* command = app.add_subcommand("show", "Show what a .forge model holds and where it comes from");
    add_model_argument(*command, options->model);
    command->add_flag("--blobs", options->blobs, "List its blobs and their BLAKE3");
    command->add_flag("--manifest", options->manifest, "Print the manifest");
    command->add_flag("--licence,--license", options->licence, "Print the licence");
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge show qwen3:q4_k_m\n"
                    "  forge show model.forge --blobs");
    command->callback([options] {
        require_argument(options->model, "MODEL");
        show(*options);
    });
}

}  // namespace forge::cli
