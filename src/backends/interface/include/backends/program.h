// The program: launches as plain data, with the barriers they need and one
// arena. It is built once per bucket of rows and replayed every step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace forge {

enum class Space : std::uint8_t {
    arena,    // step-local memory of the program
    weight,   // a bound weight; index = WeightId
    table,    // a constant float array of the program; index = which
    keys,     // a layer's key cache; index = layer
    values,   // a layer's value cache
    conv_state, delta_state,  // a layer's recurrent state
};

struct BufferRef {
    Space space = Space::arena;
    std::int32_t index = 0;
    std::uint64_t offset = 0, bytes = 0;    // arena and table
};

enum class Access : std::uint8_t { read, write, read_write };

struct Operand {
    std::string name;                       // "x", "y", "weight", ...
    BufferRef buffer;
    Access access = Access::read;
};

struct Constant {
    std::string name;
    double value;                           // integers are exact up to 2^53
};

// Which of a backend's variants runs a launch in steps of a bucket of rows (Backend::variants names both).
struct VariantChoice { int rows; std::string name; };

struct Launch {
    std::string kernel;                     // family in the kernel registry: "matvec", "gemm", ...
    std::vector<Operand> operands;
    std::vector<Constant> constants;
    bool output_rows = false;               // rows are the step's outputs, not its tokens
    bool barrier = false;                   // wait for every earlier launch first
    std::int32_t layer = -1;
    std::int32_t op = -1;                   // of the plan that it was lowered from
    std::string label;                      // what it makes, for people
    std::vector<VariantChoice> variants = {};   // from a tuning record; a bucket without one takes the backend's default

    // Null: the default.
    const std::string* variant(int rows) const;
    const Operand* find(std::string_view operand) const;
    const Operand& operand(std::string_view operand) const;     // Error(internal) when absent
    double number(std::string_view constant) const;             // Error(internal) when absent
    double number(std::string_view constant, double absent) const;
    std::int64_t integer(std::string_view constant) const { return static_cast<std::int64_t>(number(constant)); }
};

// What one layer keeps from step to step: keys and values of every position (0 heads: none of its
// own), or the recurrent state of a gated-delta layer (0 value heads: none).
struct CacheLayer {
    int n_kv_heads = 0, head_dim = 0;
    int n_v_heads = 0, n_k_heads = 0, k_dim = 0, v_dim = 0, conv_kernel = 0;
    bool recurrent() const { return n_v_heads > 0; }
    int conv_channels() const { return 2 * n_k_heads * k_dim + n_v_heads * v_dim; }
};

struct Program {
    DType type = DType::bf16;               // activations and cache
    int max_rows = 1;                       // most rows of a step
    int max_outputs = 1;
    std::vector<Launch> launches;
    std::vector<std::vector<float>> tables;
    std::uint64_t arena_bytes = 0;
    BufferRef logits;                       // [max_outputs, vocab]
    std::int64_t vocab = 0;
    DType logits_type = DType::f32;         // that of activations where a plan without its head returns hidden states

    int barriers() const;
};

// One line a launch.
std::string print(const Program& program);

}  // namespace forge
