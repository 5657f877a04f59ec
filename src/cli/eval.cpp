// forge eval: how well a model predicts a text, and whether Forge computes what others computed.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/model_text.h"
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "commands.h"
#include "input.h"
#include "options.h"
#include "perplexity.h"
#include "replay.h"
#include "replay_report.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct EvalOptions {
    std::string model, file, logits, output = "text";
    std::vector<std::string> references;
    EngineFlags engine;
    ReplayDemands demands;
    double tie = -1;
    int window = 0;
    bool special = false;
};

// Logits of several rows a step, so that scoring a text is not done token by token.
constexpr int kScoredRows = 64;

std::shared_ptr<Engine> load_engine(const EvalOptions& o, int positions) {
    LoadOptions load = o.engine.options();
    load.max_outputs = kScoredRows;
    if (load.ctx == 0) load.ctx = positions;
    return Engine::load(model_path(o.model), load);
}

int eval_references(const EvalOptions& o) {
    model_path(o.model);  // refuses what does not exist before references are read
    std::vector<ReferenceFile> files;
    int positions = 1;
    try {
        for (const std::string& path : o.references) files.push_back(read_reference(path));
    } catch (const Error& error) {
        log_message(LogLevel::error, error.what());
        return exit_usage;  // 2: a file that cannot be read, apart from 1: demands that do not hold
    }
    std::size_t count = 0;
    for (const ReferenceFile& file : files)
        for (const ReferenceRecord& record : file.records) {
            positions = std::max(positions, positions_needed(record));
            ++count;
        }
    const auto text = has_tokenizer(o.model) ? ModelText::load(o.model) : nullptr;
    Session session(load_engine(o, positions));
    std::vector<ReplaySummary> summaries;
    {
        Progress progress("replaying", count, "records");
        for (const ReferenceFile& file : files) {
            std::vector<ReplayResult> results;
            for (const ReferenceRecord& record : file.records) {
                results.push_back(replay(session, text.get(), file, record, o.tie));
                progress.advance(1);
            }
            summaries.push_back(summarise(file.path, std::move(results), o.demands));
        }
    }
    bool met = true;
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const ReplaySummary& summary : summaries) {
        if (o.output == "json") {
            list.push_back(to_json(summary));
        } else {
            fmt::print("{}", to_text(summary, text ? text->tokenizer().get() : nullptr));
        }
        for (const std::string& sentence : summary.unmet) {
            log_message(LogLevel::error, sentence);
            met = false;
        }
    }
    if (o.output == "json") fmt::print("{}\n", list.dump(2));
    return met ? exit_ok : exit_failed;
}

// Writes the logits of every position as little-endian f32, [tokens, vocab].
void dump_logits(const EvalOptions& o, const std::vector<std::int32_t>& ids) {
    static_assert(std::endian::native == std::endian::little);
    const auto engine = load_engine(o, static_cast<int>(ids.size()));
    Session session(engine);
    std::ofstream out(o.logits, std::ios::binary | std::ios::trunc);
    if (!out) fail(ErrorKind::io, "cannot write {}: {}", o.logits, std::strerror(errno));
    session.score(ids, [&](int, std::span<const float> logits) {
        out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size_bytes()));
    });
    if (!out.flush()) fail(ErrorKind::io, "cannot write {}: {}", o.logits, std::strerror(errno));
    fmt::print(stderr, "wrote {} x {} logits to {}\n", ids.size(), engine->spec().vocab, o.logits);
}

int eval_text(const EvalOptions& o) {
    const auto tokenizer = load_tokenizer(o.model);
    const std::vector<std::int32_t> ids = tokenizer->encode(read_input(o.file), {.parse_special = o.special});
    const std::optional<std::int32_t> bos = tokenizer->adds_bos() ? tokenizer->bos() : std::nullopt;
    if (!o.logits.empty()) {
        std::vector<std::int32_t> all;
        if (bos) all.push_back(*bos);
        all.insert(all.end(), ids.begin(), ids.end());
        dump_logits(o, all);
        return exit_ok;
    }
    Session session(load_engine(o, o.window));
    const int window = o.window ? o.window : session.capacity();
    const Perplexity p = perplexity(session, ids, bos, window);
    if (o.output == "json") {
        const nlohmann::ordered_json json = {{"ppl", p.value()}, {"ppl_stderr", p.error()}, {"nll", p.mean()}, {"tokens", ids.size()},
                                             {"scored", p.scored}, {"window", window}};
        fmt::print("{}\n", json.dump(2));
    } else {
        fmt::print("perplexity {:.4f} +- {:.4f} ({} of {} tokens scored, windows of {}, mean loss {:.5f})\n", p.value(), p.error(), p.scored,
                   ids.size(), window, p.mean());
    }
    return exit_ok;
}

int eval(const EvalOptions& o) {
    if (o.output != "text" && o.output != "json") fail_usage("--output should be text or json, found {}", o.output);
    if (!o.references.empty()) return eval_references(o);
    if (o.file.empty()) fail_usage("-f FILE or --reference FILE is required");
    return eval_text(o);
}

}  // namespace

void add_eval(CLI::App& app, int& status) {
    auto options = std::make_shared<EvalOptions>();
    CLI::App* command = app.add_subcommand("eval", "Perplexity of a text; comparison with reference files");
    add_model_argument(*command, options->model);
    CLI::Option* file = command->add_option("-f,--file", options->file, "A text to score; - for standard input")->type_name("FILE");
    CLI::Option* reference = command->add_option("--reference", options->references,
        "Replay what other software computed (docs/references.md)")->type_name("FILE...")->expected(1, 1 << 16)->take_all();
    file->excludes(reference);
    command->add_option("--window", options->window, "Tokens a window of the perplexity has (default: the context)")
        ->type_name("N")->check(CLI::Range(4, 1 << 24));
    command->add_flag("--special", options->special, "Match special tokens in the text");
    command->add_option("--logits", options->logits, "Instead of scoring, write every position's logits (f32, [tokens, vocab])")
        ->type_name("FILE")->excludes(reference);
    command->add_option("--min-top1", options->demands.min_top1, "Demand: share of forced positions with the same first token")->type_name("X");
    command->add_option("--max-ppl-diff", options->demands.max_ppl_diff, "Demand: relative difference of the perplexities at most X")->type_name("X");
    command->add_option("--max-logit-diff", options->demands.max_logit_diff, "Demand: logits differ by at most X of the largest")->type_name("X");
    command->add_flag("--tokens-equal", options->demands.tokens_equal, "Demand: greedy tokens are equal, near-ties excepted");
    command->add_option("--tie", options->tie, "Logits this close in the reference are a tie")->type_name("X")->check(CLI::NonNegativeNumber);
    command->add_option("-o,--output", options->output, "text or json")->type_name("FORMAT");
    add_engine_flags(*command, options->engine);
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge eval model.gguf -f wiki.txt --window 512\n"
                    "  forge eval model/ --reference ref.jsonl --dtype f32 --max-logit-diff 1e-3 --tokens-equal\n"
                    "All shares are fractions. Exit status with --reference: 0 every demand holds, 1 one does not,\n"
                    "2 a file cannot be read.");
    command->callback([options, &status] {
        require_argument(options->model, "MODEL");
        status = eval(*options);
    });
}

}  // namespace forge::cli
