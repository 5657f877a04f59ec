// From a file to an engine that can compute a token: opening, binding, planning, lowering, tuning, compiling.
#include <algorithm>

#include "backends/cpu.h"
#include "backends/registry.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "base/paths.h"
#include "base/progress.h"
#include "devices.h"
#include "engine_state.h"
#include "formats/forge_model.h"
#include "runtime/memory_plan.h"

namespace forge {
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
        if (!s.backend->runs()) return;
        const int ctx = context_of(s.options, spec);
        // A GPU's own memory holds the cache, and its backend says when that does not fit.
        const bool here = s.backend->limits().memory_bytes == machine_memory().total;
        const std::uint64_t made = weights.made, available = machine_memory().available;
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

}  // namespace forge
