// forge profile: where the time of a prompt and of a token goes, kernel by kernel, beside the machine's limits.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "api/model_text.h"
#include "base/error.h"
#include "base/paths.h"
#include "bench_limits.h"
#include "commands.h"
#include "options.h"
#include "runtime/session.h"
#include "table.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct ProfileOptions {
    std::string model, output = "md", trace;
    EngineFlags engine;
    int prompt = 512, generated = 32, depth = 0;
    bool launches = false, limits = true;
};

struct Limits { double gbps = 0, gflops = 0; };   // 0: not measured

// One phase of the work: a prompt of `tokens`, or that many single tokens.
struct Phase {
    std::string test, unit;
    double steps;                        // what figures are given per
    StepCounts counts;
    std::vector<LaunchProfile> launches;
};

// A line of the table: launches of one kernel (and program), or one launch.
struct Line {
    std::string name;
    double seconds = 0, launches = 0;
    LaunchWork work;
};

double gb(const LaunchWork& work) { return static_cast<double>(work.bytes) / 1e9; }
double gflop(const LaunchWork& work) { return static_cast<double>(work.flops) / 1e9; }

// Share of the time that the limits ask for the same bytes and operations.
double share_of_limit(const Line& line, const Limits& limits) {
    if (line.seconds <= 0 || limits.gbps <= 0 || limits.gflops <= 0) return 0;
    return std::max(gb(line.work) / limits.gbps, gflop(line.work) / limits.gflops) / line.seconds;
}

std::vector<Line> lines_of(const Phase& phase, bool launches) {
    std::vector<Line> lines;
    for (const LaunchProfile& launch : phase.launches) {
        const std::string name = launches ? fmt::format("{} {}", launch.kernel, launch.label) : launch.kernel;
        auto at = launches ? lines.end() : std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.name == name; });
        if (at == lines.end()) at = lines.insert(at, Line{name, 0, 0, {}});
        at->seconds += launch.seconds / phase.steps;
        at->launches += static_cast<double>(launch.steps) / phase.steps;
        at->work.bytes += launch.work.bytes;
        at->work.flops += launch.work.flops;
    }
    for (Line& line : lines) {
        line.work.bytes = static_cast<std::uint64_t>(static_cast<double>(line.work.bytes) / phase.steps);
        line.work.flops = static_cast<std::uint64_t>(static_cast<double>(line.work.flops) / phase.steps);
    }
    if (!launches) std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.seconds > b.seconds; });
    return lines;
}

Line total_of(const std::vector<Line>& lines) {
    Line total{"total", 0, 0, {}};
    for (const Line& line : lines) {
        total.seconds += line.seconds;
        total.launches += line.launches;
        total.work.bytes += line.work.bytes;
        total.work.flops += line.work.flops;
    }
    return total;
}

std::string figure(double value, double per, const char* format) { return value > 0 && per > 0 ? fmt::format(fmt::runtime(format), value / per) : ""; }

void print_table(const Phase& phase, const ProfileOptions& o, const Limits& limits) {
    const auto right = Table::Align::right;
    std::vector<Line> lines = lines_of(phase, o.launches);
    const Line total = total_of(lines);
    lines.push_back(total);
    Table table({{o.launches ? "launch" : "kernel"}, {"launches", right}, {"us", right}, {"share", right}, {"MB", right}, {"GB/s", right},
                 {"GFLOP/s", right}, {"% of limit", right}});
    for (const Line& line : lines)
        table.add({line.name, fmt::format("{:.0f}", line.launches), fmt::format("{:.1f}", line.seconds * 1e6),
                   fmt::format("{:.1f} %", 100 * line.seconds / total.seconds), figure(gb(line.work) * 1e3, 1, "{:.2f}"),
                   figure(gb(line.work), line.seconds, "{:.1f}"), figure(gflop(line.work), line.seconds, "{:.1f}"),
                   figure(100 * share_of_limit(line, limits), 1, "{:.0f} %")});
    if (o.output == "csv") {
        fmt::print("{}", table.csv());
        return;
    }
    fmt::print("{}: one {}, {}, {:.2f} MB\n", phase.test, phase.unit, describe(phase.counts), gb(total.work) * 1e3);
    if (limits.gbps > 0) fmt::print("limits measured here: {:.1f} GB/s, {:.0f} GFLOP/s\n", limits.gbps, limits.gflops);
    fmt::print("\n{}\n", table.markdown());
}

nlohmann::ordered_json json_of(const Phase& phase, const ProfileOptions& o, const Limits& limits) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Line& line : lines_of(phase, o.launches)) {
        nlohmann::ordered_json entry{{"name", line.name}, {"launches", line.launches}, {"seconds", line.seconds},
                                     {"bytes", line.work.bytes}, {"flops", line.work.flops}};
        if (limits.gbps > 0) entry["limit_pct"] = 100 * share_of_limit(line, limits);
        list.push_back(std::move(entry));
    }
    return {{"test", phase.test}, {"per", phase.unit}, {"lines", list}};
}

// Chrome's trace format, for chrome://tracing and Perfetto: the mean step of each phase on a track of its own.
std::string trace_of(const std::vector<Phase>& phases) {
    nlohmann::ordered_json events = nlohmann::ordered_json::array();
    int track = 0;
    for (const Phase& phase : phases) {
        events.push_back({{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", ++track}, {"args", {{"name", phase.test + ": one " + phase.unit}}}});
        double at = 0;
        for (const LaunchProfile& launch : phase.launches) {
            const double us = launch.seconds / phase.steps * 1e6;
            events.push_back({{"name", launch.label.empty() ? launch.kernel : launch.label}, {"cat", launch.kernel}, {"ph", "X"}, {"pid", 1},
                              {"tid", track}, {"ts", at}, {"dur", us},
                              {"args", {{"kernel", launch.kernel}, {"layer", launch.layer}, {"bytes", static_cast<double>(launch.work.bytes) / phase.steps},
                                        {"flops", static_cast<double>(launch.work.flops) / phase.steps}}}});
            at += us;
        }
    }
    return nlohmann::ordered_json{{"traceEvents", events}, {"displayTimeUnit", "ns"}}.dump(1) + "\n";
}

std::vector<std::int32_t> any_tokens(int vocab, int count) {
    std::mt19937 random(12345);
    std::uniform_int_distribution<std::int32_t> any(0, vocab - 1);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    for (std::int32_t& token : tokens) token = any(random);
    return tokens;
}

int profile(const ProfileOptions& o) {
    if (o.output != "md" && o.output != "json" && o.output != "csv") fail_usage("--output should be md, json or csv, found {}", o.output);
    if (o.prompt == 0 && o.generated == 0) fail_usage("-p and -n leave nothing to profile");
    LoadOptions load = o.engine.options();
    const int needed = o.depth + o.prompt + o.generated + 1;
    if (load.ctx == 0) load.ctx = needed;
    if (load.ctx < needed) fail("the profile needs a context of {} tokens, and --ctx gives {}", needed, load.ctx);
    const auto engine = Engine::load(model_path(o.model), load);
    Session session(engine);
    const std::vector<std::int32_t> tokens = any_tokens(engine->spec().vocab, needed);
    const std::span<const std::int32_t> all(tokens);
    const auto depth = static_cast<std::size_t>(o.depth), prompt = static_cast<std::size_t>(o.prompt), generated = static_cast<std::size_t>(o.generated);

    // Everything once before it counts, so that caches and clocks are as in use.
    std::vector<Phase> phases;
    if (prompt > 0) {
        for (const bool count : {false, true}) {
            session.clear();
            if (depth > 0) session.feed(all.first(depth));
            engine->set_profiling(count);
            session.feed(all.first(depth + prompt));
        }
        phases.push_back({fmt::format("pp{}{}", o.prompt, o.depth ? fmt::format("@d{}", o.depth) : ""), fmt::format("prompt of {} tokens", o.prompt), 1, {},
                          engine->take_profile()});
    }
    engine->set_profiling(false);
    if (generated > 0) {
        session.clear();
        if (depth > 0) session.feed(all.first(depth));
        session.append(tokens[depth]);
        engine->set_profiling(true);
        for (std::size_t i = 0; i < generated; ++i) session.append(tokens[depth + 1 + i]);
        engine->set_profiling(false);
        phases.push_back({fmt::format("tg{}{}", o.generated, o.depth ? fmt::format("@d{}", o.depth) : ""), "token", static_cast<double>(o.generated),
                          engine->step_counts(), engine->take_profile()});
    }
    for (Phase& phase : phases) {   // of a prompt: as its program has them
        if (phase.counts.launches > 0) continue;
        const auto barriers = std::count_if(phase.launches.begin(), phase.launches.end(), [](const LaunchProfile& l) { return l.barrier; });
        phase.counts = {static_cast<int>(phase.launches.size()), static_cast<int>(barriers) + 1};
    }
    Limits limits;
    if (const auto machine = o.limits ? limits_of(*engine) : nullptr) limits = {machine->read_gbps(), machine->multiply_gflops(engine->options().dtype)};
    if (o.output == "json") {
        nlohmann::ordered_json list = nlohmann::ordered_json::array();
        for (const Phase& phase : phases) list.push_back(json_of(phase, o, limits));
        fmt::print("{}\n", list.dump(2));
    } else {
        for (const Phase& phase : phases) print_table(phase, o, limits);
    }
    if (!o.trace.empty()) write_file_atomically(o.trace, trace_of(phases));
    return exit_ok;
}

}  // namespace

void add_profile(CLI::App& app, int& status) {
    auto options = std::make_shared<ProfileOptions>();
    CLI::App* command = app.add_subcommand("profile", "Show where the time goes, kernel by kernel");
    add_model_argument(*command, options->model);
    command->add_option("-p,--n-prompt", options->prompt, "Length of the prompt (default 512; 0 = none)")->check(CLI::Range(0, 1 << 20))->type_name("N");
    command->add_option("-n,--n-gen", options->generated, "Tokens to generate one by one (default 32; 0 = none)")->check(CLI::Range(0, 1 << 20))->type_name("N");
    command->add_option("-d,--n-depth", options->depth, "Tokens already in the context (default 0)")->check(CLI::Range(0, 1 << 20))->type_name("N");
    command->add_flag("--launches", options->launches, "A line for each launch instead of one for each kernel");
    command->add_option("--trace", options->trace, "Also write the mean steps in Chrome's trace format")->type_name("FILE");
    command->add_option("-o,--output", options->output, "md, json or csv")->type_name("FORMAT");
    command->add_flag("!--no-limits", options->limits, "Do not measure the machine's limits (saves seconds and 512 MiB)");
    add_engine_flags(*command, options->engine);
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge profile model.gguf\n"
                    "  forge profile model.gguf -p 0 -n 64 -d 4096 --launches\n"
                    "  forge profile model.gguf --trace trace.json      # for chrome://tracing or Perfetto\n"
                    "Every launch waits for the one before and is timed, so that a step takes a little longer than in use.\n"
                    "MB are weights, cache and recurrent state. % of limit: the time that the machine's memory or arithmetic\n"
                    "asks for the same work, as a share of the time it took.");
    command->callback([options, &status] {
        require_argument(options->model, "MODEL");
        status = profile(*options);
    });
}

}  // namespace forge::cli
