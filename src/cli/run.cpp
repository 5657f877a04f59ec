// forge run: one prompt, one answer.
#include <CLI/CLI.hpp>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "answer.h"
#include "api/model_text.h"
#include "api/text_model.h"
#include "base/error.h"
#include "base/log.h"
#include "commands.h"
#include "grammar/compile.h"
#include "input.h"
#include "interrupt.h"
#include "options.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct RunOptions {
    std::string model, file, system;
    std::vector<std::string> prompt;
    EngineFlags engine;
    SamplingFlags sampling;
    ThinkingFlags thinking;
    ReplyOptions reply;
    std::string schema, schema_file, grammar, grammar_file;
    bool raw = false, stats = false, echo = false;
};

// What the answer is held to; null: nothing.
std::shared_ptr<const Grammar> answer_grammar(const RunOptions& o) {
    const bool schema = !o.schema.empty() || !o.schema_file.empty();
    if (schema && !(o.grammar.empty() && o.grammar_file.empty())) fail_usage("an answer is held to a schema or to a grammar, not both");
    if (!o.grammar_file.empty()) return std::make_shared<Grammar>(compile_gbnf(read_input(o.grammar_file)));
    if (!o.grammar.empty()) return std::make_shared<Grammar>(compile_gbnf(o.grammar));
    if (!schema) return nullptr;
    // As llama.cpp has it, a schema is given as it is; a file's name is taken too, because no schema looks like one.
    const bool inline_text = o.schema_file.empty() && (o.schema.find_first_of("{") != std::string::npos || o.schema == "true");
    const std::string from = o.schema_file.empty() ? o.schema : o.schema_file;
    const std::string text = inline_text ? o.schema : read_input(from);
    const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
    if (json.is_discarded()) fail("{} is not JSON", inline_text ? "the schema" : from);
    return std::make_shared<Grammar>(compile_schema(json));
}

std::string prompt_of(const RunOptions& o) {
    std::string text;
    for (const std::string& word : o.prompt) text += (text.empty() ? "" : " ") + word;
    if (text == "-") text = read_input("-");
    if (!o.file.empty()) {
        const std::string file = read_input(o.file);
        text = text.empty() ? file : text + "\n\n" + file;
    }
    if (o.prompt.empty() && o.file.empty()) {
        if (isatty(0))
            fail_usage("a prompt is required: as an argument, with -f FILE or on standard input (forge chat holds a conversation)");
        text = read_input("-");
    }
    if (text.empty()) fail("the prompt is empty");
    return text;
}

Prompt build_prompt(const RunOptions& o, const TextModel& model, const std::string& text) {
    if (o.raw || !model.text().has_chat_template()) {
        if (!o.raw) log_info("the model has no chat template; the prompt is continued as plain text");
        if (!o.system.empty()) fail("a system message needs a chat template{}", o.raw ? ", and --raw uses none" : ", and this model has none");
        return model.text().raw_prompt(text);
    }
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    if (!o.system.empty()) messages.push_back({{"role", "system"}, {"content", o.system}});
    messages.push_back({{"role", "user"}, {"content", text}});
    return model.text().chat_prompt(messages, o.thinking.variables());
}

int run(const RunOptions& o) {
    const std::string text = prompt_of(o);
    const auto grammar = answer_grammar(o);
    const auto start = std::chrono::steady_clock::now();
    const auto model = TextModel::load(o.model, o.engine.options());
    ReplyOptions options = o.reply;
    if (grammar) options.constraint = hold_to(grammar, model->vocabulary());
    options.sampling = o.sampling.apply(default_sampling(model->engine()->file()));
    const Prompt prompt = build_prompt(o, *model, text);
    Session session(model->engine());
    const double load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

    InterruptGuard interrupt;
    AnswerPrinter printer(o.thinking.show());
    PromptProgress progress;
    if (o.echo) printer.print(PieceKind::answer, prompt.text);
    const Reply answer = reply(*model, session, prompt, options,
        [&](PieceKind kind, std::string_view piece) {
            printer.print(kind, piece);
            return !interrupt.requested();
        },
        [&](int done, int total) { return progress(done, total) && !interrupt.requested(); });
    progress.clear();
    printer.finish();
    if (answer.reason == FinishReason::length && session.tokens().size() >= static_cast<std::size_t>(session.capacity()))
        log_warn("the context of {} tokens is full, so the answer ends here; --ctx makes it longer", session.capacity());
    if (o.stats) {
        print_timings(answer, load_seconds);
        fmt::print(stderr, "seed:        {}\n", options.sampling.seed);
    }
    return answer.reason == FinishReason::cancelled ? exit_interrupted : exit_ok;
}

}  // namespace

void add_run(CLI::App& app, int& status) {
    auto options = std::make_shared<RunOptions>();
    CLI::App* command = app.add_subcommand("run", "Answer one prompt");
    add_model_argument(*command, options->model);
    command->add_option("prompt,-p,--prompt", options->prompt, "The prompt; standard input when absent or -")->type_name("TEXT")->take_all();
    command->add_option("-f,--file", options->file, "Read the prompt from a file (after the prompt given, if any)")->type_name("FILE");
    command->add_option("--system", options->system, "System message")->type_name("TEXT");
    command->add_flag("--raw", options->raw, "Continue the text as it is, without the chat template");
    command->add_option("-n,--max-tokens,--n-predict", options->reply.max_tokens, "Most tokens to answer with (default: until the model ends)")
        ->type_name("N")->check(CLI::Range(-1, 1 << 30));
    command->add_option("--stop", options->reply.stop, "End the answer before this text; can be repeated")
        ->type_name("TEXT")->expected(1)->take_all()->allow_extra_args(false);
    command->add_option("-j,--json-schema", options->schema, "Hold the answer to a JSON schema: the schema, or a file with it")->type_name("SCHEMA");
    command->add_option("--json-schema-file", options->schema_file, "Hold the answer to the JSON schema in a file")->type_name("FILE");
    command->add_option("--grammar", options->grammar, "Hold the answer to a GBNF grammar")->type_name("GBNF");
    command->add_option("--grammar-file", options->grammar_file, "Hold the answer to the GBNF grammar in a file")->type_name("FILE");
    command->add_flag("--ignore-eos", options->reply.ignore_stop, "Go on when the model ends its answer");
    command->add_flag("--echo", options->echo, "Print the prompt, as the model sees it, before the answer");
    options->thinking.add(*command);
    options->sampling.add(*command);
    add_engine_flags(*command, options->engine);
    command->add_flag("--stats,--timings", options->stats, "Print timings on standard error");
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge run model.gguf \"Why is the sky blue?\"\n"
                    "  forge run model.gguf \"Summarise this text.\" -f report.txt --temp 0 -n 200\n"
                    "  forge run model.gguf --raw \"Once upon a time\" --seed 7 --stats\n"
                    "  forge run model.gguf \"Describe Ada Lovelace.\" -j '{\"type\": \"object\", \"properties\": {\"born\": {\"type\": \"integer\"}}, \"required\": [\"born\"]}'\n"
                    "  git diff | forge run model.gguf --system \"You review code.\"\n"
                    "The answer goes to standard output, everything else to standard error.");
    command->callback([options, &status] {
        require_argument(options->model, "MODEL");
        status = run(*options);
    });
}

}  // namespace forge::cli
