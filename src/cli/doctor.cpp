// forge doctor: every kernel that a model needs, run on this machine and held against the plain ones.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "api/model_text.h"
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "commands.h"
#include "options.h"
#include "table.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct DoctorOptions {
    std::string model, output = "text";
    EngineFlags engine;
    bool full = false;
};

int doctor(const DoctorOptions& o) {
    if (o.output != "text" && o.output != "md" && o.output != "csv") fail_usage("--output should be text, md or csv, found {}", o.output);
    const auto engine = Engine::load(model_path(o.model), o.engine.options());
    std::vector<tune::Check> checks;
    {
        std::unique_ptr<Progress> progress;
        checks = engine->check_kernels(o.full, [&](std::size_t, std::size_t of) {
            if (!progress) progress = std::make_unique<Progress>("checking kernels", of, "kernels");
            progress->advance(1);
        });
    }
    using Align = Table::Align;
    Table table({{"device"}, {"kernel"}, {"shape"}, {"variant"}, {"rows", Align::right}, {"largest error", Align::right}, {"bound", Align::right},
                 {"rms", Align::right}, {"bound", Align::right}, {"check"}});
    for (const tune::Check& c : checks) {
        const auto number = [&](double value) { return c.error.empty() ? fmt::format("{:.2e}", value) : "-"; };
        table.add({engine->backend_name(), c.kernel, c.shape, c.variant, c.error.empty() ? std::to_string(c.rows) : "-", number(c.worst.max_error),
                   number(c.worst.max_bound()), number(c.worst.rms), number(c.worst.rms_bound), c.ok() ? "ok" : "FAILED"});
    }
    fmt::print("{}", o.output == "md" ? table.markdown() : o.output == "csv" ? table.csv() : table.text());
    const auto failed = std::count_if(checks.begin(), checks.end(), [](const tune::Check& c) { return !c.ok(); });
    for (const tune::Check& c : checks) {
        if (!c.error.empty()) log_message(LogLevel::error, fmt::format("{} {} does not run: {}", c.kernel, c.shape, c.error));
        else if (c.worst.not_numbers > 0) log_message(LogLevel::error, fmt::format("{} {}: {}", c.kernel, c.shape, c.worst.text()));
    }
    if (checks.empty()) fail(ErrorKind::internal, "{}: no kernel was found to check", o.model);
    if (o.output == "text") fmt::print("{} kernels, {}\n", checks.size(), failed == 0 ? "all as the plain ones" : fmt::format("{} failed", failed));
    return failed == 0 ? exit_ok : exit_failed;
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
    auto options = std::make_shared<DoctorOptions>();
    CLI::App* command = app.add_subcommand("doctor", "Check every kernel that a model needs against the plain ones");
    add_model_argument(*command, options->model);
    command->add_flag("--full", options->full, "Check every element of large products too, not a sample (slow)");
    command->add_option("-o,--output", options->output, "text, md or csv")->type_name("FORMAT");
    add_engine_flags(*command, options->engine);
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge doctor model.gguf\n"
                    "  forge doctor model.gguf --device cuda --dtype f16 --full\n"
                    "Kernels run as they do in use, with the model's weights, on steps that fill them and on ragged ones; what they\n"
                    "write is poisoned before. Exit status 1 when one is off by more than its bounds: 1/64 of the largest element,\n"
                    "and, over all of them, some roundings of the type.");
    command->callback([options, &status] {
        require_argument(options->model, "MODEL");
        status = doctor(*options);
    });
}

}  // namespace forge::cli
