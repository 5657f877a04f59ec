#include "pack/quantize.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/float16.h"
#include "base/paths.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "config.h"
#include "layout.h"
#include "model/bind.h"
#include "pack/safetensors_writer.h"
#include "recipe.h"

namespace forge {
namespace mlx {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uint64_t file_bytes = std::uint64_t{5} << 30;    // of a file's tensors, at most (but one tensor is never split)
constexpr std::size_t batch_bytes = std::size_t{8} << 20;       // of numbers encoded at once

bool is_float(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

// One tensor of the output with what was decided about it.
struct Work {
    const OutTensor* tensor;
    DType source, type;                // of the numbers: as stored, as cast
    std::optional<MlxFormat> format;
    std::int64_t rows = 0, cols = 0;
    bool global_scale = false;
    std::vector<std::byte> scales, biases;   // made with the codes, written later
    std::vector<float> largest;              // of each expert's matrix

    std::uint64_t bytes() const {
        const auto n = static_cast<std::uint64_t>(rows);
        if (!format) return n * static_cast<std::uint64_t>(cols) * size_of(type);
        const MlxRowBytes b = mlx_row_bytes(*format, cols, type);
        return n * (b.codes + b.scales + b.biases) + 4 * largest.size();
    }
    std::uint64_t source_bytes() const { return static_cast<std::uint64_t>(rows * cols) * size_of(source); }
};

// Row r of an output tensor, as floats of the type that it is cast to.
class RowReader {
  public:
    explicit RowReader(const Work& work) : work_(work) {
        std::int64_t first = 0;
        for (const RowSpan& span : work.tensor->rows) {
            starts_.push_back(first);
            first += span.count;
        }
    }
    void read(std::int64_t row, float* out) const {
        const auto at = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), row) - starts_.begin()) - 1;
        const RowSpan& span = work_.tensor->rows[at];
        const std::int64_t source_row = span.first + row - starts_[at];
        const std::byte* data = span.tensor->data.data() + static_cast<std::size_t>(source_row * work_.cols) * size_of(work_.source);
        for (std::int64_t i = 0; i < work_.cols; ++i) {
            float value = number(data, i);
            if (work_.tensor->plus_one) value = rounded(value + 1, work_.source);
            out[i] = work_.type == work_.source ? value : rounded(value, work_.type);
        }
    }

    static float rounded(float value, DType type) {
        if (type == DType::bf16) return bf16_to_f32(f32_to_bf16(value));
        if (type == DType::f16) return f16_to_f32(f32_to_f16(value));
        return value;
    }

  private:
    float number(const std::byte* data, std::int64_t i) const {
        if (work_.source == DType::f32) {
            float value;
            std::memcpy(&value, data + 4 * i, 4);
            return value;
        }
        std::uint16_t half;
        std::memcpy(&half, data + 2 * i, 2);
        return work_.source == DType::bf16 ? bf16_to_f32(half) : f16_to_f32(half);
    }
    const Work& work_;
    std::vector<std::int64_t> starts_;
};

void store_row(const float* row, std::int64_t cols, DType type, std::byte* out) {
    if (type == DType::f32) {
        std::memcpy(out, row, static_cast<std::size_t>(cols) * 4);
        return;
    }
    for (std::int64_t i = 0; i < cols; ++i) {
        const std::uint16_t half = type == DType::bf16 ? f32_to_bf16(row[i]) : f32_to_f16(row[i]);
        std::memcpy(out + 2 * i, &half, 2);
    }
}

class Conversion {
  public:
    Conversion(const QuantizeOptions& options) : options_(options), recipe_(options.recipes), threads_(options.threads) {
        file_ = open_model_file(options.source);
        if (file_->format == ModelFormat::mlx) fail("{} is quantised already; quantise the model that it was made from", options.source);
        if (file_->format != ModelFormat::huggingface)
            fail(ErrorKind::unsupported, "{}: only a Hugging Face folder (config.json and safetensors) can be quantised", options.source);
        spec_ = read_spec(*file_);
        layout_ = layout_of(*file_, spec_);
        plan();
    }

    QuantizeSummary run() {
        const fs::path target = fs::path(options_.output).lexically_normal();
        if (!options_.overwrite && fs::exists(target)) fail("{} exists already; remove it, choose another name or give --force", options_.output);
        const fs::path partial = (target.has_filename() ? target : target.parent_path()).string() + ".partial-" + std::to_string(::getpid());
        std::error_code reason;
        fs::create_directories(partial, reason);
        if (reason) fail(ErrorKind::io, "cannot create the folder {}: {}", partial.string(), reason.message());
        try {
            write_folder(partial);
            if (fs::exists(target)) fs::remove_all(target);
            fs::rename(partial, target);
        } catch (const fs::filesystem_error& error) {
            fs::remove_all(partial, reason);
            fail(ErrorKind::io, "cannot write {}: {}", options_.output, error.code().message());
        } catch (...) {
            fs::remove_all(partial, reason);
            throw;
        }
        return summary_;
    }

  private:
    // What mlx-lm casts to: torch_dtype, or the nested dtype.
    std::optional<DType> cast_type() const {
        const auto named = [](const nlohmann::ordered_json& config, const char* key) -> std::optional<DType> {
            const auto found = config.find(key);
            if (found == config.end() || !found->is_string()) return std::nullopt;
            if (*found == "bfloat16") return DType::bf16;
            if (*found == "float16") return DType::f16;
            if (*found == "float32") return DType::f32;
            return std::nullopt;
        };
        if (const auto type = named(file_->config, "torch_dtype")) return type;
        const auto text = file_->config.find("text_config");
        return text != file_->config.end() && text->is_object() ? named(*text, "dtype") : std::nullopt;
    }

    void plan() {
        const MlxFormat& base = recipe_.base();
        quantization_ = {{"group_size", base.group}, {"bits", base.bits}, {"mode", name_of(base.mode)}};
        const auto cast = cast_type();
        for (const OutTensor& tensor : layout_.tensors) {
            Work work{.tensor = &tensor, .source = tensor.rows.front().tensor->dtype, .type = DType::f32, .format = {}, .scales = {}, .biases = {}, .largest = {}};
            for (const RowSpan& span : tensor.rows) {
                if (!is_float(span.tensor->dtype) || span.tensor->dtype != work.source)
                    fail(ErrorKind::unsupported, "{}: {} should hold f32, f16 or bf16 numbers, all parts of {} the same", file_->path, span.tensor->describe(), tensor.name);
                work.rows += span.count;
            }
            work.type = tensor.keep_type || !cast ? work.source : *cast;
            work.cols = tensor.rows.front().tensor->cols();
            if (tensor.module) decide(work);
            works_.push_back(std::move(work));
        }
        if (summary_.quantised == 0) fail("{}: nothing would be quantised: no module's rows are whole groups of {}", file_->path, base.group);
    }

    void decide(Work& work) {
        const std::string path = work.tensor->path();
        const Choice choice = recipe_.choose(path, work.cols, spec_);
        work.format = choice.format;
        summary_.quantised += choice.format ? 1 : 0;
        if (choice.entry == Choice::Entry::denied) quantization_[path] = false;
        const bool scaled = options_.global_scale && work.tensor->experts && choice.format && choice.format->mode == MlxMode::nvfp4;
        if (choice.format && (choice.entry != Choice::Entry::none || scaled)) {
            Json entry = {{"group_size", choice.format->group}, {"bits", choice.format->bits}};
            if (choice.entry != Choice::Entry::parameters_without_mode) entry["mode"] = name_of(choice.format->mode);
            if (scaled) entry["global_scale"] = true;
            quantization_[path] = std::move(entry);
        }
        if (scaled) work.largest.resize(static_cast<std::size_t>(work.tensor->shape.front()));
    }

    void write_folder(const fs::path& folder) {
        std::vector<std::vector<Work*>> files(1);
        std::uint64_t filled = 0, total = 0;
        for (Work& work : works_) {
            if (filled > 0 && filled + work.bytes() > file_bytes) {
                files.emplace_back();
                filled = 0;
            }
            files.back().push_back(&work);
            filled += work.bytes();
            total += work.source_bytes();
            summary_.bytes += work.bytes();
            summary_.parameters += static_cast<std::uint64_t>(work.rows * work.cols);
        }
        summary_.source_bytes = total;
        summary_.tensors = works_.size();
        summary_.files = files.size();
        Json map = Json::object();
        Progress progress("quantising " + options_.source, total);
        for (std::size_t i = 0; i < files.size(); ++i) {
            const std::string name = files.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
            write_file(folder / name, files[i], progress);
            for (const Work* work : files[i])
                for (const std::string& tensor : tensor_names(*work)) map[tensor] = name;
        }
        const Json index = {{"metadata", {{"total_size", summary_.bytes}, {"total_parameters", summary_.parameters}}}, {"weight_map", map}};
        write_file_atomically(folder / "model.safetensors.index.json", index.dump(4) + "\n");
        copy_other_files(folder);
        write_file_atomically(folder / "config.json", config_of(*file_, spec_, layout_, quantization_).dump(4) + "\n");
    }

    static std::vector<std::string> tensor_names(const Work& work) {
        if (!work.format) return {work.tensor->name};
        const std::string path = work.tensor->path();
        std::vector<std::string> names{work.tensor->name, path + ".scales"};
        if (work.format->mode == MlxMode::affine) names.push_back(path + ".biases");
        if (!work.largest.empty()) names.push_back(path + ".global_scale");
        return names;
    }

    void write_file(const fs::path& path, const std::vector<Work*>& works, Progress& progress) {
        SafetensorsWriter out(path.string());
        out.set_metadata("format", "mlx");
        enum class Part : std::uint8_t { codes, scales, biases, largest };
        std::vector<std::pair<Work*, Part>> parts;
        for (Work* work : works) {
            const std::vector<std::string> names = tensor_names(*work);
            std::vector<std::int64_t> shape = work->tensor->shape;
            if (!work->format) {
                out.add_tensor(names[0], shape, work->type);
                parts.emplace_back(work, Part::codes);
                continue;
            }
            const bool affine = work->format->mode == MlxMode::affine;
            shape.back() = work->cols * work->format->bits / 32;
            out.add_tensor(names[0], shape, DType::u32);
            parts.emplace_back(work, Part::codes);
            shape.back() = work->cols / work->format->group;
            out.add_tensor(names[1], shape, affine ? work->type : DType::u8);
            parts.emplace_back(work, Part::scales);
            if (affine) {
                out.add_tensor(names[2], shape, work->type);
                parts.emplace_back(work, Part::biases);
            }
            if (!work->largest.empty()) {
                out.add_tensor(names.back(), std::vector{static_cast<std::int64_t>(work->largest.size())}, DType::f32);
                parts.emplace_back(work, Part::largest);
            }
        }
        // Codes come before their scales: the writer puts wide elements first and keeps the order otherwise.
        for (const std::size_t i : out.begin()) {
            Work& work = *parts[i].first;
            switch (parts[i].second) {
                case Part::codes: write_rows(work, out, progress); break;
                case Part::scales: write_and_free(work.scales, out); break;
                case Part::biases: write_and_free(work.biases, out); break;
                case Part::largest: out.write(std::as_bytes(std::span(work.largest))); break;
            }
        }
        out.finish();
    }

    static void write_and_free(std::vector<std::byte>& bytes, SafetensorsWriter& out) {
        out.write(bytes);
        std::vector<std::byte>().swap(bytes);
    }

    // Rows in parallel, some megabytes at a time; scales and biases are kept until their place in the file comes.
    void write_rows(Work& work, SafetensorsWriter& out, Progress& progress) {
        const RowReader reader(work);
        if (!work.largest.empty()) find_largest(work, reader);
        const auto cols = static_cast<std::size_t>(work.cols), rows = static_cast<std::size_t>(work.rows);
        const MlxRowBytes bytes = work.format ? mlx_row_bytes(*work.format, work.cols, work.type) : MlxRowBytes{cols * size_of(work.type), 0, 0};
        const std::size_t batch = std::clamp<std::size_t>(batch_bytes / std::max<std::size_t>(1, cols * 4), 1, rows);
        const std::size_t matrix = work.largest.empty() ? rows : rows / work.largest.size();
        std::vector<std::byte> codes(batch * bytes.codes);
        work.scales.resize(rows * bytes.scales);
        work.biases.resize(rows * bytes.biases);
        for (std::size_t first = 0; first < rows; first += batch) {
            const std::size_t count = std::min(batch, rows - first);
            threads_.parallel_for(count, std::max<std::size_t>(1, 16384 / std::max<std::size_t>(1, cols)), [&](std::size_t begin, std::size_t end) {
                std::vector<float> row(cols);
                for (std::size_t i = begin; i < end; ++i) {
                    const std::size_t r = first + i;
                    reader.read(static_cast<std::int64_t>(r), row.data());
                    if (!work.format) {
                        store_row(row.data(), work.cols, work.type, codes.data() + i * bytes.codes);
                        continue;
                    }
                    if (!std::all_of(row.begin(), row.end(), [](float v) { return std::isfinite(v); })) {
                        not_finite_ = work.tensor;  // an error as soon as all threads are here
                        continue;
                    }
                    encode_mlx_row(*work.format, work.type, row, codes.data() + i * bytes.codes, work.scales.data() + r * bytes.scales,
                                   work.biases.data() + r * bytes.biases, work.largest.empty() ? 0 : work.largest[r / matrix]);
                }
            });
            if (const OutTensor* bad = not_finite_) fail("{}: {} holds numbers that are not finite", file_->path, bad->name);
            out.write(std::span(codes).first(count * bytes.codes));
            progress.advance(count * cols * size_of(work.source));
        }
    }

    void find_largest(Work& work, const RowReader& reader) {
        const auto matrix = static_cast<std::size_t>(work.rows) / work.largest.size();
        threads_.parallel_for(work.largest.size(), 1, [&](std::size_t begin, std::size_t end) {
            std::vector<float> row(static_cast<std::size_t>(work.cols));
            for (std::size_t e = begin; e < end; ++e)
                for (std::size_t r = 0; r < matrix; ++r) {
                    reader.read(static_cast<std::int64_t>(e * matrix + r), row.data());
                    for (const float value : row) work.largest[e] = std::max(work.largest[e], std::fabs(value));
                }
        });
    }

    // The tokenizer and everything else that is not weights.
    void copy_other_files(const fs::path& folder) {
        fs::path source(options_.source);
        if (!fs::is_directory(source)) source = source.parent_path();
        for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
            const std::string name = entry.path().filename().string(), extension = entry.path().extension().string();
            const bool weights = extension == ".safetensors" || extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".gguf" ||
                                 extension == ".h5" || extension == ".msgpack" || extension == ".onnx" || name.ends_with(".index.json");
            if (!entry.is_regular_file() || weights || name == "config.json" || name.starts_with(".")) continue;
            fs::copy_file(entry.path(), folder / name, fs::copy_options::overwrite_existing);
        }
    }

    const QuantizeOptions& options_;
    Recipe recipe_;
    ThreadPool threads_;
    std::shared_ptr<ModelFile> file_;
    ModelSpec spec_;
    Layout layout_;
    std::vector<Work> works_;
    Json quantization_;
    QuantizeSummary summary_;
    std::atomic<const OutTensor*> not_finite_{nullptr};
};

}  // namespace
}  // namespace mlx

QuantizeSummary quantize(const QuantizeOptions& options) {
    if (options.output.empty()) fail("no output folder is given");
    return mlx::Conversion(options).run();
}

}  // namespace forge
