// The loaded model: file, descriptor, plan, program and caches, ready to step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/step_rows.h"
#include "formats/model_file.h"
#include "model/spec.h"
#include "runtime/profile.h"
#include "tune/tuner.h"

namespace forge {

struct LoadOptions {
    std::string device = "auto";       // auto | cpu | metal | cuda | cuda:N, as far as they are built in
    DType dtype = DType::bf16;         // activations, KV cache: bf16, f16 or f32
    int threads = 0;                   // 0 = one per available core
    int ctx = 0;                       // positions per sequence; 0 = the model's, at most 4096
    int parallel = 1;                  // sequences that memory is reserved for
    int chunk = 0;                     // rows of a prefill step; chunks begin at multiples of it; 0 = what suits the device
    int max_outputs = 8;               // rows whose logits one step can return (scoring a text wants many)
    bool verify = false;               // compare a .forge model's weights with their hashes while they are read
    bool lock_memory = false;          // keep mapped weights in memory
    bool repack = false;               // copy MLX's planes into the layout that the CPU reads fastest (memory for speed)
    std::string tune = "off";          // off, fast, full, KERNEL=VARIANT: which variants of kernels run (tune/tuner.h)
    bool tune_anew = false;            // although an earlier start's choices would serve
    std::vector<std::string> passes_off = {};  // names of plan passes to leave out ("all" for every one)
};

// Bytes. `mapped` of the weights stay in their file; `state` of the cache is recurrent state.
struct MemoryUse { std::uint64_t weights, mapped, kv_cache, state, scratch; };

// One row of a step.
struct StepInput {
    std::int32_t token = 0, slot = 0, position = 0;
    bool want_logits = false;
};

// The layout of weights that a device's kernels read fastest.
WeightLayout fastest_layout(const std::string& device);

class Engine {
  public:
    // Opens, binds, plans, lowers and compiles; when it returns, a token can be
    // computed without further allocation. Errors are sentences.
    static std::shared_ptr<Engine> load(const std::string& path, const LoadOptions& options);
    static std::shared_ptr<Engine> load(std::shared_ptr<ModelFile> file, const LoadOptions& options);
    ~Engine();

    const ModelFile& file() const;
    const ModelSpec& spec() const;
    const LoadOptions& options() const;   // with defaults filled in (ctx, threads)
    MemoryUse memory() const;
    std::string backend_name() const;     // "CPU avx512"

    // Computes rows: rows of one slot are neighbours and their positions follow each other;
    // positions before them are in the cache. At most options().chunk rows.
    // Returns the logits of the rows that want them, [wanted][vocab], valid until the next step.
    // No allocation.
    std::span<const float> step(std::span<const StepInput> rows);

    // Like step(), but the hidden states after the last norm of the rows that want them, [wanted][hidden]; all
    // rows may. The first call compiles what it needs.
    std::span<const float> embed(std::span<const StepInput> rows);

    // Steps of one row, `first` and then the arg-max of each step's logits (ids below `limit`, the first of equals), all
    // on the device. picked[i] follows step i; -1: no token can follow. `logits`: the last step's. False, and nothing
    // done, where the backend cannot.
    bool follow(const StepInput& first, std::int32_t limit, std::span<std::int32_t> picked, std::span<const float>* logits);

    // What was chosen by load() and how, and every kernel of the model against the plain one (not while a step runs).
    const tune::TuneReport& tuning() const;
    std::vector<tune::Check> check_kernels(bool full, const std::function<void(std::size_t, std::size_t)>& advance = {}) const;

    // What a step of one row takes on the device, after launches were put together.
    StepCounts step_counts() const;
    // The texts that `forge inspect` prints.
    std::string print_plan(bool fused = true) const;
    std::string print_program(int rows) const;

    // Recurrent states of a slot (hybrid models; 0 bytes otherwise). They cannot be rolled back:
    // whoever may need an earlier one keeps a copy.
    std::size_t state_bytes() const;
    std::shared_ptr<std::byte[]> state_memory() const;   // on the host, for one
    void read_state(int slot, std::byte* out) const;
    void write_state(int slot, const std::byte* in);

    // A sequence's cache in plain order, for saving: all layers' keys and values of positions [0, length),
    // then the recurrent states.
    std::vector<std::byte> save_cache(int slot, int length) const;
    void load_cache(int slot, int length, std::span<const std::byte> bytes);

    // The keys and values of positions [first, last) of a slot, position after position, row_bytes() each.
    std::size_t row_bytes() const;
    void read_rows(int slot, int first, int last, std::byte* out) const;
    void write_rows(int slot, int first, int last, const std::byte* in);
    void copy_rows(int from, int to, int first, int last);   // from one slot to another

    // Tokens that begin a message ("<|im_start|>"): hybrids keep a snapshot before a prompt's last one, because the
    // next prompt of a conversation may differ from there on. Set before sessions run.
    void set_message_starts(std::span<const std::int32_t> ids);
    bool starts_message(std::int32_t id) const;

    // Slots that sessions take and give back. Error when all are taken.
    int take_slot();
    void give_slot(int slot);

    // Executable::on_layer of both programs.
    void on_layer(std::function<void(int)> fn);

    // While profiling is on, every launch waits for the one before and is timed; the sums since the last call, in the
    // programs' order.
    void set_profiling(bool on);
    std::vector<LaunchProfile> take_profile();
    // What a step of `rows` tokens of one sequence, the first at `position`, would take, with the last one's logits.
    std::vector<LaunchProfile> predict(int rows, int position) const;

  private:
    Engine();
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace forge
