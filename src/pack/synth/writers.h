// The outputs. All fill `summary` and draw a progress bar.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "chunks.h"
#include "pack/synth.h"
#include "shapes.h"
#include "tensors.h"
#include "tokenizer.h"

namespace forge::synth {

void write_gguf(const SynthOptions& options, const Shape& shape, ThreadPool& threads, SynthSummary& summary);
void write_hf(const SynthOptions& options, const Shape& shape, ThreadPool& threads, SynthSummary& summary);
void write_mlx(const SynthOptions& options, const Shape& shape, ThreadPool& threads, SynthSummary& summary);

// Everything of a folder but weights and config.json, and the Hugging Face config.
void write_tokenizer_files(const std::filesystem::path& folder, const Shape& shape, const Tokenizer& tokenizer);
nlohmann::ordered_json hf_config(const Shape& shape, const Tokenizer& tokenizer, std::string_view torch_type);

// Makes the rows of one matrix in parallel and hands them to `write` in order,
// some megabytes at a time. interleaved_heads: as GGUF stores llama's q and k.
void write_matrix(const TensorPlan& tensor, std::uint64_t key, const EncodedChunks& chunks, bool interleave,
                  ThreadPool& threads, Progress& progress,
                  const std::function<void(std::span<const std::byte>)>& write);

}  // namespace forge::synth
