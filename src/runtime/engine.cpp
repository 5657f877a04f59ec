#include "runtime/engine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "backends/backend.h"
#include "backends/cpu.h"
#include "backends/registry.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "base/paths.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "lower/lower.h"
#include "devices.h"
#include "layer_read_ahead.h"
#include "model/bind.h"
#include "plan/passes.h"
#include "plan/plan.h"
#include "formats/forge_model.h"
#include "runtime/memory_plan.h"
#include "warm_up.h"

namespace forge {

struct Engine::State {
    LoadOptions options;
    std::shared_ptr<ModelFile> file;
    std::shared_ptr<const BoundModel> model;
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<Backend> backend;
    Plan plan, fused;
    Plan fused_few;                     // of steps of few rows
    std::shared_ptr<Cache> cache;
    std::vector<CacheLayer> cache_layers;
    Program decode_program, prefill_program;
    std::unique_ptr<Executable> decode, prefill;
    std::unique_ptr<LayerReadAhead> read_ahead;   // of models larger than memory
    bool larger_than_memory = false;    // the weights
    Program embed_program;
    std::unique_ptr<Executable> embed;  // compiled when first asked for
    std::mutex slots_mutex;
    std::vector<bool> slot_taken;
    std::vector<bool> message_starts;   // by id; empty when nobody said

    // The step record, filled by step() without allocation.
    std::vector<std::int32_t> tokens, slots, positions, output_rows;
    std::uint64_t serial = 0;
    std::unique_ptr<WarmUp> warm_up;    // the last: it stops before what it reads goes away
    bool profiling = false;
    std::array<std::vector<LaunchProfile>, 2> profile;   // of the small and the matrix program

    LowerTarget target() const { return lower_target(*backend, model->weights, options.dtype, options.ctx); }
    tune::TuneReport tuned;
    tune::Subject subject(Backend& reference) const;
    void tune_programs();
    PassTarget passes() const { return backend->wide_fusions() ? PassTarget::gpu : PassTarget::cpu; }
    void fuse();
    void check(std::span<const StepInput> rows) const;
    StepRows fill(std::span<const StepInput> rows);
    void compile(const std::string& path);
    void record(const Program& program, const Executable& executable, const StepRows& step);
    std::vector<LaunchProfile> profiles(const Program& program) const;   // without figures
    std::size_t vector_bytes(std::size_t layer) const;                   // of one head at one position
    template <typename Fn> void each_vector(Fn fn) const;
};

Engine::Engine() : state_(std::make_unique<State>()) {}
Engine::~Engine() = default;

namespace {

void check_options(const LoadOptions& o) {
    if (o.dtype != DType::bf16 && o.dtype != DType::f16 && o.dtype != DType::f32)
        fail("activations can be bf16, f16 or f32, not {}", name_of(o.dtype));
    if (o.ctx < 0) fail("the context must hold at least one position, not {}", o.ctx);
    if (o.parallel < 1 || o.parallel > 256) fail("memory can be reserved for 1 to 256 sequences, not {}", o.parallel);
    if (o.threads < 0 || o.threads > 1024) fail("the number of threads must be between 1 and 1024 (0 = one per core), not {}", o.threads);
    if (o.chunk < 0 || o.chunk > 16384) fail("a prefill chunk can have 1 to 16384 rows (0 = what suits the device), not {}", o.chunk);
    tune::parse_tune(o.tune);
    if (o.max_outputs < 1 || o.max_outputs > 16384) fail("a step can return logits of 1 to 16384 rows, not {}", o.max_outputs);
}

CacheLayer cache_layer(const LayerSpec& layer, int index) {
    CacheLayer c;
    if (layer.mixer == MixerKind::gated_delta) {
        const DeltaSpec& d = layer.delta;
        c.n_v_heads = d.n_v_heads;
        c.n_k_heads = d.n_k_heads;
        c.k_dim = d.k_dim;
        c.v_dim = d.v_dim;
        c.conv_kernel = d.conv_kernel;
    } else if (layer.attention.kv_layer == index) {
        c.n_kv_heads = layer.attention.n_kv_heads;
        c.head_dim = layer.attention.head_dim;
    }
    return c;
}

std::vector<CacheLayer> cache_layers(const ModelSpec& spec) {
    std::vector<CacheLayer> layers;
    for (std::size_t i = 0; i < spec.layers.size(); ++i) layers.push_back(cache_layer(spec.layers[i], static_cast<int>(i)));
    return layers;
}

int context_of(const LoadOptions& options, const ModelSpec& spec) {
    if (options.ctx > 0) return options.ctx;
    return spec.context_length > 0 ? std::min(spec.context_length, 4096) : 4096;
}

}  // namespace

// Cache, programs and executables of the chosen backend.
void Engine::State::compile(const std::string& path) {
    const std::uint64_t cache_bytes = backend->cache_bytes(cache_layers, options.parallel, options.ctx, options.dtype);
    const BackendLimits limits = backend->limits();
    if (limits.memory_bytes > 0 && cache_bytes > limits.memory_bytes)
        fail(ErrorKind::out_of_memory, "{}: the key/value cache of {} sequences of {} positions needs {}, and this machine has {}; "
             "use a smaller context (--ctx) or fewer sequences (--parallel)", path, options.parallel, options.ctx,
             format_bytes(cache_bytes), format_bytes(limits.memory_bytes));
    cache = backend->create_cache(cache_layers, options.parallel, options.ctx, options.dtype);

    const int decode_rows = std::min(matvec_rows, std::max(options.chunk, options.parallel));
    const LowerTarget lower_target = target();
    decode_program = lower(fused_few, model->spec.ropes, {options.dtype, decode_rows, std::min(decode_rows, options.max_outputs)}, lower_target);
    if (options.chunk > matvec_rows)
        prefill_program = lower(fused, model->spec.ropes, {options.dtype, options.chunk, options.max_outputs}, lower_target);
    tune_programs();
    decode = backend->compile(decode_program, model->weights, cache);
    if (!prefill_program.launches.empty()) prefill = backend->compile(prefill_program, model->weights, cache);
}

void Engine::State::tune_programs() {
    tune::TuneOptions tuning = tune::parse_tune(options.tune);
    const bool unasked = tuning.mode == tune::Mode::unasked;
    if (unasked) {
        tuning.mode = tune::Mode::fast;
        tuning.only_record = !options.tune_anew && (!backend->limits().tune_unasked || larger_than_memory);   // a disk's speed says nothing
    }
    if ((tuning.mode == tune::Mode::off && tuning.forced.empty()) || !backend->runs()) return;
    tuning.folder = cache_folder() / "tuning";
    tuning.anew = options.tune_anew;
    const std::unique_ptr<Backend> reference = make_plain_backend(*pool);
    try {
        tuned = tune::tune(subject(*reference), tuning);
    } catch (const Error& e) {
        // Nobody asked for it: a lack of memory, say, is no reason not to run. A backend without a right kernel is.
        if (!unasked || !tuning.forced.empty() || e.kind() == ErrorKind::unsupported) throw;
        log_warn("kernels were not tuned: {}", e.what());
    }
    tune::apply(tuned.choices, decode_program, model->weights);
    tune::apply(tuned.choices, prefill_program, model->weights);
}

tune::Subject Engine::State::subject(Backend& reference) const {
    return {*backend, reference, fused_few, tune::take_apart(fused), model->spec.ropes, model->weights, cache_layers, options.dtype, options.ctx, decode_program.max_rows,
            decode_program.max_outputs, prefill_program.launches.empty() ? 0 : prefill_program.max_rows, prefill_program.max_outputs};
}

// On a GPU a launch costs more than the rows that it saves: all rows of a small step go through the last layer.
void Engine::State::fuse() {
    fused = plan;
    for (const PassReport& report : run_passes(fused, options.passes_off, passes()))
        log_debug("pass {}: {} -> {} ops{}, {:.2f} ms", report.name, report.ops_before, report.ops_after, report.skipped ? " (off)" : "", report.seconds * 1e3);
    fused_few = fused;
    if (passes() == PassTarget::cpu) return;
    fused_few = plan;
    std::vector<std::string> off = options.passes_off;
    off.emplace_back("trim_outputs");
    run_passes(fused_few, off, passes());
}

WeightLayout fastest_layout(const std::string& device) {
    ThreadPool pool(1);
    register_built_in_devices();
    return make_backend(device, pool)->layout();
}

std::shared_ptr<Engine> Engine::load(const std::string& path, const LoadOptions& options) {
    check_options(options);
    return load(open_model_file(path), options);
}

std::shared_ptr<Engine> Engine::load(std::shared_ptr<ModelFile> file, const LoadOptions& options) {
    check_options(options);
    const std::string& path = file->path;
    std::shared_ptr<Engine> engine(new Engine);
    State& s = *engine->state_;
    s.options = options;
    s.file = file;
    s.pool = std::make_unique<ThreadPool>(options.threads);
    s.options.threads = s.pool->size();
    register_built_in_devices();
    s.backend = make_backend(options.device, *s.pool);
    if (s.backend->runs()) s.warm_up = std::make_unique<WarmUp>(s.file);   // the disk works while the rest is prepared
    if (options.verify && !s.file->packed)
        fail("{} holds no hashes to verify: only .forge models do; `forge pack` makes one of it", path);
    if (options.verify) s.file->packed->verify(*s.pool);
    if (options.lock_memory) lock_weights(*s.file);
    WeightLayout layout = s.backend->layout();
    if (s.options.repack && layout == WeightLayout::tiles) layout = WeightLayout::tiles_by_copy;
    s.model = bind_model(*s.file, *s.pool, layout, [&](const ModelSpec& spec, const WeightBytes& weights) {
        const int ctx = context_of(s.options, spec);
        // A GPU's own memory holds the cache, and its backend says when that does not fit.
        const bool here = s.backend->limits().memory_bytes == machine_memory().total;
        const std::uint64_t made = weights.made, available = machine_memory().available;
        if (!s.backend->runs()) return;
        s.larger_than_memory = here && available > 0 && made + weights.mapped > available;
        check_fit(path, {weights, here ? s.backend->cache_bytes(cache_layers(spec), s.options.parallel, ctx, s.options.dtype) : 0, s.options.parallel, ctx},
                  machine_memory());
    });
    const ModelSpec& spec = s.model->spec;

    s.options.ctx = context_of(s.options, spec);
    if (spec.context_length > 0 && s.options.ctx > spec.context_length)
        log_warn("{}: the context of {} positions is longer than the {} the model was trained for", path, s.options.ctx, spec.context_length);
    if (s.options.chunk == 0) s.options.chunk = s.backend->limits().prefill_rows;
    s.options.chunk = std::min(s.options.chunk, std::max(1, s.options.ctx));
    s.options.max_outputs = std::max(s.options.max_outputs, std::min(s.options.parallel, s.options.chunk));

    s.plan = build_plan(*s.model);
    s.fuse();

    s.cache_layers = cache_layers(spec);
    // Left to us, a model that the GPU has no kernels for runs on the CPU, which is said.
    try {
        s.compile(path);
    } catch (const Error& e) {
        if (e.kind() != ErrorKind::unsupported || options.device != "auto") throw;
        log_warn("{}: {}; the CPU is used", path, e.what());
        s.backend = make_backend("cpu", *s.pool);
        s.tuned = {};
        s.prefill_program = {};
        s.fuse();
        s.compile(path);
    }
    if (s.larger_than_memory) {
        s.read_ahead = std::make_unique<LayerReadAhead>(s.decode_program, s.model->weights);
        engine->on_layer([ahead = s.read_ahead.get()](int layer) { ahead->at_layer(layer); });
    }
    const std::size_t rows = static_cast<std::size_t>(s.options.chunk);
    s.tokens.resize(std::max<std::size_t>(rows, matvec_rows));
    s.slots.resize(s.tokens.size());
    s.positions.resize(s.tokens.size());
    s.output_rows.resize(s.tokens.size());
    s.slot_taken.assign(static_cast<std::size_t>(s.options.parallel), false);
    return engine;
}

const ModelFile& Engine::file() const { return *state_->file; }
const ModelSpec& Engine::spec() const { return state_->model->spec; }
const LoadOptions& Engine::options() const { return state_->options; }

MemoryUse Engine::memory() const {
    const State& s = *state_;
    std::uint64_t scratch = s.decode->scratch_bytes() + (s.prefill ? s.prefill->scratch_bytes() : 0);
    return {s.model->bytes(), s.model->mapped, s.cache->bytes(), s.cache->state_bytes() * static_cast<std::uint64_t>(s.options.parallel), scratch};
}

std::string Engine::backend_name() const { return state_->backend->limits().name; }

void Engine::State::check(std::span<const StepInput> rows) const {
    const ModelSpec& spec = model->spec;
    if (rows.empty() || rows.size() > tokens.size())
        fail(ErrorKind::internal, "a step takes 1 to {} rows, not {}", tokens.size(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const StepInput& r = rows[i];
        if (r.token < 0 || r.token >= static_cast<std::int32_t>(model->weights[spec.embed].rows))
            fail("token id {} is outside the vocabulary of {} tokens", r.token, model->weights[spec.embed].rows);
        if (r.slot < 0 || r.slot >= options.parallel)
            fail(ErrorKind::internal, "sequence slot {} of {}", r.slot, options.parallel);
        if (r.position < 0 || r.position >= options.ctx)
            fail("position {} does not fit the context of {}", r.position, options.ctx);
        if (i > 0 && r.slot == rows[i - 1].slot && r.position != rows[i - 1].position + 1)
            fail(ErrorKind::internal, "positions of a sequence must follow each other in a step");
    }
}

bool Engine::follow(const StepInput& first, std::int32_t limit, std::span<std::int32_t> picked, std::span<const float>* logits) {
    State& s = *state_;
    s.check({&first, 1});
    if (s.profiling || picked.empty() || first.position + static_cast<std::int64_t>(picked.size()) > s.options.ctx) return false;
    const std::int32_t row = 0;
    StepRows record;
    record.m = record.outputs = 1;
    record.tokens = &first.token;
    record.slots = &first.slot;
    record.positions = &first.position;
    record.output_rows = &row;
    record.serial = ++s.serial;
    if (!s.decode->follow(record, limit, picked)) return false;
    s.serial += picked.size();
    *logits = s.decode->logits();
    return true;
}

StepRows Engine::State::fill(std::span<const StepInput> rows) {
    State& s = *this;
    s.check(rows);
    StepRows record;
    record.m = static_cast<int>(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        s.tokens[i] = rows[i].token;
        s.slots[i] = rows[i].slot;
        s.positions[i] = rows[i].position;
        if (rows[i].want_logits) s.output_rows[static_cast<std::size_t>(record.outputs++)] = static_cast<std::int32_t>(i);
    }
    record.tokens = s.tokens.data();
    record.slots = s.slots.data();
    record.positions = s.positions.data();
    record.output_rows = s.output_rows.data();
    record.serial = ++s.serial;
    return record;
}

std::span<const float> Engine::step(std::span<const StepInput> rows) {
    State& s = *state_;
    const StepRows record = s.fill(rows);
    const bool small = record.m <= s.decode_program.max_rows;
    const Program& program = small ? s.decode_program : s.prefill_program;
    if (record.outputs > program.max_outputs)
        fail(ErrorKind::internal, "logits of {} rows wanted, at most {} in a step of {} rows", record.outputs, program.max_outputs, record.m);
    Executable& executable = small ? *s.decode : *s.prefill;
    executable.submit(record);
    executable.wait();
    if (s.profiling) s.record(program, executable, record);
    return executable.logits();
}

std::span<const float> Engine::embed(std::span<const StepInput> rows) {
    State& s = *state_;
    if (!s.embed) {
        Plan plan = without_head(s.plan);
        run_passes(plan, s.options.passes_off, s.passes());
        s.embed_program = lower(plan, s.model->spec.ropes, {s.options.dtype, s.options.chunk, s.options.chunk}, s.target());
        tune::apply(s.tuned.choices, s.embed_program, s.model->weights);
        s.embed = s.backend->compile(s.embed_program, s.model->weights, s.cache);
    }
    const StepRows record = s.fill(rows);
    if (record.m > s.embed_program.max_rows)
        fail(ErrorKind::internal, "hidden states of a step of {} rows, at most {}", record.m, s.embed_program.max_rows);
    s.embed->submit(record);
    s.embed->wait();
    return s.embed->logits();
}

void Engine::State::record(const Program& program, const Executable& executable, const StepRows& step) {
    std::vector<LaunchProfile>& sums = profile[&program == &prefill_program];
    if (sums.empty()) sums = profiles(program);
    std::set<std::int32_t> read;
    for (const LaunchTime& t : executable.timings()) {
        LaunchProfile& sum = sums[t.launch];
        const LaunchWork work = work_of(program.launches[t.launch], model->weights, cache_layers, options.dtype, step, &read);
        ++sum.steps;
        sum.seconds += t.seconds;
        sum.work.bytes += work.bytes;
        sum.work.flops += work.flops;
    }
}

std::vector<LaunchProfile> Engine::State::profiles(const Program& program) const {
    std::vector<LaunchProfile> launches;
    for (const Launch& l : program.launches)
        launches.push_back({l.kernel, l.label, l.layer, l.barrier, &program == &prefill_program, 0, 0, {}});
    return launches;
}

void Engine::on_layer(std::function<void(int)> fn) {
    for (Executable* executable : {state_->decode.get(), state_->prefill.get()})
        if (executable) executable->on_layer(fn);
}

void Engine::set_profiling(bool on) {
    state_->profiling = on;
    state_->decode->set_timing(on);
    if (state_->prefill) state_->prefill->set_timing(on);
}

std::vector<LaunchProfile> Engine::take_profile() {
    std::vector<LaunchProfile> all;
    for (std::vector<LaunchProfile>& sums : state_->profile) {
        for (LaunchProfile& launch : sums)
            if (launch.steps > 0) all.push_back(std::move(launch));
        sums.clear();
    }
    return all;
}

std::vector<LaunchProfile> Engine::predict(int rows, int position) const {
    const State& s = *state_;
    const Program& program = rows <= s.decode_program.max_rows || !s.prefill ? s.decode_program : s.prefill_program;
    std::vector<std::int32_t> zeros(static_cast<std::size_t>(rows), 0), positions;
    for (int row = 0; row < rows; ++row) positions.push_back(position + row);
    const std::int32_t last = rows - 1;
    const StepRows step{rows, zeros.data(), zeros.data(), positions.data(), 1, &last, 0};
    std::vector<LaunchProfile> launches = s.profiles(program);
    std::set<std::int32_t> read;
    for (std::size_t i = 0; i < launches.size(); ++i) {
        launches[i].steps = 1;
        launches[i].work = work_of(program.launches[i], s.model->weights, s.cache_layers, s.options.dtype, step, &read);
    }
    return launches;
}

StepCounts Engine::step_counts() const {
    const StepCounts own = state_->decode->counts();
    if (own.launches > 0) return own;
    return {static_cast<int>(state_->decode_program.launches.size()), state_->decode_program.barriers() + 1};
}

const tune::TuneReport& Engine::tuning() const { return state_->tuned; }

std::vector<tune::Check> Engine::check_kernels(bool full, const std::function<void(std::size_t, std::size_t)>& advance) const {
    const std::unique_ptr<Backend> reference = make_plain_backend(*state_->pool);
    return tune::check_kernels(state_->subject(*reference), state_->tuned.choices, full, advance);
}

std::string Engine::print_plan(bool fused) const { return print(fused ? state_->fused : state_->plan); }

std::string Engine::print_program(int rows) const {
    const State& s = *state_;
    return print(rows <= s.decode_program.max_rows || !s.prefill ? s.decode_program : s.prefill_program);
}

std::size_t Engine::state_bytes() const { return state_->cache->state_bytes(); }
void Engine::read_state(int slot, std::byte* out) const { state_->cache->read_state(slot, out); }
void Engine::write_state(int slot, const std::byte* in) { state_->cache->write_state(slot, in); }

std::size_t Engine::State::vector_bytes(std::size_t layer) const {
    return size_of(options.dtype) * static_cast<std::size_t>(cache_layers[layer].head_dim);
}

std::size_t Engine::row_bytes() const {
    const State& s = *state_;
    std::size_t total = 0;
    for (std::size_t layer = 0; layer < s.cache_layers.size(); ++layer)
        total += 2 * s.vector_bytes(layer) * static_cast<std::size_t>(s.cache_layers[layer].n_kv_heads);
    return total;
}

// Calls fn(layer, values, head, bytes of a vector) in the order of a row.
template <typename Fn>
void Engine::State::each_vector(Fn fn) const {
    for (std::size_t layer = 0; layer < cache_layers.size(); ++layer)
        for (const bool values : {false, true})
            for (int head = 0; head < cache_layers[layer].n_kv_heads; ++head) fn(static_cast<int>(layer), values, head, vector_bytes(layer));
}

void Engine::read_rows(int slot, int first, int last, std::byte* out) const {
    const std::size_t stride = row_bytes();
    state_->each_vector([&](int layer, bool values, int head, std::size_t size) {
        state_->cache->read_run(layer, values, slot, head, first, last, out, stride);
        out += size;
    });
}

void Engine::write_rows(int slot, int first, int last, const std::byte* in) {
    const std::size_t stride = row_bytes();
    state_->each_vector([&](int layer, bool values, int head, std::size_t size) {
        state_->cache->write_run(layer, values, slot, head, first, last, in, stride);
        in += size;
    });
}

void Engine::copy_rows(int from, int to, int first, int last) {
    std::vector<std::byte> run;
    state_->each_vector([&](int layer, bool values, int head, std::size_t size) {
        run.resize(size * static_cast<std::size_t>(last - first));
        state_->cache->read_run(layer, values, from, head, first, last, run.data(), size);
        state_->cache->write_run(layer, values, to, head, first, last, run.data(), size);
    });
}

std::vector<std::byte> Engine::save_cache(int slot, int length) const {
    std::vector<std::byte> bytes(row_bytes() * static_cast<std::size_t>(length) + state_bytes());
    std::byte* out = bytes.data();
    state_->each_vector([&](int layer, bool values, int head, std::size_t size) {
        state_->cache->read_run(layer, values, slot, head, 0, length, out, size);
        out += size * static_cast<std::size_t>(length);
    });
    read_state(slot, out);
    return bytes;
}

void Engine::load_cache(int slot, int length, std::span<const std::byte> bytes) {
    State& s = *state_;
    const std::size_t total = length < 0 ? 0 : row_bytes() * static_cast<std::size_t>(length) + state_bytes();
    if (length < 0 || length > s.options.ctx || bytes.size() != total)
        fail("a saved cache of {} positions should have {} bytes, but it has {}", length, total, bytes.size());
    const std::byte* in = bytes.data();
    s.each_vector([&](int layer, bool values, int head, std::size_t size) {
        s.cache->write_run(layer, values, slot, head, 0, length, in, size);
        in += size * static_cast<std::size_t>(length);
    });
    write_state(slot, in);
}

void Engine::set_message_starts(std::span<const std::int32_t> ids) {
    State& s = *state_;
    s.message_starts.assign(static_cast<std::size_t>(s.model->spec.vocab), false);
    for (const std::int32_t id : ids)
        if (id >= 0 && id < s.model->spec.vocab) s.message_starts[static_cast<std::size_t>(id)] = true;
}

bool Engine::starts_message(std::int32_t id) const {
    const std::vector<bool>& starts = state_->message_starts;
    return id >= 0 && static_cast<std::size_t>(id) < starts.size() && starts[static_cast<std::size_t>(id)];
}

int Engine::take_slot() {
    std::lock_guard lock(state_->slots_mutex);
    for (std::size_t i = 0; i < state_->slot_taken.size(); ++i) {
        if (state_->slot_taken[i]) continue;
        state_->slot_taken[i] = true;
        return static_cast<int>(i);
    }
    fail("all {} sequences are in use; reserve more with --parallel", state_->slot_taken.size());
}

void Engine::give_slot(int slot) {
    std::lock_guard lock(state_->slots_mutex);
    state_->slot_taken[static_cast<std::size_t>(slot)] = false;
}

}  // namespace forge
