#include "fixture.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "backends/cpu.h"
#include "base/float16.h"
#include "base/log.h"
#include "formats/model_file.h"
#include "plan/passes.h"

namespace forge::test {

TinySubject::TinySubject(const std::string& name, WeightLayout layout) : reference_(make_plain_backend(pool_)) {
    const std::filesystem::path folder = std::filesystem::path(FORGE_TEST_DATA) / name;
    const std::filesystem::path gguf = folder / "model.gguf";
    model_ = bind_model(*open_model_file((std::filesystem::exists(gguf) ? gguf : folder).string()), pool_, layout);
    plan_ = fused(PassTarget::cpu, {});
    for (std::size_t i = 0; i < model_->spec.layers.size(); ++i) {
        const LayerSpec& layer = model_->spec.layers[i];
        CacheLayer c;
        if (layer.mixer == MixerKind::gated_delta) {
            c.n_v_heads = layer.delta.n_v_heads;
            c.n_k_heads = layer.delta.n_k_heads;
            c.k_dim = layer.delta.k_dim;
            c.v_dim = layer.delta.v_dim;
            c.conv_kernel = layer.delta.conv_kernel;
        } else if (layer.attention.kv_layer == static_cast<int>(i)) {
            c.n_kv_heads = layer.attention.n_kv_heads;
            c.head_dim = layer.attention.head_dim;
        }
        layers_.push_back(c);
    }
}

Plan TinySubject::fused(PassTarget target, const std::vector<std::string>& off) const {
    Plan plan = build_plan(*model_);
    run_passes(plan, off, target);
    return plan;
}

tune::Subject TinySubject::on(Backend& backend, int few, int many, DType type) const {
    const bool gpu = backend.wide_fusions();
    Plan few_plan = gpu ? fused(PassTarget::gpu, {"trim_outputs"}) : plan_, many_plan = gpu ? fused(PassTarget::gpu, {}) : plan_;
    return {backend, *reference_, std::move(few_plan), tune::take_apart(many_plan), model_->spec.ropes, model_->weights, layers_, type, std::max(256, many + 64), few, std::min(few, 2), many, 2};
}

double GivenTimes::seconds(const std::string&, int, const std::string& variant, tune::Probe&, const tune::Case&) {
    ++asked;
    const auto it = milliseconds_.find(variant);
    return (it == milliseconds_.end() ? otherwise_ : it->second) * 1e-3 * factor;
}

namespace {

class FaultyExecutable final : public Executable {
  public:
    FaultyExecutable(std::unique_ptr<Executable> inner, Program program, std::vector<std::pair<std::size_t, Fault>> faults)
        : inner_(std::move(inner)), program_(std::move(program)), faults_(std::move(faults)) {}
    void submit(const StepRows& step) override {
        for (const auto& [launch, fault] : faults_)
            if (fault.before) fault.before(*inner_, program_, program_.launches[launch], step);
        inner_->submit(step);
        inner_->wait();
        for (const auto& [launch, fault] : faults_)
            if (fault.after) fault.after(*inner_, program_, program_.launches[launch], step);
    }
    void wait() override {}
    std::span<const float> logits() const override { return inner_->logits(); }
    void set_timing(bool on) override { inner_->set_timing(on); }
    std::span<const LaunchTime> timings() const override { return inner_->timings(); }
    std::uint64_t scratch_bytes() const override { return inner_->scratch_bytes(); }
    void write_arena(std::uint64_t offset, std::span<const std::byte> bytes) override { inner_->write_arena(offset, bytes); }
    void read_arena(std::uint64_t offset, std::span<std::byte> bytes) const override { inner_->read_arena(offset, bytes); }

  private:
    std::unique_ptr<Executable> inner_;
    Program program_;
    std::vector<std::pair<std::size_t, Fault>> faults_;
};

// Answers as another backend does.
class Forwarding : public Backend {
  public:
    explicit Forwarding(Backend& inner) : inner_(inner) {}
    BackendLimits limits() const override { return inner_.limits(); }
    WeightLayout layout() const override { return inner_.layout(); }
    std::uint64_t cache_bytes(std::span<const CacheLayer> layers, int slots, int capacity, DType type) const override {
        return inner_.cache_bytes(layers, slots, capacity, type);
    }
    std::shared_ptr<Cache> create_cache(std::span<const CacheLayer> layers, int slots, int capacity, DType type) override {
        return inner_.create_cache(layers, slots, capacity, type);
    }
    std::unique_ptr<Executable> compile(const Program& program, std::span<const Weight> weights, std::shared_ptr<Cache> cache) override {
        return inner_.compile(program, weights, std::move(cache));
    }
    std::uint64_t packed_bytes(const Weight& w, int rows, DType type) const override { return inner_.packed_bytes(w, rows, type); }
    bool same_packing(const Weight& a, const Weight& b, DType type) const override { return inner_.same_packing(a, b, type); }
    std::uint64_t attention_partial_bytes(int rows, int heads, int head_dim, int capacity, DType type) const override {
        return inner_.attention_partial_bytes(rows, heads, head_dim, capacity, type);
    }
    std::uint64_t expert_packed_bytes(const Weight& w, int experts, int per_token, int rows, DType type) const override {
        return inner_.expert_packed_bytes(w, experts, per_token, rows, type);
    }
    std::uint64_t group_bytes(int experts, int per_token, int rows) const override { return inner_.group_bytes(experts, per_token, rows); }
    bool plain_rows() const override { return inner_.plain_rows(); }
    bool delta_norm() const override { return inner_.delta_norm(); }
    bool wide_fusions() const override { return inner_.wide_fusions(); }
    bool merges_parts() const override { return inner_.merges_parts(); }

  protected:
    Backend& inner_;
};

class FaultyBackend final : public Forwarding {
  public:
    FaultyBackend(Backend& inner, std::string kernel, std::vector<Fault> faults) : Forwarding(inner), kernel_(std::move(kernel)), faults_(std::move(faults)) {}
    std::unique_ptr<Executable> compile(const Program& program, std::span<const Weight> weights, std::shared_ptr<Cache> cache) override {
        std::vector<std::pair<std::size_t, Fault>> faults;
        Program plain = program;
        for (std::size_t i = 0; i < plain.launches.size(); ++i) {
            for (const VariantChoice& v : plain.launches[i].variants)
                for (const Fault& f : faults_)
                    if (f.name == v.name) faults.emplace_back(i, f);
            plain.launches[i].variants.clear();
        }
        return std::make_unique<FaultyExecutable>(inner_.compile(plain, weights, std::move(cache)), plain, std::move(faults));
    }
    std::vector<LaunchVariants> variants(const Program& program, std::size_t launch, std::span<const Weight>, std::span<const CacheLayer>, int) const override {
        if (program.launches[launch].kernel != kernel_) return {};
        std::vector<std::string> names{"right"};
        for (const Fault& f : faults_) names.push_back(f.name);
        return {{program.max_rows, std::move(names)}};
    }

  private:
    std::string kernel_;
    std::vector<Fault> faults_;
};

class NarrowBackend final : public Forwarding {
  public:
    NarrowBackend(Backend& inner, std::string kernel, std::set<std::string> names) : Forwarding(inner), kernel_(std::move(kernel)), names_(std::move(names)) {}
    std::vector<LaunchVariants> variants(const Program& program, std::size_t launch, std::span<const Weight> weights, std::span<const CacheLayer> layers, int capacity) const override {
        if (program.launches[launch].kernel != kernel_) return {};
        std::vector<LaunchVariants> buckets = inner_.variants(program, launch, weights, layers, capacity);
        for (LaunchVariants& b : buckets)
            std::erase_if(b.names, [&, standard = b.names[0]](const std::string& name) { return name != standard && !names_.contains(name); });
        std::erase_if(buckets, [](const LaunchVariants& b) { return b.names.size() < 2; });
        return buckets;
    }

  private:
    std::string kernel_;
    std::set<std::string> names_;
};

}  // namespace

std::unique_ptr<Backend> faulty_backend(Backend& inner, const std::string& kernel, std::vector<Fault> faults) {
    return std::make_unique<FaultyBackend>(inner, kernel, std::move(faults));
}

std::unique_ptr<Backend> narrow_backend(Backend& inner, const std::string& kernel, std::set<std::string> names) {
    return std::make_unique<NarrowBackend>(inner, kernel, std::move(names));
}

void change_elements(Executable& e, const Operand& operand, int rows, std::int64_t cols, const std::function<float(int, std::int64_t, float)>& change) {
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
    e.read_arena(operand.buffer.offset, std::as_writable_bytes(std::span(bits)));
    for (int r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c) {
            std::uint16_t& b = bits[static_cast<std::size_t>(r) * static_cast<std::size_t>(cols) + static_cast<std::size_t>(c)];
            b = f32_to_bf16(change(r, c, bf16_to_f32(b)));
        }
    e.write_arena(operand.buffer.offset, std::as_bytes(std::span(bits)));
}

CapturedLog::CapturedLog() {
    set_log_level(LogLevel::debug);
    testing::internal::CaptureStderr();
}
CapturedLog::~CapturedLog() {
    if (open_) testing::internal::GetCapturedStderr();
    set_log_level(LogLevel::warn);
}
std::string CapturedLog::text() {
    open_ = false;
    return testing::internal::GetCapturedStderr();
}

}  // namespace forge::test
