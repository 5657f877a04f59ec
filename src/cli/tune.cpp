// forge tune: times the variants of every kernel that a model needs, and keeps which are fastest.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>
#include <string>

#include "api/model_text.h"
#include "commands.h"
#include "options.h"
#include "table.h"
#include "tune/site.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct TuneCommand {
    std::string model, output = "text";
    EngineFlags engine;
};

std::string milliseconds(double seconds) { return seconds > 0 ? fmt::format("{:.3f}", seconds * 1e3) : "-"; }

int tune_model(const TuneCommand& o) {
    if (o.output != "text" && o.output != "md" && o.output != "csv") fail_usage("--output should be text, md or csv, found {}", o.output);
    LoadOptions load = o.engine.options();
    if (o.engine.tune.empty()) load.tune = "full";
    load.tune_anew = true;
    const auto engine = Engine::load(model_path(o.model), load);
    const tune::TuneReport& report = engine->tuning();
    using Align = Table::Align;
    Table table({{"kernel"}, {"shape"}, {"rows", Align::right}, {"variant"}, {"ms", Align::right}, {"vs default", Align::right}, {""}});
    for (const tune::SiteReport& site : report.sites)
        for (const tune::TimedVariant& v : site.variants) {
            const double standard = site.variants.front().seconds;
            const std::string kernel = tune::short_name(site.site);
            table.add({kernel.substr(0, kernel.find(' ')), tune::shape_name(site.site), std::to_string(site.rows), v.name, milliseconds(v.seconds),
                       v.seconds > 0 && standard > 0 ? fmt::format("{:.2f}x", standard / v.seconds) : "-",
                       v.wrong ? "wrong: " + v.error : v.name == site.picked ? "picked" : ""});
        }
    fmt::print("{}", o.output == "md" ? table.markdown() : o.output == "csv" ? table.csv() : table.text());
    if (o.output != "text") return exit_ok;
    if (report.sites.empty()) fmt::print("{}: there is nothing to choose\n", engine->backend_name());
    else fmt::print("{}: {} choices in {:.1f} s, kept in {}\n", engine->backend_name(), report.sites.size(), report.seconds, report.file.string());
    return exit_ok;
}

}  // namespace

void add_tune(CLI::App& app, int& status) {
    auto options = std::make_shared<TuneCommand>();
    CLI::App* command = app.add_subcommand("tune", "Time the kernels that a model needs on this machine, and keep the fastest");
    add_model_argument(*command, options->model);
    command->add_option("-o,--output", options->output, "text, md or csv")->type_name("FORMAT");
    add_engine_flags(*command, options->engine);
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge tune model.gguf\n"
                    "  forge tune model.gguf --tune fast        # as the first start does\n"
                    "  forge tune model.gguf -c 32768 --dtype f16\n"
                    "Every variant is checked against the plain kernels before it is timed; one that is wrong is named and\n"
                    "never picked. What is kept serves the same model shape, context, type, device, driver and version of Forge.");
    command->callback([options, &status] {
        require_argument(options->model, "MODEL");
        status = tune_model(*options);
    });
}

}  // namespace forge::cli
