#include "runtime/engine.h"

#include <set>

#include "backends/cpu.h"
#include "base/error.h"
#include "engine_state.h"

namespace forge {

Engine::Engine() : state_(std::make_unique<State>()) {}
Engine::~Engine() = default;

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
