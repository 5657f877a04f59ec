#include "cuda_executable.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"

namespace forge::cuda {
namespace {

// Steps of more rows are launched directly: their grids differ too often for graphs.
constexpr int kGraphRows = 8;
// Threadgroup memory, in bytes, of which a multiprocessor of compute capability 9.0 has room for one.
constexpr unsigned kLargeShared = 114 * 1024;

}  // namespace

CudaExecutable::CudaExecutable(std::shared_ptr<GpuContext> context, const Program& program, gpu::GpuProgram bound, std::span<const Weight> weights,
                               std::shared_ptr<Weights> uploaded, std::shared_ptr<CudaCache> cache)
    : context_(std::move(context)), weights_(std::move(uploaded)), cache_(std::move(cache)), arena_(context_, program.arena_bytes),
      scratch_(context_, bound.scratch_bytes), record_(context_, gpu::step_words(program.max_rows) * 4),
      host_record_(context_, gpu::step_words(program.max_rows) * 4),
      host_logits_(context_, static_cast<std::size_t>(program.max_outputs) * static_cast<std::size_t>(program.vocab) * 4), logits_(program.logits),
      logits_type_(program.logits_type), vocab_(program.vocab), max_rows_(program.max_rows) {
    if (logits_type_ != DType::f32) floats_.resize(static_cast<std::size_t>(program.max_outputs) * static_cast<std::size_t>(vocab_));
    counts_ = bound.counts();
    const Driver& d = context_->driver();
    // Uninitialised reads show: all ones is a NaN in every type.
    check(d.fill8(arena_.at(), 0xff, arena_.bytes(), context_->stream()), "clear memory");
    if (bound.scratch_bytes > 0) check(d.fill8(scratch_.at(), 0, scratch_.bytes(), context_->stream()), "clear memory");
    for (const gpu::RopeAngles& rope : bound.ropes) {
        const std::vector<float> angles = gpu::rope_angles(rope, cache_->layout().capacity(), program.type);
        ropes_.emplace_back(context_, angles.size() * 4);
        check(d.to_device(ropes_.back().at(), angles.data(), angles.size() * 4, context_->stream()), "copy rope tables");
        context_->synchronize();
    }
    for (const std::vector<float>& values : bound.constants) {
        constants_.emplace_back(context_, values.size() * 4);
        check(d.to_device(constants_.back().at(), values.data(), values.size() * 4, context_->stream()), "copy constants");
    }
    context_->synchronize();
    load_code(bound);
    for (const gpu::GpuLaunch& launch : bound.launches) {
        CallLaunch out{{}, launch.output_rows, launch.source, launch.beside};
        for (const gpu::Variant& variant : launch.variants) {
            CallVariant v{variant.max_rows, variant.positions, variant.single, {}};
            for (const gpu::BoundKernel& kernel : variant.kernels) {
                v.calls.push_back(make_call(kernel, weights));
                if (const int part = kernel.kernel.grid.part_size; part > 0) part_size_ = part_size_ > 0 ? std::min(part_size_, part) : part;
            }
            out.variants.push_back(std::move(v));
        }
        launches_.push_back(std::move(out));
    }
    for (const gpu::BoundKernel& kernel : bound.pick) pick_.push_back(make_call(kernel, weights));
    picked_offset_ = bound.picked_offset;
    if (!pick_.empty()) host_picked_ = PinnedMemory(context_, 4 * gpu::most_picks);
    // Moving the vectors did not move the pointers' memory, so the argument lists stay valid.
    timings_.reserve(launches_.size());
    context_->synchronize();
}

CudaExecutable::~CudaExecutable() {
    context_->driver().stream_synchronize(context_->stream());
    for (auto& [key, exec] : graphs_) context_->driver().graph_exec_destroy(exec);
    for (Event e : events_) context_->driver().event_destroy(e);
    for (Module m : modules_) context_->driver().module_unload(m);
}

// Every kernel is a compilation unit of its own: the compiler is slow and runs once a thread.
CompiledKernels compile_kernels(const GpuContext& context, std::span<const gpu::Kernel> wanted) {
    CompiledKernels all;
    std::set<std::string> names;
    for (const gpu::Kernel& k : wanted)
        if (names.insert(k.name).second) all.kernels.push_back(k);
    const std::vector<gpu::Kernel>& kernels = all.kernels;
    std::vector<std::vector<char>>& code = all.code;
    code.resize(kernels.size());
    std::vector<std::exception_ptr> errors(kernels.size());
    std::atomic<std::size_t> next{0};
    Progress progress("GPU kernels", kernels.size(), "");
    const auto work = [&] {
        for (std::size_t i; (i = next++) < kernels.size();) {
            try {
                code[i] = context.code(gpu::source(gpu::Target::cuda, {&kernels[i], 1}));
            } catch (...) {
                errors[i] = std::current_exception();
            }
            progress.advance(1);
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 1; t < std::min<std::size_t>(kernels.size(), std::thread::hardware_concurrency()); ++t) threads.emplace_back(work);
    work();
    for (std::thread& t : threads) t.join();
    for (const std::exception_ptr& e : errors)
        if (e) std::rethrow_exception(e);
    return all;
}

void CudaExecutable::load_code(const gpu::GpuProgram& bound) {
    const CompiledKernels compiled = compile_kernels(*context_, bound.kernels());
    const std::vector<gpu::Kernel>& kernels = compiled.kernels;
    const std::vector<std::vector<char>>& code = compiled.code;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        modules_.push_back(nullptr);
        check(context_->driver().module_load(&modules_.back(), code[i].data()), "load a kernel");
        check(context_->driver().module_function(&functions_[kernels[i].name], modules_.back(), kernels[i].name.c_str()), "find a kernel");
    }
}

Pointer CudaExecutable::address(const gpu::Buffer& b, std::span<const Weight> weights) const {
    switch (b.place) {
        case gpu::Place::step: return record_.at(b.offset);
        case gpu::Place::arena: return arena_.at(b.offset);
        case gpu::Place::scratch: return scratch_.at(b.offset);
        case gpu::Place::plane: return weights_->plane(weights[static_cast<std::size_t>(b.index)], b.plane);
        case gpu::Place::rope: return ropes_[static_cast<std::size_t>(b.index)].at();
        case gpu::Place::constants: return constants_[static_cast<std::size_t>(b.index)].at();
        case gpu::Place::cache: return cache_->at(b.offset);
    }
    fail(ErrorKind::internal, "a GPU buffer has no place");
}

CudaExecutable::Call CudaExecutable::make_call(const gpu::BoundKernel& kernel, std::span<const Weight> weights) {
    Call call;
    call.function = functions_.at(kernel.kernel.name);
    call.threads = static_cast<unsigned>(kernel.kernel.threads);
    call.grid = kernel.kernel.grid;
    call.shared_bytes = static_cast<unsigned>(kernel.kernel.dynamic_bytes());
    if (call.shared_bytes > 0)
        check(context_->driver().function_attribute(call.function, kDynamicShared, static_cast<int>(call.shared_bytes)), "give a kernel its shared memory");
    for (const gpu::Buffer& b : kernel.buffers) call.pointers.push_back(address(b, weights));
    for (Pointer& p : call.pointers) call.arguments.push_back(&p);
    return call;
}

void CudaExecutable::launch(const Call& call, const StepRows& step, int parts, bool dependent, unsigned shared_part) {
    gpu::GridSize grid = gpu::grid_size(call.grid, step);
    // A graph serves many positions. Parts that a row does not have cost little, and a window can begin anywhere in one.
    if (const int part = call.grid.part_size; part > 0) {
        int z = (parts * part_size_ + part - 1) / part;
        if (call.grid.window > 0) z = std::min(z, (call.grid.window + part - 1) / part + 1);
        if (call.grid.most_parts > 0) z = std::min(z, call.grid.most_parts);
        grid.z = static_cast<unsigned>(z);
    }
    std::array<LaunchAttribute, 2> attributes{};
    unsigned count = 0;
    const auto add = [&](int id, int number) {
        attributes[count].id = id;
        attributes[count++].value.number = number;
    };
    if (dependent) add(kDependentLaunch, 1);
    if (shared_part > 0) add(kSharedPart, static_cast<int>(shared_part));
    const LaunchConfig config{grid.x, grid.y, grid.z, call.threads, 1, 1, call.shared_bytes, context_->stream(), attributes.data(), count};
    check(context_->driver().launch(&config, call.function, const_cast<void**>(call.arguments.data()), nullptr), "launch a kernel");
}

void CudaExecutable::copy_step() {
    check(context_->driver().to_device(record_.at(), host_record_.data(), host_record_.bytes(), context_->stream()), "take a step");
}

void CudaExecutable::copy_logits(int outputs) {
    if (outputs == 0) return;
    const std::size_t bytes = static_cast<std::size_t>(outputs) * static_cast<std::size_t>(vocab_) * size_of(logits_type_);
    check(context_->driver().to_host(host_logits_.data(), arena_.at(logits_.offset), bytes, context_->stream()), "copy the logits");
}

template <typename Fn>
void CudaExecutable::each_call(const StepRows& step, int longest, Fn&& fn) const {
    for (const CallLaunch& l : launches_)
        if (const int rows = l.output_rows ? step.outputs : step.m; rows > 0)
            for (const Call& call : gpu::variant_for(l.variants, rows, longest, step.m).calls) fn(call);
}

// Where a kernel takes most of a multiprocessor's shared memory, all kernels of the step ask for half of it, so that less
// has to be divided anew between them (8B in Q4_0 after 16,384 tokens: 388 tokens/s instead of 366).
unsigned CudaExecutable::shared_part(const StepRows& step, int longest) const {
    bool large = false;
    if (step.m <= kGraphRows && context_->driver_version() >= 13000) each_call(step, longest, [&](const Call& call) { large = large || call.shared_bytes >= kLargeShared; });
    return large ? 50 : 0;
}

void CudaExecutable::enqueue(const StepRows& step, int parts, bool pick) {
    // Short kernels gain from starting early (980 instead of 866 tokens/s on a 0.6B shape); long ones lose, because
    // the early blocks hold what the running ones need (9.6 thousand prompt tokens/s instead of 16.4).
    constexpr int few_rows = 8;
    static const bool wanted = environment("FORGE_CUDA_DEPENDENT") != "0";
    const bool dependent = wanted && step.m <= few_rows && context_->capability() >= 90;
    if (!pick) copy_step();
    const int longest = part_size_ > 0 ? parts * part_size_ - 1 : 0;   // that a graph of so many parts serves
    bool first = true;   // follows a copy, or the end of another graph
    const unsigned shared_part = this->shared_part(step, longest);
    each_call(step, longest, [&](const Call& call) {
        launch(call, step, parts, dependent && !first, shared_part);
        first = false;
    });
    if (!pick) return copy_logits(step.outputs);
    for (const Call& call : pick_) launch(call, step, parts, dependent, shared_part);
}

GraphExec CudaExecutable::graph(const StepRows& step, int parts, bool pick) {
    const GraphKey key{step.m, step.outputs, parts, pick};
    if (const auto it = graphs_.find(key); it != graphs_.end()) return it->second;
    const Driver& d = context_->driver();
    check(d.capture_begin(context_->stream(), 2), "record a step");
    Graph graph = nullptr;
    try {
        enqueue(step, parts, pick);
    } catch (...) {
        d.capture_end(context_->stream(), &graph);
        throw;
    }
    check(d.capture_end(context_->stream(), &graph), "record a step");
    GraphExec exec = nullptr;
    const Result made = d.graph_instantiate(&exec, graph, 0);
    d.graph_destroy(graph);
    check(made, "prepare a recorded step");
    return graphs_[key] = exec;
}

void CudaExecutable::submit(const StepRows& step) {
    context_->use();
    gpu::write_step(step, max_rows_, reinterpret_cast<std::int32_t*>(host_record_.data()));
    outputs_ = step.outputs;
    int longest = 0;
    for (int i = 0; i < step.m; ++i) longest = std::max(longest, step.positions[i]);
    if (timing_) run_timed(step);
    else run(step, parts_to(longest), false);
}

int CudaExecutable::parts_to(int position) const {
    // Parts that a row does not have cost a little: quarters of a doubling.
    const int needed = part_size_ > 0 ? position / part_size_ + 1 : 1;
    int parts = 1, step = 1;
    while (parts < needed) {
        if (parts >= 8 && (parts & (parts - 1)) == 0) step = parts / 4;
        parts += step;
    }
    return parts;
}

void CudaExecutable::run(const StepRows& step, int parts, bool pick) {
    static const bool graphs = environment("FORGE_CUDA_GRAPHS") != "0";
    if (graphs && step.m <= kGraphRows) check(context_->driver().graph_launch(graph(step, parts, pick), context_->stream()), "run a step");
    else enqueue(step, parts, pick);
}

bool CudaExecutable::follow(const StepRows& first, std::int32_t limit, std::span<std::int32_t> picked) {
    if (pick_.empty() || timing_ || first.m != 1 || first.outputs != 1 || picked.size() > gpu::most_picks) return false;
    context_->use();
    gpu::write_step(first, max_rows_, reinterpret_cast<std::int32_t*>(host_record_.data()), limit);
    outputs_ = 1;
    copy_step();
    for (std::size_t i = 0; i < picked.size(); ++i) run(first, parts_to(first.positions[0] + static_cast<int>(i)), true);
    copy_logits(1);
    check(context_->driver().to_host(host_picked_.data(), scratch_.at(picked_offset_), picked.size() * 4, context_->stream()), "copy tokens");
    context_->synchronize();
    std::memcpy(picked.data(), host_picked_.data(), picked.size() * 4);
    return true;
}

// One launch after the other, between events.
void CudaExecutable::run_timed(const StepRows& step) {
    const Driver& d = context_->driver();
    while (events_.size() < launches_.size() + 1) {
        events_.push_back(nullptr);
        check(d.event_create(&events_.back(), 0), "make an event");
    }
    const int longest = gpu::longest_position(step), parts = part_size_ > 0 ? longest / part_size_ + 1 : 1;
    const unsigned shared_part = this->shared_part(step, longest);
    copy_step();
    check(d.event_record(events_[0], context_->stream()), "record an event");
    for (std::size_t i = 0; i < launches_.size(); ++i) {
        const CallLaunch& l = launches_[i];
        const int rows = l.output_rows ? step.outputs : step.m;
        for (const Call& call : gpu::variant_for(l.variants, rows, longest, step.m).calls)
            if (rows > 0) launch(call, step, parts, false, shared_part);
        check(d.event_record(events_[i + 1], context_->stream()), "record an event");
    }
    copy_logits(step.outputs);
}

void CudaExecutable::wait() {
    context_->use();
    context_->synchronize();
    timings_.clear();
    if (!timing_) return;
    for (std::size_t i = 0; i < launches_.size(); ++i) {
        float milliseconds = 0;
        context_->driver().event_elapsed(&milliseconds, events_[i], events_[i + 1]);
        timings_.push_back({launches_[i].source, static_cast<double>(milliseconds) * 1e-3});
        for (const std::size_t b : launches_[i].beside) timings_.push_back({b, 0});   // within the time of the first
    }
}

void CudaExecutable::write_arena(std::uint64_t offset, std::span<const std::byte> bytes) {
    context_->use();
    check(context_->driver().to_device(arena_.at(offset), bytes.data(), bytes.size(), context_->stream()), "be given inputs");
    context_->synchronize();
}

void CudaExecutable::read_arena(std::uint64_t offset, std::span<std::byte> bytes) const {
    context_->use();
    check(context_->driver().to_host(bytes.data(), arena_.at(offset), bytes.size(), context_->stream()), "be asked for outputs");
    context_->synchronize();
}

std::span<const float> CudaExecutable::logits() const {
    const std::size_t count = static_cast<std::size_t>(outputs_) * static_cast<std::size_t>(vocab_);
    if (logits_type_ == DType::f32) return {reinterpret_cast<const float*>(host_logits_.data()), count};
    gpu::outputs_to_floats(reinterpret_cast<const std::byte*>(host_logits_.data()), logits_type_, std::span(floats_).first(count));
    return {floats_.data(), count};
}

}  // namespace forge::cuda
