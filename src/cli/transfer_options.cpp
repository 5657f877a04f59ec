#include "transfer_options.h"

#include <CLI/CLI.hpp>

namespace forge::cli {

void TransferFlags::add(CLI::App& command) {
    command.add_option("--connections", connections_, "Connections at once (default 8)")->type_name("N")->check(CLI::Range(1, 64));
    command.add_option("--tries", tries_, "Tries in a row that bring nothing before it is given up (default 6)")->type_name("N")->check(CLI::Range(1, 1000));
    command.add_option("--timeout", timeout_, "Seconds without a byte after which a connection counts as dropped (default 30)")
        ->type_name("SECONDS")->check(CLI::Range(0.1, 86400.0));
}

DownloadOptions TransferFlags::download(std::function<bool()> cancelled) const {
    DownloadOptions options;
    options.connections = connections_;
    options.http.tries = tries_;
    options.http.stall_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_ * 1000));
    options.http.cancelled = std::move(cancelled);
    return options;
}

}  // namespace forge::cli
