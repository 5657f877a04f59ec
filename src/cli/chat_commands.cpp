// The /commands of forge chat: a table of name, arguments, help and function.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <functional>

#include "answer.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/paths.h"
#include "chat_state.h"

namespace forge::cli {
namespace {

using Json = nlohmann::ordered_json;

template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    std::fwrite(text.data(), 1, text.size(), stderr);
}

// ---- /set -------------------------------------------------------------------------------------

double parse_number(const std::string& name, const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != 0) fail("/set {} wants a number, found '{}'", name, text);
    return value;
}

// One setting: how to print it and how to change it.
struct Setting {
    const char* name;
    std::function<std::string(const ReplyOptions&)> show;
    std::function<void(ReplyOptions&, double)> change;
};

template <typename T>
Setting sampling_setting(const char* name, T SamplingOptions::*member) {
    return {name, [member](const ReplyOptions& o) { return fmt::format("{}", o.sampling.*member); },
            [member, name](ReplyOptions& o, double value) {
                if constexpr (std::is_integral_v<T>) {
                    if (value != static_cast<double>(static_cast<std::int64_t>(value)) || value < (std::is_signed_v<T> ? -1 : 0) || value > 9e15)
                        fail("/set {} wants a whole number of {} or more, found {}", name, std::is_signed_v<T> ? -1 : 0, value);
                }
                SamplingOptions changed = o.sampling;
                changed.*member = static_cast<T>(value);
                check_options(changed);
                o.sampling = changed;
            }};
}

const std::vector<Setting>& settings() {
    static const std::vector<Setting> all{
        sampling_setting("temp", &SamplingOptions::temperature),
        sampling_setting("top-k", &SamplingOptions::top_k),
        sampling_setting("top-p", &SamplingOptions::top_p),
        sampling_setting("min-p", &SamplingOptions::min_p),
        sampling_setting("typical-p", &SamplingOptions::typical_p),
        sampling_setting("repeat-penalty", &SamplingOptions::repetition_penalty),
        sampling_setting("presence-penalty", &SamplingOptions::presence_penalty),
        sampling_setting("frequency-penalty", &SamplingOptions::frequency_penalty),
        sampling_setting("repeat-last-n", &SamplingOptions::penalty_window),
        sampling_setting("seed", &SamplingOptions::seed),
        {"max-tokens", [](const ReplyOptions& o) { return fmt::format("{}", o.max_tokens); },
         [](ReplyOptions& o, double value) {
             if (value < -1 || value > 1e9 || value != static_cast<int>(value))
                 fail("/set max-tokens wants a count, or -1 for no limit, found {}", value);
             o.max_tokens = static_cast<int>(value);
         }},
    };
    return all;
}

void set(ChatState& state, const std::string& arguments) {
    if (arguments.empty()) {
        for (const Setting& setting : settings()) say("{:18} {}\n", setting.name, setting.show(state.options));
        return;
    }
    const std::size_t space = arguments.find_first_of(" =");
    const std::string name = arguments.substr(0, space);
    for (const Setting& setting : settings()) {
        if (name != setting.name && !(name == "temperature" && setting.name == std::string("temp"))) continue;
        if (space != std::string::npos) {
            const std::size_t value = arguments.find_first_not_of(" =", space);
            setting.change(state.options, parse_number(name, value == std::string::npos ? "" : arguments.substr(value)));
        }
        say("{} is {}\n", setting.name, setting.show(state.options));
        return;
    }
    fail("there is no setting {}; /set alone lists them", name);
}

// ---- /save, /load -----------------------------------------------------------------------------

std::string cache_file(const std::string& path) { return path + ".cache"; }

void save(ChatState& state, const std::string& path) {
    if (path.empty()) fail("/save wants a file name");
    const Json saved = {{"format", "forge-chat-1"}, {"system", state.system}, {"messages", state.messages}};
    write_file_atomically(path, saved.dump(2) + "\n");
    if (!state.session->tokens().empty()) state.session->save(cache_file(path));
    say("saved {} messages to {}, and what was computed to {}\n", state.messages.size(), path, cache_file(path));
}

void load(ChatState& state, const std::string& path) {
    if (path.empty()) fail("/load wants a file name");
    const Json saved = parse_json<Json>(read_file(path), path, false);
    if (!saved.is_object() || !saved.contains("format") || saved["format"] != "forge-chat-1" || !saved.contains("messages") ||
        !saved["messages"].is_array())
        fail("{} is not a saved conversation", path);
    for (const Json& message : saved["messages"])
        if (!message.is_object() || !message.contains("role") || !message["role"].is_string() || !message.contains("content"))
            fail("{} holds a message without role or content", path);
    state.messages = saved["messages"];
    state.system = saved.contains("system") && saved["system"].is_string() ? saved["system"].get<std::string>() : "";
    state.session->clear();
    say("loaded {} messages from {}\n", state.messages.size(), path);
    std::error_code ignored;
    if (!std::filesystem::exists(cache_file(path), ignored)) return;
    try {
        state.session->restore(cache_file(path));
    } catch (const Error& error) {
        log_warn("the conversation is read again by the model, because its cache cannot be used: {}", error.what());
    }
}

// ---- the others -------------------------------------------------------------------------------

void clear(ChatState& state, const std::string&) {
    state.messages = Json::array();
    state.session->clear();
    say("the conversation is empty{}\n", state.system.empty() ? "" : " (the system message stays; /system off removes it)");
}

void system_message(ChatState& state, const std::string& text) {
    if (text.empty()) {
        say("{}\n", state.system.empty() ? "there is no system message" : state.system);
        return;
    }
    state.system = text == "off" ? "" : text;
    say("{}; it counts from the next answer on\n", state.system.empty() ? "the system message is removed" : "the system message is set");
}

void think(ChatState& state, const std::string& text) {
    if (text != "on" && text != "off" && text != "auto") fail("/think wants on, off or auto, found '{}'", text);
    state.thinking.think = text == "auto" ? std::nullopt : std::optional<bool>(text == "on");
    say("thinking is {}, where the model's template can switch it\n", text);
}

void stats(ChatState& state, const std::string&) {
    print_timings(state.last, -1);
    say("context:     {:6} of {} tokens used, {} messages\n", state.session->tokens().size(), state.session->capacity(), state.messages.size());
    const MemoryUse memory = state.model->engine()->memory();
    say("memory:      weights {:.0f} MiB, cache {:.0f} MiB, scratch {:.0f} MiB\n", static_cast<double>(memory.weights) / 1048576,
        static_cast<double>(memory.kv_cache) / 1048576, static_cast<double>(memory.scratch) / 1048576);
}

void leave(ChatState& state, const std::string&) { state.leave = true; }

void help(ChatState&, const std::string&);

struct ChatCommand {
    const char* name;
    const char* arguments;
    const char* text;
    void (*run)(ChatState&, const std::string&);
};

constexpr ChatCommand commands[] = {
    {"help", "", "this list", help},
    {"clear", "", "forget the conversation", clear},
    {"system", "[TEXT|off]", "show, set or remove the system message", system_message},
    {"set", "[NAME VALUE]", "show or change temp, top-k, top-p, min-p, seed, max-tokens, ...", set},
    {"think", "on|off|auto", "whether the model thinks before it answers", think},
    {"save", "FILE", "save the conversation", save},
    {"load", "FILE", "go on with a saved conversation", load},
    {"stats", "", "speed of the last answer, context and memory in use", stats},
    {"exit", "", "leave (also Ctrl-D)", leave},
};

void help(ChatState&, const std::string&) {
    for (const ChatCommand& command : commands)
        say("  {:24} {}\n", fmt::format("/{} {}", command.name, command.arguments), command.text);
    say("A line that ends with a backslash goes on in the next; \"\"\" begins and ends a text of several lines.\n"
        "Ctrl-C stops an answer.\n");
}

}  // namespace

Json ChatState::all_messages() const {
    Json all = Json::array();
    if (!system.empty()) all.push_back({{"role", "system"}, {"content", system}});
    for (const Json& message : messages) all.push_back(message);
    return all;
}

bool ChatState::full() const { return static_cast<int>(session->tokens().size()) >= session->capacity(); }

void run_chat_command(ChatState& state, const std::string& line) {
    const std::size_t space = line.find(' ');
    std::string name = line.substr(1, space == std::string::npos ? std::string::npos : space - 1);
    const std::size_t first = space == std::string::npos ? std::string::npos : line.find_first_not_of(' ', space);
    std::string arguments = first == std::string::npos ? "" : line.substr(first);
    arguments.erase(arguments.find_last_not_of(' ') + 1);
    if (name == "quit" || name == "bye") name = "exit";
    if (name == "?") name = "help";
    for (const ChatCommand& command : commands)
        if (name == command.name) return command.run(state, arguments);
    fail("there is no command /{}; /help lists them", name);
}

}  // namespace forge::cli
