// forge pull: a model from the Hugging Face hub or from a registry.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <signal.h>

#include <memory>

#include "base/log.h"
#include "base/progress.h"
#include "commands.h"
#include "interrupt.h"
#include "options.h"
#include "registry/registry.h"
#include "transfer_options.h"
#include "transport/hub_pull.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct Flags {
    std::string reference;
    std::string as;
    std::vector<std::string> include;
    bool plain_http = false;
    TransferFlags transfer;
};

void pull_hub(const Flags& flags, const InterruptGuard& interrupt) {
    if (!flags.as.empty()) fail_usage("--as is for models of the store; hf: fills the hub's cache, under its own names");
    const HubReference reference = parse_hub_reference(flags.reference);
    HubPullOptions options;
    options.include = flags.include;
    options.download = flags.transfer.download([&] { return interrupt.requested(); });
    const HubPulled pulled = pull_from_hub(HubCache::from_environment(), reference, options);
    if (pulled.fetched == 0) {
        fmt::print("{} was there already: {} files, {}, commit {}\n", reference.text(), pulled.files, format_bytes(pulled.bytes), pulled.commit.substr(0, 12));
    } else {
        fmt::print("pulled {}: {} of {} files, {}, commit {}\n", reference.text(), pulled.fetched, pulled.files, format_bytes(pulled.fetched_bytes),
                   pulled.commit.substr(0, 12));
    }
    fmt::print("{}\n", pulled.path.string());
}

void pull_oci(const Flags& flags, const InterruptGuard& interrupt) {
    if (!flags.include.empty()) fail_usage("--include is for the Hugging Face hub; of a registry a model is pulled as a whole");
    const OciReference reference = parse_oci_reference(flags.reference);
    const std::string as = flags.as.empty() ? reference.store_name() : flags.as;
    const auto name = ModelName::parse(as);
    if (!name) fail_usage("{} is no name for a model of the store; --as NAME:TAG gives another", as);
    OciTransferOptions options;
    options.plain_http = flags.plain_http;
    options.download = flags.transfer.download([&] { return interrupt.requested(); });
    const OciTransferred pulled = pull_from_registry(Store::open(), reference, *name, options);
    if (pulled.moved == 0) {
        fmt::print("{} was there already: {} blobs, {}\n", reference.text(), pulled.blobs, format_bytes(pulled.bytes));
    } else {
        fmt::print("pulled {}: {} of {} blobs, {} of {}\n", reference.text(), pulled.moved, pulled.blobs, format_bytes(pulled.moved_bytes), format_bytes(pulled.bytes));
    }
    fmt::print("{}\n", name->text());
}

}  // namespace

void add_pull(CLI::App& app, int& status) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("pull", "Fetch a model from the Hugging Face hub or a registry");
    command->add_option("reference", flags->reference, "hf:ORG/NAME[@REVISION][:SELECT] or oci:HOST/NAME[:TAG]")->type_name("REF");
    command->add_option("--include", flags->include, "Fetch the files of this pattern instead of those that make up the model (hf:); repeatable")
        ->type_name("PATTERN")->expected(1)->take_all()->allow_extra_args(false);
    command->add_option("--as", flags->as, "The model's name in the store (oci:; default: host, name and tag)")->type_name("NAME[:TAG]");
    command->add_flag("--plain-http", flags->plain_http, "Without encryption, and without credentials, also from other machines (oci:)");
    flags->transfer.add(*command);
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge pull hf:Qwen/Qwen3-0.6B\n"
                    "  forge pull hf:unsloth/Qwen3-0.6B-GGUF:Q4_K_M\n"
                    "  forge pull hf:meta-llama/Llama-3.2-1B@main --include '*.json'\n"
                    "  forge pull oci:ghcr.io/ada/qwen3:q4 --as qwen3:q4\n"
                    "hf: fills the cache that other tools of the hub use, and forge run hf:ORG/NAME opens it from\n"
                    "there without a network. Ctrl-C keeps what arrived; the same command goes on.\n"
                    "docs/transport.md has tokens, proxies and folders.");
    command->callback([flags, &status] {
        require_argument(flags->reference, "REF");
        signal(SIGPIPE, SIG_IGN);  // a connection that the other side closed is an error like others
        const InterruptGuard interrupt;
        try {
            if (is_hub_reference(flags->reference)) return pull_hub(*flags, interrupt);
            if (is_oci_reference(flags->reference)) return pull_oci(*flags, interrupt);
        } catch (const Interrupted& error) {
            log_message(LogLevel::error, error.what());
            status = exit_interrupted;
            return;
        }
        fail_usage("REF should begin with hf: or oci:, found {}", flags->reference);
    });
}

}  // namespace forge::cli
