#include "pack/synth.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "types.h"
#include "writers.h"

namespace forge {
namespace synth {
namespace {

// The row of the plain order that GGUF stores at `row` when each head's two
// halves are interleaved: 2i and 2i+1 are i of the first and the second half.
std::int64_t source_row(std::int64_t row, std::int64_t rows, int heads) {
    const std::int64_t per_head = rows / heads, in_head = row % per_head;
    return row - in_head + (in_head % 2) * (per_head / 2) + in_head / 2;
}

}  // namespace

void write_matrix(const TensorPlan& tensor, std::uint64_t key, const EncodedChunks& chunks, bool interleave,
                  ThreadPool& threads, Progress& progress,
                  const std::function<void(std::span<const std::byte>)>& write) {
    const std::size_t row_bytes = chunks.row_bytes(tensor.cols);
    const auto rows = static_cast<std::size_t>(tensor.rows * std::max<std::int64_t>(1, tensor.experts));
    const std::size_t batch = std::clamp<std::size_t>((std::size_t{8} << 20) / row_bytes, 1, rows);
    std::vector<std::byte> buffer(batch * row_bytes);
    for (std::size_t first = 0; first < rows; first += batch) {
        const std::size_t count = std::min(batch, rows - first);
        threads.parallel_for(count, 64, [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i) {
                auto row = static_cast<std::int64_t>(first + i);
                if (interleave && tensor.interleaved_heads > 0)
                    row = source_row(row, tensor.rows, tensor.interleaved_heads);
                chunks.copy_row(key, row, tensor.cols, buffer.data() + i * row_bytes);
            }
        });
        write(std::span(buffer).first(count * row_bytes));
        progress.advance(count * row_bytes);
    }
}

}  // namespace synth

SynthSummary synthesise(const SynthOptions& given) {
    SynthOptions options = given;
    const bool mlx = options.format == "mlx";
    if (options.type.empty()) options.type = mlx ? "q4" : options.format == "hf" ? "bf16" : "q4_k_m";
    const synth::Shape& shape = synth::shape_named(options.shape);
    if (options.output.empty()) fail("no output file or folder is given for the synthetic model");
    if (!mlx && options.format != "gguf" && options.format != "hf")
        fail("there is no format '{}' to synthesise; known are gguf, hf and mlx", options.format);
    if (!mlx) {
        const synth::Recipe& recipe = synth::recipe_named(options.type);
        if (options.format == "hf" && !recipe.plain)
            fail("a Hugging Face folder holds bf16, f16 or f32, not {}; choose one of them or the format gguf or mlx",
                 recipe.name);
    }
    if (options.outline && options.format != "hf")
        fail("only a Hugging Face folder can be an outline: GGUF and MLX weights are read when a model is opened; use --format hf");
    if (!options.overwrite && std::filesystem::exists(options.output))
        fail("{} exists already; remove it or choose another name", options.output);
    ThreadPool threads(options.threads);
    SynthSummary summary;
    const auto write = mlx ? synth::write_mlx : options.format == "gguf" ? synth::write_gguf : synth::write_hf;
    write(options, shape, threads, summary);
    return summary;
}

}  // namespace forge
