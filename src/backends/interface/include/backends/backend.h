// What an executor of programs provides. Calls are coarse: one virtual call a
// step, never one an op.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/program.h"
#include "base/step_rows.h"
#include "quant/weight.h"

namespace forge {

struct BackendLimits {
    std::string name;                       // "CPU avx512, 2 threads"
    int threads = 1;
    std::uint64_t memory_bytes = 0;         // what the device can hold; 0 = unknown
    int prefill_rows = 512;                 // rows of a step that read a prompt fast
    bool tune_unasked = true;               // variants are timed on the first start of a model although nobody asked
    std::string driver = {};                // what else kernels' speed and results depend on: versions, the chip's name
};

// Key/value caches of every layer, for a fixed number of slots and positions.
class Cache {
  public:
    virtual ~Cache() = default;
    virtual std::uint64_t bytes() const = 0;
    // One head's vector at a position, as the activation type, for saving and restoring.
    virtual void read(int layer, bool values, int slot, int head, int position, void* out) const = 0;
    virtual void write(int layer, bool values, int slot, int head, int position, const void* in) = 0;
    // The same for positions [first, last), `stride` bytes apart on the host.
    virtual void read_run(int layer, bool values, int slot, int head, int first, int last, std::byte* out, std::size_t stride) const {
        for (int i = first; i < last; ++i, out += stride) read(layer, values, slot, head, i, out);
    }
    virtual void write_run(int layer, bool values, int slot, int head, int first, int last, const std::byte* in, std::size_t stride) {
        for (int i = first; i < last; ++i, in += stride) write(layer, values, slot, head, i, in);
    }
    // All recurrent states of a slot (convolution inputs as the activation type, delta states as f32);
    // a state cannot be rolled back, so sessions keep snapshots.
    virtual std::size_t state_bytes() const = 0;
    // Host memory of state_bytes() that states are copied to and from fastest.
    virtual std::shared_ptr<std::byte[]> state_memory() const { return std::shared_ptr<std::byte[]>(new std::byte[state_bytes()]); }
    virtual void read_state(int slot, std::byte* out) const = 0;
    virtual void write_state(int slot, const std::byte* in) = 0;
};

struct LaunchTime { std::size_t launch; double seconds; };

// A compiled program.
class Executable {
  public:
    virtual ~Executable() = default;
    virtual void submit(const StepRows& step) = 0;     // does not allocate
    virtual void wait() = 0;                           // errors of the step are thrown here
    virtual std::span<const float> logits() const = 0; // [outputs of the last step, vocab]
    // Steps of one row, each with the arg-max of the one before (ids below `limit`, the first of equals) as its token,
    // without the host in between; picked[i] is the arg-max after step i, -1 where a logit is not a number. logits()
    // are the last step's. False, with nothing done, where that cannot be.
    virtual bool follow(const StepRows&, std::int32_t /*limit*/, std::span<std::int32_t> /*picked*/) { return false; }
    virtual void set_timing(bool on) = 0;
    virtual std::span<const LaunchTime> timings() const = 0;   // of the last step
    virtual std::uint64_t scratch_bytes() const = 0;
    // Of a step of one row; no launches: as the program has them.
    virtual StepCounts counts() const { return {}; }
    // Bytes of the program's arena, between steps: how single launches are given their inputs and asked for what they made.
    virtual void write_arena(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
    virtual void read_arena(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
    // Calls fn(layer) when a step begins a layer's first launch (-1: what is before the layers, or behind). It must
    // return at once and not throw. Executables on devices with a memory of their own do not call it.
    virtual void on_layer(std::function<void(int)>) {}
};

// The ways in which a backend can run a launch in steps of up to `rows` rows, named by the literals they differ in. The
// first is what runs without a record. All of one bucket make the same sums in the same order. usual: rows of the steps that
// matter most, which are timed.
struct LaunchVariants {
    int rows;
    std::vector<std::string> names;
    int usual = rows;
};

class Backend {
  public:
    virtual ~Backend() = default;
    virtual BackendLimits limits() const = 0;
    // False: its programs are there to be counted, and weights are not read.
    virtual bool runs() const { return true; }
    // The layout that the kernels read fastest, for weights that are converted anyway; any layout works.
    virtual WeightLayout layout() const = 0;
    // Bytes of KV cache that `create_cache` would take.
    virtual std::uint64_t cache_bytes(std::span<const CacheLayer> layers, int slots, int capacity, DType type) const = 0;
    virtual std::shared_ptr<Cache> create_cache(std::span<const CacheLayer> layers, int slots, int capacity, DType type) = 0;
    // Weights and cache must outlive the executable. One executable runs at a time.
    virtual std::unique_ptr<Executable> compile(const Program& program, std::span<const Weight> weights,
                                                std::shared_ptr<Cache> cache) = 0;
    // Variants of a launch, a bucket after the other, smallest first; empty where there is one way only.
    virtual std::vector<LaunchVariants> variants(const Program&, std::size_t /*launch*/, std::span<const Weight>,
                                                 std::span<const CacheLayer>, int /*capacity*/) const {
        return {};
    }
    // Programs that will be compiled one after the other: a backend whose compiler is slow does its part of it for all at
    // once, if it can keep what it made.
    virtual void prepare(std::span<const Program>, std::span<const Weight>, std::span<const CacheLayer>, int /*capacity*/) {}
    // Tokens, positions and such are validated by the caller; capabilities that lowering asks for:
    virtual std::uint64_t packed_bytes(const Weight& weight, int rows, DType type) const = 0;   // gemm input, packed
    virtual bool same_packing(const Weight& a, const Weight& b, DType type) const = 0;
    virtual std::uint64_t attention_partial_bytes(int rows, int heads, int head_dim, int capacity, DType type) const = 0;
    virtual std::uint64_t expert_packed_bytes(const Weight& weight, int experts, int per_token, int rows, DType type) const = 0;
    virtual std::uint64_t group_bytes(int experts, int per_token, int rows) const = 0;
    // Matrix products read plain rows, so that rows without a norm are not packed.
    virtual bool plain_rows() const { return false; }
    // Its delta kernel of up to eight rows can norm and gate what it reads.
    virtual bool delta_norm() const { return false; }
    // Its kernels have the fused forms that the plan's passes for GPUs make.
    virtual bool wide_fusions() const { return false; }
    // Merging the parts of a short context in attention's launch (fuse_merge) pays here.
    virtual bool merges_parts() const { return false; }
};

}  // namespace forge
