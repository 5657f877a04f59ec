// forge bench: tokens per second beside what the machine could do at most.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "api/model_text.h"
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "bench_limits.h"
#include "bench_report.h"
#include "commands.h"
#include "interrupt.h"
#include "options.h"
#include "runtime/session.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct BenchOptions {
    std::string model, output = "md";
    EngineFlags engine;
    std::vector<int> prompts{512}, generated{128}, depths{0}, threads;
    int repetitions = 5;
    bool limits = true;
};

struct Case {
    bool prefill;
    int tokens, depth;
    std::string name() const {
        return fmt::format("{}{}{}", prefill ? "pp" : "tg", tokens, depth ? fmt::format("@d{}", depth) : "");
    }
};

class Bench {
  public:
    Bench(const BenchOptions& options, int threads) : o_(options) {
        LoadOptions load = options.engine.options();
        load.threads = threads;
        if (load.ctx == 0) load.ctx = longest();
        engine_ = Engine::load(model_path(options.model), load);
        if (engine_->options().ctx < longest())
            fail("the tests need a context of {} tokens, and --ctx gives {}", longest(), engine_->options().ctx);
        session_ = std::make_unique<Session>(engine_);
        if (options.limits) limits_ = limits_of(*engine_);
    }

    BenchRow measure(const Case& test, InterruptGuard& interrupt) {
        double limit = limit_of(test);
        std::vector<double> rates;
        once(test);  // warm-up, which also counts the work
        if (limits_) limit = std::max(limit, limit_of(test));
        for (int i = 0; i < o_.repetitions && !interrupt.requested(); ++i) rates.push_back(test.tokens / once(test));
        if (limits_) limit = std::max(limit, limit_of(test));
        if (rates.empty()) return {};
        const double mean = std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
        double variance = 0;
        for (double rate : rates) variance += (rate - mean) * (rate - mean);
        BenchRow row;
        row.model = engine_->spec().name.empty() ? engine_->spec().architecture : engine_->spec().name;
        row.size_bytes = engine_->file().tensor_bytes();
        row.params = engine_->spec().parameters;
        row.backend = engine_->backend_name();
        row.dtype = std::string(name_of(engine_->options().dtype));
        row.threads = engine_->options().threads;
        row.test = test.name();
        row.prefill = test.prefill;
        row.tps = mean;
        row.tps_stddev = rates.size() > 1 ? std::sqrt(variance / static_cast<double>(rates.size() - 1)) : 0;
        row.work = static_cast<double>(test.prefill ? work_.flops : work_.bytes) / test.tokens * mean / 1e9;
        row.limit = limit;
        return row;
    }

  private:
    int longest() const {
        const int depth = *std::max_element(o_.depths.begin(), o_.depths.end());
        int most = 1;
        for (int n : o_.prompts) most = std::max(most, n + depth);
        for (int n : o_.generated) most = std::max(most, n + depth);
        return most;
    }

    double limit_of(const Case& test) {
        if (!limits_) return 0;
        return test.prefill ? limits_->multiply_gflops(engine_->options().dtype) : limits_->read_gbps();
    }

    // Seconds that the tokens of `test` take after `depth` others, which are not counted. The first
    // call of a test counts its bytes and operations.
    double once(const Case& test) {
        std::uniform_int_distribution<std::int32_t> any(0, engine_->spec().vocab - 1);
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(test.depth + test.tokens));
        std::mt19937 same(12345), fresh(++seed_);  // the depth's tokens stay in the cache
        for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = any(i < static_cast<std::size_t>(test.depth) ? same : fresh);
        const std::span<const std::int32_t> before(tokens.data(), static_cast<std::size_t>(test.depth));
        if (before.empty()) {
            session_->clear();
        } else {
            session_->feed(before);
        }
        const bool count = counted_ != test.name();
        if (count) engine_->set_profiling(true);
        engine_->take_profile();
        const auto start = std::chrono::steady_clock::now();
        if (test.prefill) {
            session_->feed(tokens);
        } else {
            for (std::int32_t token : std::span(tokens).subspan(before.size())) session_->append(token);
        }
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (count) {
            work_ = {};
            for (const LaunchProfile& launch : engine_->take_profile()) {
                work_.bytes += launch.work.bytes;
                work_.flops += launch.work.flops;
            }
            engine_->set_profiling(false);
            counted_ = test.name();
        }
        return seconds;
    }

    const BenchOptions& o_;
    std::shared_ptr<Engine> engine_;
    std::unique_ptr<Session> session_;
    std::unique_ptr<MachineLimits> limits_;
    std::string counted_;
    LaunchWork work_;   // of the current test's tokens
    unsigned seed_ = 0;
};

int bench(BenchOptions& o) {
    if (o.threads.empty()) o.threads = {o.engine.load.threads};
    std::vector<Case> cases;
    for (int depth : o.depths) {
        for (int n : o.prompts)
            if (n > 0) cases.push_back({true, n, depth});
        for (int n : o.generated)
            if (n > 0) cases.push_back({false, n, depth});
    }
    if (cases.empty()) fail_usage("-p and -n leave no test to run");
    model_path(o.model);  // refuses what does not exist before the interrupt guard is up
    InterruptGuard interrupt;
    BenchReport report(parse_bench_format(o.output), o.limits);
    for (int threads : o.threads) {
        Bench bench(o, threads);
        Progress progress(fmt::format("bench {}", o.model), cases.size(), "tests");
        for (const Case& test : cases) {
            BenchRow row = bench.measure(test, interrupt);
            if (interrupt.requested()) return exit_interrupted;
            report.add(std::move(row));
            progress.advance(1);
        }
    }
    report.print();
    return exit_ok;
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
    auto options = std::make_shared<BenchOptions>();
    CLI::App* command = app.add_subcommand("bench", "Measure speed beside the machine's limits");
    add_model_argument(*command, options->model);
    const auto counts = [&](const char* name, std::vector<int>& list, const char* text, int least) {
        command->add_option(name, list, text)->delimiter(',')->take_all()->allow_extra_args(false)->check(CLI::Range(least, 1 << 24))->type_name("N,...");
    };
    counts("-p,--n-prompt", options->prompts, "Prompt lengths to read (default 512; 0 = none)", 0);
    counts("-n,--n-gen", options->generated, "Counts of tokens to generate (default 128; 0 = none)", 0);
    counts("-d,--n-depth", options->depths, "Tokens already in the context (default 0)", 0);
    command->add_option("-r,--repetitions", options->repetitions, "Times to repeat each test (default 5)")
        ->check(CLI::Range(1, 10000))->type_name("N");
    command->add_option("-o,--output", options->output, "md, json or csv")->type_name("FORMAT");
    command->add_flag("!--no-limits", options->limits, "Do not measure the machine's limits (saves seconds and 512 MiB)");
    add_engine_flags(*command, options->engine);
    command->remove_option(command->get_option("--threads"));
    counts("-t,--threads", options->threads, "Numbers of CPU threads (default: one a core)", 1);
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge bench model.gguf\n"
                    "  forge bench model.gguf -p 512,2048 -n 128 -d 0,4096 -r 10\n"
                    "  forge bench model.gguf -t 1,2,4 -p 0 -o json\n"
                    "ppN reads a prompt of N tokens, tgN generates N tokens one by one, @dD after D tokens.\n"
                    "Decode is limited by reading memory (GB/s), prefill by multiplying (GFLOP/s); the limits\n"
                    "of the CPU are measured on the same threads beside each test (none are known of a GPU).");
    command->callback([options, &status] {
        require_argument(options->model, "MODEL");
        status = bench(*options);
    });
}

}  // namespace forge::cli
