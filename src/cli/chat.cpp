// forge chat: a conversation on the terminal, or line by line from a pipe.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "answer.h"
#include "api/model_text.h"
#include "base/error.h"
#include "base/log.h"
#include "base/paths.h"
#include "chat_state.h"
#include "commands.h"
#include "interrupt.h"
#include "line_editor.h"
#include "options.h"

namespace forge::cli {
namespace {

struct ChatOptions {
    std::string model, system;
    EngineFlags engine;
    SamplingFlags sampling;
    ThinkingFlags thinking;
    ReplyOptions reply;
    bool stats = false;
};

enum class Input { message, nothing, end };

// One message: a line, lines joined by a final backslash, or a block between """ and """.
Input read_message(LineEditor& editor, InterruptGuard& interrupt, std::string& message) {
    message.clear();
    std::string line;
    bool block = false, first = true;
    for (;;) {
        const auto result = editor.read(first ? "> " : ". ", line);
        if (result == LineEditor::Result::interrupted) {
            interrupt.reset();
            std::fputs("\n", stdout);
            return Input::nothing;
        }
        if (result == LineEditor::Result::end) return message.empty() ? Input::end : Input::message;
        if (first && line.compare(0, 3, "\"\"\"") == 0) {
            block = true;
            line.erase(0, 3);
        }
        first = false;
        if (block) {
            const bool last = line.size() >= 3 && line.compare(line.size() - 3, 3, "\"\"\"") == 0;
            if (last) line.resize(line.size() - 3);
            message += line;
            if (last) return Input::message;
            if (!message.empty()) message += '\n';
        } else if (!line.empty() && line.back() == '\\') {
            line.pop_back();
            message += line + '\n';
        } else {
            message += line;
            return message.find_first_not_of(" \t\n") == std::string::npos ? Input::nothing : Input::message;
        }
    }
}

// Answers the conversation's last message; it is taken back when nothing came of it.
void answer(ChatState& state, InterruptGuard& interrupt, bool stats) {
    AnswerPrinter printer(state.thinking.show());
    PromptProgress progress;
    interrupt.reset();
    try {
        const Prompt prompt = state.model->text().chat_prompt(state.all_messages(), state.thinking.variables());
        state.last = reply(*state.model, *state.session, prompt, state.options,
            [&](PieceKind kind, std::string_view piece) {
                printer.print(kind, piece);
                return !interrupt.requested();
            },
            [&](int done, int total) { return progress(done, total) && !interrupt.requested(); });
    } catch (const Error&) {
        progress.clear();
        printer.finish();
        state.messages.erase(state.messages.size() - 1);
        throw;
    }
    progress.clear();
    printer.finish();
    if (state.last.reason == FinishReason::cancelled) std::fputs("(stopped)\n", stderr);
    if (state.last.text.empty() && state.last.reason == FinishReason::cancelled) {
        state.messages.erase(state.messages.size() - 1);
        return;
    }
    nlohmann::ordered_json message = {{"role", "assistant"}, {"content", state.last.text}};
    if (!state.last.reasoning.empty()) message["reasoning_content"] = state.last.reasoning;
    state.messages.push_back(std::move(message));
    if (state.last.reason == FinishReason::length && state.full())
        log_warn("the context of {} tokens is full, so the answer ends here. /clear starts afresh; --ctx makes it longer",
                 state.session->capacity());
    if (stats) print_timings(state.last, -1);
}

int chat(const ChatOptions& o) {
    ChatState state;
    state.model = TextModel::load(o.model, o.engine.options());
    if (!state.model->text().has_chat_template())
        fail("{} has no chat template, so it cannot chat; forge run --raw continues a text with it", o.model);
    state.session = std::make_unique<Session>(state.model->engine());
    state.system = o.system;
    state.thinking = o.thinking;
    state.options = o.reply;
    state.options.sampling = o.sampling.apply(default_sampling(state.model->engine()->file()));

    InterruptGuard interrupt;
    LineEditor editor((data_folder() / "chat_history").string());
    if (editor.terminal()) {
        const ModelSpec& spec = state.model->engine()->spec();
        fmt::print(stderr, "{} on {}, {} tokens of context. /help lists commands, Ctrl-D leaves.\n",
                   spec.name.empty() ? spec.architecture : spec.name, state.model->engine()->backend_name(), state.session->capacity());
    }
    int failures = 0;
    std::string message;
    while (!state.leave) {
        const Input input = read_message(editor, interrupt, message);
        if (input == Input::end) break;
        if (input == Input::nothing) continue;
        try {
            if (message[0] == '/') {
                run_chat_command(state, message);
            } else {
                state.messages.push_back({{"role", "user"}, {"content", message}});
                answer(state, interrupt, o.stats);
            }
        } catch (const Error& error) {
            ++failures;
            log_message(LogLevel::error, error.what());
            if (!state.messages.empty() && message[0] != '/') std::fputs("/clear starts afresh\n", stderr);
        }
        // A script that is interrupted should end; a person wants the next prompt.
        if (interrupt.requested() && !editor.terminal()) return exit_interrupted;
    }
    if (editor.terminal()) std::fputs("\n", stdout);
    return failures && !editor.terminal() ? exit_failed : exit_ok;
}

}  // namespace

void add_chat(CLI::App& app, int& status) {
    auto options = std::make_shared<ChatOptions>();
    CLI::App* command = app.add_subcommand("chat", "Talk with a model");
    add_model_argument(*command, options->model);
    command->add_option("--system", options->system, "System message")->type_name("TEXT");
    command->add_option("-n,--max-tokens,--n-predict", options->reply.max_tokens, "Most tokens of one answer (default: until the model ends)")
        ->type_name("N")->check(CLI::Range(-1, 1 << 30));
    command->add_option("--stop", options->reply.stop, "End an answer before this text; can be repeated")
        ->type_name("TEXT")->expected(1)->take_all()->allow_extra_args(false);
    options->thinking.add(*command);
    options->sampling.add(*command);
    add_engine_flags(*command, options->engine);
    command->add_flag("--stats,--timings", options->stats, "Print timings after each answer");
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge chat model.gguf\n"
                    "  forge chat model.gguf --system \"Answer in one sentence.\" --temp 0.2\n"
                    "  forge chat model.gguf < questions.txt\n"
                    "In the conversation /help lists the commands, and Ctrl-C stops an answer.");
    command->callback([options, &status] {
        require_argument(options->model, "MODEL");
        status = chat(*options);
    });
}

}  // namespace forge::cli
