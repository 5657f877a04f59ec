// forge: parses the command line, runs one command, turns errors into sentences and exit statuses.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "commands.h"
#include "usage.h"

namespace {

using namespace forge;
using namespace forge::cli;

int exit_status(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::out_of_memory: return exit_out_of_memory;
        case ErrorKind::internal: return exit_bug;
        default: return exit_failed;
    }
}

// The command that the arguments reached, for "see forge run --help".
std::string command_path(const CLI::App& app) {
    const auto chosen = app.get_subcommands();
    return chosen.empty() ? app.get_name() : app.get_name() + " " + chosen.front()->get_name();
}

// CLI11 throws --help and --version too; everything else is a usage error.
int say_parse_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    if (argc < 2) {
        std::fputs(app.help().c_str(), stderr);
        return exit_usage;
    }
    if (app.get_subcommands().empty() && argv[1][0] != '-') {
        std::string names;
        for (const CLI::App* command : app.get_subcommands({})) names += (names.empty() ? "" : ", ") + command->get_name();
        log_message(LogLevel::error, fmt::format("there is no command {}; there are {}", argv[1], names));
        return exit_usage;
    }
    log_message(LogLevel::error, fmt::format("{} (see {} --help)", error.what(), command_path(app)));
    return exit_usage;
}

}  // namespace

int main(int argc, char** argv) {
    int status = exit_ok;
    CLI::App app("Forge runs large language models on your own machine.", "forge");
    app.set_version_flag("--version", "forge " FORGE_VERSION);
    app.require_subcommand(1);
    app.option_defaults()->take_last();  // of an option given twice the last counts
    app.footer("`forge COMMAND --help` describes a command and shows examples.\n"
               "Exit status: 0 done, 1 wrong input or a check that failed, 2 wrong command line,\n"
               "3 does not fit in memory, 4 a bug of Forge, 130 interrupted.");
    add_run(app, status);
    add_chat(app, status);
    add_serve(app, status);
    add_bench(app, status);
    add_profile(app, status);
    add_tune(app, status);
    add_doctor(app, status);
    add_eval(app, status);
    add_inspect(app, status);
    add_tokenize(app, status);
    add_template(app, status);
    add_quantize(app, status);
    add_synth(app, status);
    add_pack(app, status);
    add_list(app, status);
    add_show(app, status);
    add_rm(app, status);
    add_gc(app, status);
    add_verify(app, status);
    add_pull(app, status);
    add_push(app, status);
    add_login(app, status);
    add_logout(app, status);
    add_completion(app, status);
    add_manual(app, status);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return say_parse_error(app, error, argc, argv);
    } catch (const UsageError& error) {
        log_message(LogLevel::error, fmt::format("{} (see {} --help)", error.what(), command_path(app)));
        return exit_usage;
    } catch (const Error& error) {
        log_message(LogLevel::error, error.what());
        return exit_status(error.kind());
    } catch (const std::bad_alloc&) {
        log_message(LogLevel::error, "memory ran out; a smaller --ctx or a smaller model may fit");
        return exit_out_of_memory;
    } catch (const std::exception& error) {
        log_message(LogLevel::error, fmt::format("{}; this is a bug of Forge, please report it", error.what()));
        return exit_bug;
    }
    if (std::fflush(stdout) != 0) {
        log_message(LogLevel::error, "the output could not be written");
        return exit_failed;
    }
    return status;
}
