// forge gc: removes what no model of the store uses.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>

#include "base/progress.h"
#include "commands.h"
#include "options.h"
#include "store/store.h"

namespace forge::cli {

void add_gc(CLI::App& app, int&) {
    auto dry = std::make_shared<bool>(false);
    CLI::App* command = app.add_subcommand("gc", "Remove what no model in the store uses");
    command->add_flag("-n,--dry-run", *dry, "Only say what would be removed");
    add_log_flags(*command);
    command->footer("Downloads and packs that were stopped start afresh afterwards. Waits while another process adds a model.");
    command->callback([dry] {
        const GcResult result = Store::open().gc(*dry);
        fmt::print("{} {} blobs and {} unfinished files, {}\n", *dry ? "would remove" : "removed", result.blobs, result.partials, format_bytes(result.bytes));
    });
}

}  // namespace forge::cli
