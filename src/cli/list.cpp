// forge list: the models in the store.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "commands.h"
#include "formats/forge_manifest.h"
#include "options.h"
#include "store/store.h"
#include "table.h"

namespace forge::cli {
namespace {

int list() {
    const Store store = Store::open();
    Table table({{"name"}, {"architecture"}, {"parameters", Table::Align::right}, {"size", Table::Align::right}, {"weights"}, {"made from"}});
    std::set<Digest> blobs;
    std::uint64_t bytes = 0;
    int status = exit_ok;
    std::size_t count = 0;
    for (const ModelName& name : store.list()) {
        const auto text = store.read_manifest(name);
        if (!text) continue;
        try {
            const Manifest manifest = Manifest::parse(*text, store.manifest_path(name).string());
            const auto word = [&](const char* key) { return manifest.model.value(key, nlohmann::ordered_json()); };
            const auto architecture = word("architecture"), parameters = word("parameters"), weights = word("weights");
            table.add({name.text(), architecture.is_string() ? architecture.get<std::string>() : "", parameters.is_number() ? format_count(parameters.get<double>()) : "",
                       format_bytes(manifest.bytes()), weights.is_object() && !weights.empty() ? weights.begin().key() : "", manifest.origin});
            for (const ManifestBlob& blob : manifest.blobs)
                if (blobs.insert(blob.digest).second) bytes += blob.bytes;
            ++count;
        } catch (const Error& error) {
            log_message(LogLevel::error, error.what());
            status = exit_failed;
        }
    }
    if (count == 0) {
        fmt::print("the store ({}) is empty; `forge pack MODEL -o NAME` adds a model\n", store.root().string());
        return status;
    }
    fmt::print("{}\n{} in {}\n", table.text(), format_bytes(bytes), store.root().string());
    return status;
}

}  // namespace

void add_list(CLI::App& app, int& status) {
    CLI::App* command = app.add_subcommand("list", "List the models in the store");
    command->alias("ls");
    add_log_flags(*command);
    command->footer("Sizes are those of whole models; the last line counts what they share once.");
    command->callback([&status] { status = list(); });
}

}  // namespace forge::cli
