#include "metal_executable.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace forge::metal {

MetalExecutable::MetalExecutable(std::shared_ptr<Device> device, const Program& program, const gpu::GpuProgram& bound, std::span<const Weight> weights,
                                 std::shared_ptr<Weights> mapped, std::shared_ptr<MetalCache> cache)
    : device_(std::move(device)), weights_(std::move(mapped)), cache_(std::move(cache)), arena_(device_->allocate(program.arena_bytes, "arena")),
      scratch_(device_->allocate(bound.scratch_bytes, "scratch")), record_(device_->allocate(gpu::step_words(program.max_rows) * 4, "step")), picked_offset_(bound.picked_offset), logits_(program.logits),
      logits_type_(program.logits_type), vocab_(program.vocab), max_rows_(program.max_rows) {
    if (logits_type_ != DType::f32) floats_.resize(static_cast<std::size_t>(program.max_outputs) * static_cast<std::size_t>(vocab_));
    counts_ = bound.counts();
    // Uninitialised reads show: all ones is a NaN in every type.
    std::memset(arena_->contents(), 0xff, arena_->bytes());
    std::memset(scratch_->contents(), 0, scratch_->bytes());
    for (const gpu::RopeAngles& rope : bound.ropes) {
        const std::vector<float> angles = gpu::rope_angles(rope, cache_->layout().capacity(), program.type);
        ropes_.push_back(device_->allocate(angles.size() * sizeof(float), "rope angles"));
        std::memcpy(ropes_.back()->contents(), angles.data(), angles.size() * sizeof(float));
    }
    for (const std::vector<float>& values : bound.constants) {
        constants_.push_back(device_->allocate(values.size() * sizeof(float), "constants"));
        std::memcpy(constants_.back()->contents(), values.data(), values.size() * sizeof(float));
    }
    device_->make_resident(ropes_);
    device_->make_resident(constants_);
    for (const auto& buffer : {arena_, scratch_, record_}) device_->make_resident({&buffer, 1});

    const std::vector<gpu::Kernel> kernels = bound.kernels();
    std::vector<std::string> names;
    for (const gpu::Kernel& k : kernels) {
        if (k.threadgroup_bytes() > device_->info().threadgroup_bytes)
            fail(ErrorKind::unsupported, "kernel {} needs {} bytes of threadgroup memory, and this GPU has {}", k.family, k.threadgroup_bytes(), device_->info().threadgroup_bytes);
        if (std::find(names.begin(), names.end(), k.name) == names.end()) names.push_back(k.name);
    }
    const auto pipelines = device_->compile(gpu::source(gpu::Target::metal, kernels), names);
    for (const gpu::GpuLaunch& launch : bound.launches) {
        CallLaunch out{{}, launch.barrier, launch.output_rows, launch.source, launch.beside};
        for (const gpu::Variant& variant : launch.variants) {
            CallVariant v{variant.max_rows, variant.positions, variant.single, {}};
            for (const gpu::BoundKernel& k : variant.kernels) v.calls.push_back(make_call(k, pipelines, weights));
            out.variants.push_back(std::move(v));
        }
        launches_.push_back(std::move(out));
    }
    for (const gpu::BoundKernel& k : bound.pick) pick_.push_back(make_call(k, pipelines, weights));
    timings_.reserve(launches_.size());
}

MetalExecutable::Call MetalExecutable::make_call(const gpu::BoundKernel& k, const std::map<std::string, std::shared_ptr<Pipeline>>& pipelines,
                                                 std::span<const Weight> weights) const {
    Call call{pipelines.at(k.kernel.name), {}, k.kernel.grid, static_cast<unsigned>(k.kernel.threads)};
    if (call.pipeline->most_threads() < k.kernel.threads)
        fail(ErrorKind::unsupported, "kernel {} wants {} threads, and this GPU runs it with {} at most", k.kernel.family, k.kernel.threads, call.pipeline->most_threads());
    for (const gpu::Buffer& b : k.buffers) call.bindings.push_back(binding(b, weights));
    return call;
}

void MetalExecutable::encode(const Call& call, const StepRows& step, bool barrier) {
    const gpu::GridSize grid = gpu::grid_size(call.grid, step);
    device_->dispatch({call.pipeline.get(), call.bindings, {grid.x, grid.y, grid.z}, call.threads, barrier});
}

Binding MetalExecutable::binding(const gpu::Buffer& b, std::span<const Weight> weights) const {
    switch (b.place) {
        case gpu::Place::step: return {record_.get(), b.offset};
        case gpu::Place::arena: return {arena_.get(), b.offset};
        case gpu::Place::scratch: return {scratch_.get(), b.offset};
        case gpu::Place::plane: return weights_->plane(weights[static_cast<std::size_t>(b.index)], b.plane);
        case gpu::Place::rope: return {ropes_[static_cast<std::size_t>(b.index)].get(), 0};
        case gpu::Place::constants: return {constants_[static_cast<std::size_t>(b.index)].get(), 0};
        case gpu::Place::cache: return {cache_->buffer(), b.offset};
    }
    fail(ErrorKind::internal, "a GPU buffer has no place");
}

void MetalExecutable::encode(const CallLaunch& launch, const StepRows& step) {
    const int rows = launch.output_rows ? step.outputs : step.m;
    bool barrier = launch.barrier;
    for (const Call& call : gpu::variant_for(launch.variants, rows, gpu::longest_position(step), step.m).calls) {
        encode(call, step, barrier);
        barrier = true;   // kernels of one launch follow each other
    }
}

void MetalExecutable::submit(const StepRows& step) {
    gpu::write_step(step, max_rows_, reinterpret_cast<std::int32_t*>(record_->contents()));
    outputs_ = step.outputs;
    timings_.clear();
    bool pending = false;   // the barrier of a launch that had no rows
    const auto skip = [&](const CallLaunch& l) { return (l.output_rows ? step.outputs : step.m) == 0; };
    if (!timing_) device_->begin();
    for (CallLaunch& l : launches_) {
        if (skip(l)) {
            pending = pending || l.barrier;
            continue;
        }
        const bool barrier = l.barrier;
        l.barrier = barrier || pending;
        pending = false;
        if (timing_) {   // a command buffer each, because its times are what the API gives
            device_->begin();
            encode(l, step);
            device_->commit();
            finish();
            timings_.push_back({l.source, device_->seconds()});
            for (const std::size_t b : l.beside) timings_.push_back({b, 0});   // within the time of the first
        } else {
            encode(l, step);
        }
        l.barrier = barrier;
    }
    if (!timing_) device_->commit();
    running_ = !timing_;
}

// One command buffer for all steps.
bool MetalExecutable::follow(const StepRows& first, std::int32_t limit, std::span<std::int32_t> picked) {
    if (pick_.empty() || timing_ || first.m != 1 || first.outputs != 1 || picked.size() > gpu::most_picks) return false;
    gpu::write_step(first, max_rows_, reinterpret_cast<std::int32_t*>(record_->contents()), limit);
    outputs_ = 1;
    timings_.clear();
    StepRows step = first;
    std::int32_t position = first.positions[0];
    step.positions = &position;   // grids depend on it; the device counts for itself
    device_->begin();
    for (std::size_t i = 0; i < picked.size(); ++i, ++position) {
        for (CallLaunch& l : launches_) {
            const bool barrier = l.barrier;
            l.barrier = barrier || (i > 0 && &l == &launches_.front());
            encode(l, step);
            l.barrier = barrier;
        }
        for (const Call& call : pick_) encode(call, step, true);
    }
    device_->commit();
    finish();
    std::memcpy(picked.data(), scratch_->contents() + picked_offset_, picked.size() * 4);
    return true;
}

// A step that the GPU gave up leaves counts of arrivals behind, which the next one would take for its own.
void MetalExecutable::finish() {
    try {
        device_->wait();
    } catch (...) {
        std::memset(scratch_->contents(), 0, scratch_->bytes());
        throw;
    }
}

void MetalExecutable::wait() {
    if (!running_) return;
    running_ = false;
    finish();
}

std::span<const float> MetalExecutable::logits() const {
    const std::size_t count = static_cast<std::size_t>(outputs_) * static_cast<std::size_t>(vocab_);
    const std::byte* values = arena_->contents() + logits_.offset;
    if (logits_type_ == DType::f32) return {reinterpret_cast<const float*>(values), count};
    gpu::outputs_to_floats(values, logits_type_, std::span(floats_).first(count));
    return {floats_.data(), count};
}

}  // namespace forge::metal
