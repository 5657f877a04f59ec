// A synthetic model as a folder that MLX quantised: names, stacked experts and shifted norms as `forge quantize` and
// mlx-lm write them, in one model.safetensors.
#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/paths.h"
#include "pack/gguf_encode.h"
#include "../mlx/recipe.h"
#include "pack/safetensors_writer.h"
#include "writers.h"

namespace forge::synth {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// mlx-lm has only the wrapper's class of these.
bool nested(const Shape& s) { return s.family == Family::qwen35 || s.family == Family::qwen35_moe; }

// The Hugging Face name of a tensor (of the first expert's) -> the folder's, without ".weight".
std::string path_of(const TensorPlan& tensor, const Shape& shape) {
    std::string name = tensor.hf;
    if (const std::size_t at = name.find("experts.{}."); at != std::string::npos) name.replace(at, 11, "switch_mlp.");
    if (name.ends_with(".weight")) name.resize(name.size() - 7);
    return (nested(shape) ? "language_model." : "") + name;
}

std::vector<std::int64_t> shape_of(const TensorPlan& tensor, std::int64_t cols) {
    if (tensor.experts > 0) return {tensor.experts, tensor.rows, cols};
    return {tensor.rows, cols};
}

Json entry_of(const MlxFormat& format, bool mode) {
    Json entry = {{"group_size", format.group}, {"bits", format.bits}};
    if (mode) entry["mode"] = name_of(format.mode);
    return entry;
}

// One tensor of the file: a plane of a quantised matrix, or plain numbers.
struct Part {
    const TensorPlan* tensor;
    const EncodedChunks* chunks;   // null: the small values
};

class Folder {
  public:
    Folder(const SynthOptions& options, const Shape& shape, ThreadPool& threads)
        : options_(options), shape_(shape), threads_(threads), recipe_({options.type}), pool_(chunk_pool(options.seed, threads)),
          plain_(pool_, GgufType::bf16, threads), tensors_(tensors_of(shape)) {
        std::erase_if(tensors_, [](const TensorPlan& tensor) { return tensor.hf.empty(); });
        spec_.layers.resize(static_cast<std::size_t>(shape.layers));
        for (LayerSpec& layer : spec_.layers) layer.feed_forward.moe.experts = shape.moe.experts;
        quantization_ = entry_of(recipe_.base(), true);
    }

    void write(const fs::path& folder, SynthSummary& summary) {
        SafetensorsWriter out((folder / "model.safetensors").string());
        out.set_metadata("format", "mlx");
        std::vector<Part> parts;
        for (const TensorPlan& tensor : tensors_) {
            add(tensor, out, parts);
            summary.parameters += static_cast<std::uint64_t>(elements_of(tensor));
        }
        summary.tensors = parts.size();
        summary.tensor_bytes = out.data_bytes();
        Progress progress("Writing " + folder.string(), summary.tensor_bytes);
        const auto write_bytes = [&](std::span<const std::byte> bytes) { out.write(bytes); };
        for (const std::size_t index : out.begin()) {
            const Part& part = parts[index];
            const std::uint64_t key = tensor_key(options_.seed, *part.tensor);
            if (part.chunks)
                write_matrix(*part.tensor, key, *part.chunks, false, threads_, progress, write_bytes);
            else
                write_small(*part.tensor, key, out, progress);
        }
        out.finish();
    }

    Json config(const Tokenizer& tokenizer) const {
        Json config = hf_config(shape_, tokenizer, "bfloat16");
        if (nested(shape_)) {
            std::string type = config["model_type"].get<std::string>();
            if (type.ends_with("_text")) type.resize(type.size() - 5);
            Json wrapper = {{"model_type", type}, {"vocab_size", shape_.vocab}, {"tie_word_embeddings", shape_.tied}, {"eos_token_id", config["eos_token_id"]},
                            {"torch_dtype", "bfloat16"}};
            wrapper["text_config"] = std::move(config);
            config = std::move(wrapper);
        }
        config["quantization"] = config["quantization_config"] = quantization_;
        return config;
    }

  private:
    void add(const TensorPlan& tensor, SafetensorsWriter& out, std::vector<Part>& parts) {
        const std::string path = path_of(tensor, shape_);
        const bool bare = !tensor.hf.ends_with(".weight");
        if (tensor.kind != Kind::matrix) {
            std::vector<std::int64_t> dims = dims_of(tensor, false);
            if (tensor.kind == Kind::conv) std::swap(dims[1], dims[2]);   // MLX has the one input channel last
            out.add_tensor(bare ? path : path + ".weight", dims, DType::bf16);
            parts.push_back({&tensor, nullptr});
            return;
        }
        using enum mlx::Choice::Entry;
        const mlx::Choice choice = recipe_.choose(path, tensor.cols, spec_);
        if (choice.entry == denied) quantization_[path] = false;
        if (!choice.format) {
            out.add_tensor(path + ".weight", shape_of(tensor, tensor.cols), DType::bf16);
            parts.push_back({&tensor, &plain_});
            return;
        }
        const MlxFormat& format = *choice.format;
        if (choice.entry != none) quantization_[path] = entry_of(format, choice.entry != parameters_without_mode);
        const std::vector<EncodedChunks>& planes = chunks_of(format).planes;
        const bool affine = format.mode == MlxMode::affine;
        out.add_tensor(path + ".weight", shape_of(tensor, tensor.cols * format.bits / 32), DType::u32);
        out.add_tensor(path + ".scales", shape_of(tensor, tensor.cols / format.group), affine ? DType::bf16 : DType::u8);
        if (affine) out.add_tensor(path + ".biases", shape_of(tensor, tensor.cols / format.group), DType::bf16);
        for (const EncodedChunks& plane : planes) parts.push_back({&tensor, &plane});
    }

    const MlxChunks& chunks_of(const MlxFormat& format) {
        for (const auto& [known, chunks] : chunks_)
            if (known == format) return *chunks;
        chunks_.emplace_back(format, std::make_unique<MlxChunks>(pool_, format, threads_));
        return *chunks_.back().second;
    }

    void write_small(const TensorPlan& tensor, std::uint64_t key, SafetensorsWriter& out, Progress& progress) {
        std::vector<float> values = small_values(tensor, key, shape_, false);
        // Norms of hybrids hold 1 + w there.
        if (shape_.delta.interval > 0 && tensor.one_plus)
            for (float& value : values) value += 1;
        std::vector<std::byte> bytes(values.size() * 2);
        encode_gguf_row(GgufType::bf16, values.data(), static_cast<std::int64_t>(values.size()), bytes.data());
        out.write(bytes);
        progress.advance(bytes.size());
    }

    const SynthOptions& options_;
    const Shape& shape_;
    ThreadPool& threads_;
    mlx::Recipe recipe_;
    ModelSpec spec_;                 // as much as recipes ask for
    std::vector<float> pool_;
    EncodedChunks plain_;
    std::vector<std::pair<MlxFormat, std::unique_ptr<MlxChunks>>> chunks_;
    std::vector<TensorPlan> tensors_;
    Json quantization_;
};

}  // namespace

void write_mlx(const SynthOptions& options, const Shape& shape, ThreadPool& threads, SynthSummary& summary) {
    const fs::path folder(options.output);
    Folder model(options, shape, threads);
    std::error_code reason;
    fs::create_directories(folder, reason);
    if (reason) fail(ErrorKind::io, "cannot create the folder {}: {}", options.output, reason.message());
    const Tokenizer tokenizer = make_tokenizer(shape);
    model.write(folder, summary);
    write_tokenizer_files(folder, shape, tokenizer);
    write_file_atomically(folder / "config.json", model.config(tokenizer).dump(2) + "\n");   // last: it makes the folder a model
}

}  // namespace forge::synth
