// forge completion: scripts for bash, zsh and fish, made from the options themselves.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "usage.h"

namespace forge::cli {
namespace {

// Values that an option takes, where there are only a few.
const std::map<std::string, std::string>& known_values() {
    static const std::map<std::string, std::string> values{
        {"--dtype", "bf16 f16 f32"}, {"--device", "auto cpu"}, {"--output", "md json csv text"}, {"--format", "gguf hf mlx"},
        {"--reasoning-effort", "low medium high"}, {"--layout", "auto rows tiled16"}, {"--tune", "off fast full auto"}};
    return values;
}

std::vector<const CLI::App*> shown_commands(const CLI::App& app) {
    std::vector<const CLI::App*> commands;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); })) commands.push_back(command);
    return commands;
}

// Named options; positional arguments have no names to complete.
std::vector<const CLI::Option*> named_options(const CLI::App& command) {
    std::vector<const CLI::Option*> options;
    for (const CLI::Option* option : command.get_options())
        if (!option->get_lnames().empty() || !option->get_snames().empty()) options.push_back(option);
    return options;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::vector<std::string> names(const CLI::Option& option) {
    std::vector<std::string> all;
    for (const std::string& name : option.get_snames()) all.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) all.push_back("--" + name);
    return all;
}

std::string replaced(std::string text, const std::string& characters, const std::string& before) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (characters.find(text[i]) == std::string::npos) continue;
        text.insert(i, before);
        i += before.size();
    }
    return text;
}

std::string command_names(const CLI::App& app) {
    std::string all;
    for (const CLI::App* command : shown_commands(app)) all += (all.empty() ? "" : " ") + command->get_name();
    return all;
}

std::string bash_script(const CLI::App& app) {
    std::string out = "# bash completion of forge\n_forge() {\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n";
    out += fmt::format("        COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$cur\"))\n        return\n    fi\n", command_names(app));
    out += "    case $prev in\n";
    for (const auto& [name, values] : known_values())
        out += fmt::format("        {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n", name, values);
    out += "    esac\n    local options=\n    case $command in\n";
    for (const CLI::App* command : shown_commands(app)) {
        std::string words;
        for (const CLI::Option* option : named_options(*command))
            for (const std::string& name : names(*option)) words += (words.empty() ? "" : " ") + name;
        out += fmt::format("        {}) options=\"{}\" ;;\n", command->get_name(), words);
    }
    return out + "    esac\n    case $cur in\n"
        "        -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
        "        *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
        "    esac\n}\ncomplete -o filenames -F _forge forge\n";
}

std::string zsh_script(const CLI::App& app) {
    std::string out = "#compdef forge\n_forge() {\n    local -a commands\n    commands=(\n";
    for (const CLI::App* command : shown_commands(app))
        out += fmt::format("        '{}:{}'\n", command->get_name(), replaced(replaced(command->get_description(), ":", "\\"), "'", "'\\'"));
    out += "    )\n    local state\n    _arguments -C '--help[show help]' '--version[show the version]' '1:command:->command' '*::argument:->argument'\n"
        "    case $state in\n        command) _describe command commands ;;\n        argument)\n            case $words[1] in\n";
    for (const CLI::App* command : shown_commands(app)) {
        out += fmt::format("                {}) _arguments", command->get_name());
        for (const CLI::Option* option : named_options(*command)) {
            const std::string text = replaced(replaced(option->get_description(), "[]:\\", "\\"), "'", "'\\'");
            for (const std::string& name : names(*option)) {
                std::string value;
                if (takes_value(*option)) {
                    const auto known = known_values().find(name);
                    value = known == known_values().end() ? ":value:_files" : fmt::format(":value:({})", known->second);
                }
                out += fmt::format(" \\\n                    '*{}[{}]{}'", name, text, value);
            }
        }
        out += " \\\n                    '*:file:_files' ;;\n";
    }
    return out + "            esac ;;\n    esac\n}\n_forge \"$@\"\n";
}

std::string fish_script(const CLI::App& app) {
    const auto quoted = [](const std::string& text) { return "'" + replaced(text, "'\\", "\\") + "'"; };
    std::string out = "# fish completion of forge\n";
    for (const CLI::App* command : shown_commands(app)) {
        out += fmt::format("complete -c forge -f -n __fish_use_subcommand -a {} -d {}\n", command->get_name(), quoted(command->get_description()));
        for (const CLI::Option* option : named_options(*command)) {
            std::string line = fmt::format("complete -c forge -n '__fish_seen_subcommand_from {}'", command->get_name());
            std::string values;
            for (const std::string& name : option->get_snames()) line += " -s " + name;
            for (const std::string& name : option->get_lnames()) {
                line += " -l " + name;
                if (const auto known = known_values().find("--" + name); known != known_values().end()) values = known->second;
            }
            if (takes_value(*option)) line += values.empty() ? " -r" : fmt::format(" -x -a '{}'", values);
            out += line + " -d " + quoted(option->get_description()) + "\n";
        }
    }
    return out;
}

}  // namespace

void add_completion(CLI::App& app, int&) {
    auto shell = std::make_shared<std::string>();
    CLI::App* command = app.add_subcommand("completion", "Print a completion script for bash, zsh or fish");
    command->add_option("shell", *shell, "bash, zsh or fish")->type_name("SHELL");
    command->footer("Examples:\n"
                    "  forge completion bash > ~/.local/share/bash-completion/completions/forge\n"
                    "  forge completion zsh > ~/.zfunc/_forge\n"
                    "  forge completion fish > ~/.config/fish/completions/forge.fish");
    command->callback([shell, &app] {
        std::string script;
        if (*shell == "bash") {
            script = bash_script(app);
        } else if (*shell == "zsh") {
            script = zsh_script(app);
        } else if (*shell == "fish") {
            script = fish_script(app);
        } else if (shell->empty()) {
            fail_usage("SHELL is required: bash, zsh or fish");
        } else {
            fail_usage("SHELL should be bash, zsh or fish, found {}", *shell);
        }
        std::fputs(script.c_str(), stdout);
    });
}

}  // namespace forge::cli
