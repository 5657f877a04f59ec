// forge serve: models behind HTTP.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/paths.h"
#include "commands.h"
#include "options.h"
#include "server/server.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct ServeFlags {
    std::vector<std::string> models, aliases, keys;
    std::string key_file, log = "text";
    EngineFlags engine;
    server::ServeOptions serve;
    double grace = 10;
    int idle_unload = -1, prefix_mib = 1024;
};

// A key a line; empty lines and lines that begin with # do not count.
void add_keys(const std::string& text, std::vector<std::string>& keys) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
        if (!line.empty() && line[0] != '#') keys.push_back(line);
    }
}

server::ServeOptions options_of(const ServeFlags& f) {
    server::ServeOptions o = f.serve;
    o.load = f.engine.options();
    o.load.parallel = f.serve.load.parallel;
    o.load.chunk = f.serve.load.chunk;
    o.load.max_outputs = std::max(8, o.load.max_outputs);
    for (const std::string& path : f.models) o.models.push_back({server::model_name(path), path, {}});
    for (const std::string& alias : f.aliases) {
        const std::size_t equals = alias.find('=');
        if (equals == std::string::npos) {
            o.models.front().aliases.push_back(alias);
            continue;
        }
        const std::string name = alias.substr(equals + 1);
        const auto found = std::find_if(o.models.begin(), o.models.end(), [&](const auto& m) { return m.name == name || m.path == name; });
        if (found == o.models.end()) fail_usage("--alias {}: no model served is called {}", alias, name);
        found->aliases.push_back(alias.substr(0, equals));
    }
    for (std::size_t i = 0; i < o.models.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
            if (o.models[i].name == o.models[j].name) fail_usage("two models are called {}: {} and {}", o.models[i].name, o.models[j].path, o.models[i].path);
    o.keys = f.keys;
    if (!f.key_file.empty()) {
        add_keys(read_file(f.key_file), o.keys);
        if (o.keys.empty()) fail("{} holds no key", f.key_file);
    }
    if (const char* key = std::getenv("FORGE_API_KEY"); key && *key) o.keys.push_back(key);
    if (f.log != "text" && f.log != "json") fail_usage("--log should be text or json, found {}", f.log);
    o.log_json = f.log == "json";
    o.log_requests = log_level() >= LogLevel::warn;
    o.idle_unload = std::chrono::seconds(f.idle_unload);
    o.prefix_bytes = static_cast<std::size_t>(f.prefix_mib) << 20;
    return o;
}

int serve(const ServeFlags& f) {
    const server::ServeOptions options = options_of(f);
    // Blocked before any thread exists, so that every thread leaves them to sigwait.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    signal(SIGPIPE, SIG_IGN);

    // Waits for signals from the beginning: one that comes while a model is loaded ends it, because nobody is answered yet.
    enum { loading, ready, ended };
    const auto state = std::make_shared<std::atomic<int>>(loading);
    const auto stop = std::make_shared<std::promise<void>>();
    std::thread([signals, state, stop] {
        int number = 0;
        sigwait(&signals, &number);
        if (state->exchange(ended) == loading) std::_Exit(number == SIGINT ? exit_interrupted : exit_ok);
        stop->set_value();
        sigwait(&signals, &number);   // a second one ends it at once
        std::_Exit(exit_interrupted);
    }).detach();

    server::ApiServer server(options);
    if (state->exchange(ready) == ended)
        for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));   // the other thread is ending the process
    const LoadOptions& load = options.load;
    fmt::print("ready: {} on {}, up to {} sequences{}\n", options.models.front().name, server.url(), load.parallel,
               load.ctx > 0 ? fmt::format(" of {} tokens", load.ctx) : "");
    std::fflush(stdout);
    stop->get_future().wait();
    log_info("stopping; answers in progress have {:.0f} s", f.grace);
    server.drain(std::chrono::milliseconds(static_cast<std::int64_t>(f.grace * 1000)));
    return exit_ok;
}

}  // namespace

void add_serve(CLI::App& app, int& status) {
    auto f = std::make_shared<ServeFlags>();
    f->serve.load.parallel = 4;
    f->serve.load.chunk = 256;
    CLI::App* command = app.add_subcommand("serve", "Answer over HTTP, as OpenAI, Anthropic and Ollama clients ask");
    command->add_option("-m,--model,model", f->models, "Models: GGUF files or folders; the first is loaded at once, others when asked for")->type_name("MODEL")->take_all();
    command->add_option("--host", f->serve.host, "Address to listen on; others than this machine's own need a key")->type_name("ADDRESS");
    command->add_option("--port", f->serve.port, "Port to listen on; 0 = any free one")->type_name("N");
    command->add_option("--parallel", f->serve.load.parallel, "Sequences computed at once; memory for them is reserved")->type_name("N")->check(CLI::Range(1, 256));
    command->add_option("--max-queue", f->serve.max_queue, "Requests that may wait; more are told to come back (429)")->type_name("N")->check(CLI::Range(0, 1 << 20));
    command->add_option("--chunk", f->serve.load.chunk, "Tokens of a prompt read between two steps of the others")->type_name("N")->check(CLI::Range(16, 4096));
    command->add_option("--cache-ram", f->prefix_mib, "Memory for caches of finished conversations, for each model")->type_name("MIB")->check(CLI::Range(0, 1 << 24));
    command->add_option("--api-key", f->keys, "A key that clients must give; can be repeated (FORGE_API_KEY and --api-key-file keep it out of ps)")->type_name("KEY")->expected(1)->take_all()->allow_extra_args(false);
    command->add_option("--api-key-file", f->key_file, "A file of keys, one a line")->type_name("FILE");
    command->add_option("--alias", f->aliases, "Another name for the first model, or ALIAS=MODEL; can be repeated")->type_name("NAME")->expected(1)->take_all()->allow_extra_args(false);
    command->add_option("--cors", f->serve.origins, "Pages of this origin may ask, such as https://example.org; can be repeated")->type_name("ORIGIN")->expected(1)->take_all()->allow_extra_args(false);
    command->add_option("--allow-host", f->serve.hosts, "A name under which this server is reached; can be repeated")->type_name("NAME")->expected(1)->take_all()->allow_extra_args(false);
    command->add_option("--log", f->log, "Lines of the log: text (default) or json")->type_name("FORM");
    command->add_option("--idle-unload", f->idle_unload, "Unload a model that nobody used for so long; -1 = never")->type_name("SECONDS")->check(CLI::Range(-1, 1 << 30));
    command->add_option("--slot-save-path", f->serve.slot_folder, "Folder where POST /slots/N saves and restores what a slot holds; without it they are refused")->type_name("FOLDER")->check(CLI::ExistingDirectory);
    command->add_option("--grace", f->grace, "Time for answers in progress after SIGTERM")->type_name("SECONDS")->check(CLI::Range(0.0, 3600.0));
    add_engine_flags(*command, f->engine);
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge serve model.gguf\n"
                    "  forge serve model.gguf --ctx 16384 --parallel 8 --alias gpt-4o-mini\n"
                    "  forge serve small.gguf large.gguf --idle-unload 600\n"
                    "  FORGE_API_KEY=... forge serve model.gguf --host 0.0.0.0\n"
                    "Clients use http://127.0.0.1:8080/v1 as their base URL (Ollama's and Anthropic's without /v1).");
    command->callback([f, &status] {
        if (f->models.empty()) fail_usage("MODEL is required");
        status = serve(*f);
    });
}

}  // namespace forge::cli
