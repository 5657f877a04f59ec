// forge push: a model of the store to a registry.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <memory>

#include "base/log.h"
#include "base/progress.h"
#include "commands.h"
#include "interrupt.h"
#include "options.h"
#include "registry/registry.h"
#include "store/reference.h"
#include "transfer_options.h"
#include "transport/http.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct Flags {
    std::string name, reference;
    bool plain_http = false;
    int piece = 64;  // MiB
    TransferFlags transfer;
};

void push(const Flags& flags, const InterruptGuard& interrupt) {
    const OciReference reference = parse_oci_reference(flags.reference);
    const Store store = Store::open();
    const ModelName name = stored_model(store, flags.name);
    OciTransferOptions options;
    options.plain_http = flags.plain_http;
    options.piece = static_cast<std::uint64_t>(flags.piece) << 20;
    options.download = flags.transfer.download([&] { return interrupt.requested(); });
    // A registry reads a blob to its end before it answers.
    options.download.http.stall_timeout = std::max<std::chrono::milliseconds>(options.download.http.stall_timeout, std::chrono::minutes(5));
    const OciTransferred pushed = push_to_registry(store, name, reference, options);
    fmt::print("pushed {} to {}: {} of {} blobs, {} of {}\n{}\n", name.text(), reference.text(), pushed.moved, pushed.blobs, format_bytes(pushed.moved_bytes),
               format_bytes(pushed.bytes), pushed.digest);
}

}  // namespace

void add_push(CLI::App& app, int& status) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("push", "Send a model of the store to a registry");
    command->add_option("name", flags->name, "The model, as forge list shows it, or oci:HOST/NAME[:TAG] that was pulled")->type_name("NAME[:TAG]");
    command->add_option("reference", flags->reference, "oci:HOST/NAME[:TAG]")->type_name("REF");
    command->add_option("--piece", flags->piece, "MiB sent in one request (default 64)")->type_name("N")->check(CLI::Range(1, 1 << 16));
    command->add_flag("--plain-http", flags->plain_http, "Without encryption, and without credentials, also to other machines");
    flags->transfer.add(*command);
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge push qwen3:q4 oci:ghcr.io/ada/qwen3:q4\n"
                    "  forge push qwen3:q4 oci:localhost:5000/qwen3:q4\n"
                    "Blobs that the registry has already are not sent. docs/transport.md has the details.");
    command->callback([flags, &status] {
        require_argument(flags->name, "NAME");
        require_argument(flags->reference, "REF");
        signal(SIGPIPE, SIG_IGN);  // a connection that the other side closed is an error like others
        const InterruptGuard interrupt;
        try {
            push(*flags, interrupt);
        } catch (const Interrupted& error) {
            log_message(LogLevel::error, error.what());
            status = exit_interrupted;
        }
    });
}

}  // namespace forge::cli
