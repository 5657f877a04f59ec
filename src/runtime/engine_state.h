// What an engine holds, and the parts of its work: loading (engine_load.cpp), steps and what is measured of them
// (engine.cpp), rows of its cache (engine_cache.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/thread_pool.h"
#include "layer_read_ahead.h"
#include "lower/lower.h"
#include "model/bind.h"
#include "plan/passes.h"
#include "plan/plan.h"
#include "runtime/engine.h"
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
    bool profiling = false;
    std::array<std::vector<LaunchProfile>, 2> profile;   // of the small and the matrix program
    tune::TuneReport tuned;
    std::unique_ptr<WarmUp> warm_up;    // the last: it stops before what it reads goes away

    LowerTarget target() const { return lower_target(*backend, model->weights, options.dtype, options.ctx); }
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
    // Calls fn(layer, values, head, bytes of a vector) in the order of a row.
    template <typename Fn>
    void each_vector(Fn fn) const {
        for (std::size_t layer = 0; layer < cache_layers.size(); ++layer)
            for (const bool values : {false, true})
                for (int head = 0; head < cache_layers[layer].n_kv_heads; ++head) fn(static_cast<int>(layer), values, head, vector_bytes(layer));
    }
};

}  // namespace forge
