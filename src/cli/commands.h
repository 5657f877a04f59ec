// One function a command: it adds the subcommand with its options, help and examples, and a
// callback that runs it and leaves its exit status in `status`. Errors are thrown; main says them.
#pragma once

namespace CLI {
class App;
}

namespace forge::cli {

// Exit statuses (README.md lists them).
enum ExitStatus : int {
    exit_ok = 0,
    exit_failed = 1,         // the input is wrong, or a check did not hold
    exit_usage = 2,          // the command line is wrong
    exit_out_of_memory = 3,  // the model or context does not fit
    exit_bug = 4,            // a bug of Forge
    exit_interrupted = 130,  // Ctrl-C
};

void add_run(CLI::App& app, int& status);
void add_chat(CLI::App& app, int& status);
void add_serve(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);
void add_profile(CLI::App& app, int& status);
void add_tune(CLI::App& app, int& status);
void add_doctor(CLI::App& app, int& status);
void add_eval(CLI::App& app, int& status);
void add_inspect(CLI::App& app, int& status);
void add_tokenize(CLI::App& app, int& status);
void add_template(CLI::App& app, int& status);
void add_quantize(CLI::App& app, int& status);
void add_synth(CLI::App& app, int& status);
void add_pack(CLI::App& app, int& status);
void add_list(CLI::App& app, int& status);
void add_show(CLI::App& app, int& status);
void add_rm(CLI::App& app, int& status);
void add_gc(CLI::App& app, int& status);
void add_verify(CLI::App& app, int& status);
void add_pull(CLI::App& app, int& status);
void add_push(CLI::App& app, int& status);
void add_login(CLI::App& app, int& status);
void add_logout(CLI::App& app, int& status);
void add_completion(CLI::App& app, int& status);
void add_manual(CLI::App& app, int& status);

}  // namespace forge::cli
