// forge manual: the man page, made from the commands' own help. The build writes it for installation.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "commands.h"

namespace forge::cli {
namespace {

// roff: backslashes and dashes are escaped, and a line must not begin with a dot or an apostrophe.
std::string roff(const std::string& text) {
    std::string out;
    bool start = true;
    for (char c : text) {
        if (start && (c == '.' || c == '\'')) out += "\\&";
        if (c == '\\') {
            out += "\\e";
        } else if (c == '-') {
            out += "\\-";
        } else {
            out += c;
        }
        start = c == '\n';
    }
    return out;
}

std::string option_text(const CLI::Option& option) {
    std::string names;
    for (const std::string& name : option.get_snames()) names += (names.empty() ? "" : ", ") + ("-" + name);
    for (const std::string& name : option.get_lnames()) names += (names.empty() ? "" : ", ") + ("--" + name);
    std::string text = ".TP\n";
    if (names.empty()) {
        text += fmt::format(".I {}\n", roff(option.get_type_name().empty() ? option.get_name() : option.get_type_name()));
    } else if (option.get_items_expected_max() > 0) {
        text += fmt::format(".BI \"{} \" {}\n", roff(names), roff(option.get_type_name().empty() ? "VALUE" : option.get_type_name()));
    } else {
        text += fmt::format(".B {}\n", roff(names));
    }
    return text + roff(option.get_description()) + "\n";
}

std::string command_text(const CLI::App& command) {
    std::string text = fmt::format(".SS forge {}\n{}.\n", roff(command.get_name()), roff(command.get_description()));
    for (const CLI::Option* option : command.get_options()) text += option_text(*option);
    return text + fmt::format(".PP\n.nf\n{}\n.fi\n", roff(command.get_footer()));
}

constexpr const char* closing = R"(.SH EXIT STATUS
.TP
.B 0
Done.
.TP
.B 1
The input is wrong, or a check that was asked for failed.
.TP
.B 2
The command line is wrong; with
.B forge eval \-\-reference
also a file that cannot be read.
.TP
.B 3
The model or context does not fit in memory.
.TP
.B 4
A bug of Forge.
.TP
.B 130
Interrupted.
.SH ENVIRONMENT
.TP
.B FORGE_HOME
One folder for data, cache and config, instead of the system's usual ones.
.TP
.B FORGE_ISA
Instruction set of the CPU kernels: avx512, avx2, neon or plain.
.TP
.B FORGE_TUNE
What holds where
.B \-\-tune
is not given: off, fast, full or auto.
.TP
.B HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_ENDPOINT
Token, folders and address of the Hugging Face hub, for
.BR "forge pull" .
.TP
.B NO_COLOR
No colours when set.
.TP
.B SOURCE_DATE_EPOCH
The date that chat templates see in
.BR "forge template" .
.SH FILES
.TP
.I ~/.cache/forge
Downloaded models, and what was tuned; may be deleted.
.TP
.I ~/.config/forge/credentials.json
What
.B forge login
keeps.
.TP
.I ~/.local/share/forge/chat_history
What was typed in
.BR "forge chat" .
)";

}  // namespace

void add_manual(CLI::App& app, int&) {
    CLI::App* command = app.add_subcommand("manual", "Print the manual page as roff");
    command->footer("Examples:\n  forge manual | man -l -");
    command->callback([&app] {
        fmt::print(".TH FORGE 1 \"\" \"forge {}\" \"User Commands\"\n.SH NAME\nforge \\- run large language models on your own machine\n"
                   ".SH SYNOPSIS\n.B forge\n.I COMMAND\n[\n.I OPTIONS\n] ...\n.SH DESCRIPTION\n{}\n"
                   "Answers go to standard output, everything else to standard error.\n.SH COMMANDS\n",
                   FORGE_VERSION, roff(app.get_description()));
        for (const CLI::App* shown : app.get_subcommands([](const CLI::App*) { return true; })) fmt::print("{}", command_text(*shown));
        std::fputs(closing, stdout);
    });
}

}  // namespace forge::cli
