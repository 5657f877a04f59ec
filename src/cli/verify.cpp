// forge verify: whether a model's bytes are what their hashes say, and whether this machine computes
// the model that its packer computed.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "api/model_text.h"
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "commands.h"
#include "formats/forge_model.h"
#include "options.h"
#include "pack/proof.h"
#include "store/store.h"
#include "store/verify.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct VerifyOptions {
    std::string model;
    bool run = false;
    std::string device = "auto";
    int threads = 0;
};

// What mends a model whose bytes are wrong.
std::string repair_of(const std::string& model, const std::string& path) {
    if (!path.ends_with(".json")) return fmt::format("to mend {}, copy it again, or pack it again from its source with --force", model);
    return fmt::format("to mend {0}, pull it again, or pack it again from its source (forge pack SRC -o {0} --force): blobs that are damaged or missing are replaced, "
                       "the others stay", model);
}

// nullptr: its bytes are wrong, which has been said.
std::shared_ptr<ModelFile> verify_bytes(const std::string& model, const std::string& path, ThreadPool& pool) {
    using Clock = std::chrono::steady_clock;
    const auto rate = [](std::uint64_t bytes, Clock::duration time) { return static_cast<double>(bytes) / std::max(1e-9, std::chrono::duration<double>(time).count()) / 1e9; };
    if (!is_forge(path)) fail("{} is no .forge model, so it holds no hashes; `forge pack` makes one of it", path);
    // Before the model is opened: damage may be where opening stumbles over it.
    const auto start = Clock::now();
    const std::vector<std::string> wrong = wrong_blobs(path, pool);
    const auto middle = Clock::now();
    for (const std::string& sentence : wrong) log_message(LogLevel::error, sentence);
    if (!wrong.empty()) {
        log_message(LogLevel::error, repair_of(model, path));
        return nullptr;
    }
    auto file = open_model_file(path);
    file->packed->verify(pool);
    const std::uint64_t bytes = file->packed->manifest().bytes();
    fmt::print("{}: {} blobs, {}: every BLAKE3 ({:.1f} GB/s) and XXH3 ({:.1f} GB/s) is as stated\n", model, file->packed->manifest().blobs.size(), format_bytes(bytes),
               rate(bytes, middle - start), rate(file->packed->plane_bytes(), Clock::now() - middle));
    return file;
}

bool verify_run(const VerifyOptions& o, const ModelFile& file) {
    const Manifest& manifest = file.packed->manifest();
    const ManifestBlob* proof = manifest.find("proof");
    if (!proof) fail("{} has no proof to run: it was packed with --no-proof", o.model);
    const std::span<const std::byte> bytes = file.packed->blob(static_cast<std::size_t>(proof - manifest.blobs.data())).bytes;
    LoadOptions load;
    load.device = o.device;
    load.threads = o.threads;
    bool good = true;
    for (const ProofResult& r : check_proof({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.path, load)) {
        fmt::print("{}: {} tokens in {}: {} other{}, logits differ by at most {:.2g} of the largest (bound {:.2g}): {}\n", o.model, r.steps, r.dtype, r.different,
                   r.near_ties > 0 ? fmt::format(" ({} near-ties)", r.near_ties) : "", r.largest, r.bound, r.holds() ? "the proof holds" : "THE PROOF DOES NOT HOLD");
        good = good && r.holds();
    }
    return good;
}

bool verify_model(const VerifyOptions& o, const std::string& path, ThreadPool& pool) {
    const auto file = verify_bytes(o.model, path, pool);
    return file && (!o.run || verify_run(o, *file));
}

int verify(const VerifyOptions& o) {
    ThreadPool pool(o.threads);
    if (!o.model.empty()) return verify_model(o, model_path(o.model), pool) ? exit_ok : exit_failed;
    const Store store = Store::open();
    bool good = true;
    for (const ModelName& name : store.list()) {
        try {
            VerifyOptions one = o;
            one.model = name.text();
            good = verify_model(one, store.manifest_path(name).string(), pool) && good;
        } catch (const Error& error) {
            log_message(LogLevel::error, error.what());
            good = false;
        }
    }
    return good ? exit_ok : exit_failed;
}

}  // namespace

void add_verify(CLI::App& app, int& status) {
    auto options = std::make_shared<VerifyOptions>();
    CLI::App* command = app.add_subcommand("verify", "Check a .forge model against its hashes and its proof");
    command->add_option("-m,--model,model", options->model, "A .forge file, NAME[:TAG] in the store or oci:HOST/NAME[:TAG] that was pulled (default: all of the store)")->type_name("MODEL");
    command->add_flag("--run", options->run, "Compute the proof again and compare tokens and logits");
    command->add_option("--device", options->device, "With --run: auto, cpu, cuda or cuda:N (metal on a Mac)")->type_name("NAME");
    command->add_option("-t,--threads", options->threads, "CPU threads (default: one a core)")->type_name("N")->check(CLI::Range(1, 1024));
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge verify qwen3:q4_k_m --run\n"
                    "  forge verify model.forge\n"
                    "What is damaged or missing is named, with what mends it. Exit status 1 when something differs.");
    command->callback([options, &status] { status = verify(*options); });
}

}  // namespace forge::cli
