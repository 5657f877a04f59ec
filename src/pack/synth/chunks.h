// Where synthetic weights come from: a pool of chunks of 256 normally
// distributed values, and a rule that lays chunks side by side to make a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "pack/mlx_encode.h"
#include "quant/gguf_blocks.h"

namespace forge::synth {

// A hash of two words (the finaliser of splitmix64).
std::uint64_t mix(std::uint64_t a, std::uint64_t b);

constexpr int chunk_values = 256;
constexpr std::uint64_t chunk_count = 4096;

// The pool's values, chunk after chunk. Integer arithmetic makes them, so every
// machine has the same.
std::vector<float> chunk_pool(std::uint64_t seed, ThreadPool& threads);

// The pool in one type (one plane of it, where a format has several), and rows made of it by copying.
class EncodedChunks {
  public:
    EncodedChunks(const std::vector<float>& pool, GgufType type, ThreadPool& threads);
    // chunk_count encoded chunks, one after the other.
    EncodedChunks(std::size_t chunk_bytes, std::vector<std::byte> bytes) : chunk_bytes_(chunk_bytes), bytes_(std::move(bytes)) {}

    // Bytes of a row; cols must be a multiple of the type's block.
    std::size_t row_bytes(std::int64_t cols) const { return static_cast<std::size_t>(cols) * chunk_bytes_ / chunk_values; }
    // Row `row` of the tensor with this key. Rows of one tensor that are less
    // than 4096 apart share no chunk in the same place.
    void copy_row(std::uint64_t key, std::int64_t row, std::int64_t cols, std::byte* out) const;

  private:
    std::size_t chunk_bytes_;
    std::vector<std::byte> bytes_;
};

// The pool's planes in a format of MLX; biases only of affine ones. Numbers and affine scales are bf16.
struct MlxChunks {
    MlxChunks(const std::vector<float>& pool, const MlxFormat& format, ThreadPool& threads);
    std::vector<EncodedChunks> planes;   // codes, scales, biases
};

}  // namespace forge::synth
