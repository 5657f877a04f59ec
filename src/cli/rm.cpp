// forge rm: takes models out of the store.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "options.h"
#include "store/reference.h"
#include "usage.h"

namespace forge::cli {

void add_rm(CLI::App& app, int&) {
    auto names = std::make_shared<std::vector<std::string>>();
    CLI::App* command = app.add_subcommand("rm", "Take models out of the store");
    command->add_option("names", *names, "NAME[:TAG], or oci:HOST/NAME[:TAG] that was pulled")->type_name("NAME");
    add_log_flags(*command);
    command->footer("The space is free after `forge gc`: other models may share parts of it.");
    command->callback([names] {
        if (names->empty()) fail_usage("NAME is required");
        const Store store = Store::open();
        std::vector<ModelName> models;
        for (const std::string& text : *names) models.push_back(stored_model(store, text));
        for (const ModelName& name : models)
            if (store.remove_manifest(name)) fmt::print("removed {}\n", name.text());
    });
}

}  // namespace forge::cli
