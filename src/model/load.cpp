#include "load.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/progress.h"
#include "packed.h"
#include "quant/convert.h"
#include "quant/tiles.h"
#include "tensor_data.h"

namespace forge {
namespace {

constexpr std::size_t kernel_alignment = 64;  // a cache line, and the widest vector register

std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    auto* data = static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t{kernel_alignment}));
    return {data, [](std::byte* p) { ::operator delete(p, std::align_val_t{kernel_alignment}); }};
}

WeightFormat dense_format(DType type) {
    WeightFormat format;
    format.dense_type = type;
    format.bits = static_cast<std::uint8_t>(8 * size_of(type));
    return format;
}

// A tensor's rows as a plane, from `first_row` on.
Plane plane_of(const Tensor& tensor, std::int64_t first_row) {
    const std::size_t row_bytes = tensor.data.size() / static_cast<std::size_t>(std::max<std::int64_t>(1, tensor.rows()));
    return {tensor.data.data() + static_cast<std::size_t>(first_row) * row_bytes, row_bytes};
}

// Work that reads one weight's rows from the file, in slices.
struct RowJob {
    const TensorUse* use = nullptr;
    Weight* weight = nullptr;
    const std::byte* source = nullptr;     // row 0 of the weight
    std::size_t row_bytes = 0;             // in the file
    std::byte* dense_target = nullptr;     // plain rows are copied here; null: planes are made
    std::shared_ptr<const Weight> planes;  // rows that become tiles as they are; null: `source` is read
};

std::int64_t source_row(const TensorUse& use, std::int64_t row) {
    return use.row_map.empty() ? row : use.row_map[static_cast<std::size_t>(row)];
}

// Rows of MLX's planes in another order.
void copy_planes(const TensorUse& use, std::int64_t first, std::int64_t last, Weight& weight) {
    const std::pair<const Tensor*, const Plane*> planes[] = {
        {use.tensor, &weight.codes}, {use.quantised->scales, &weight.scales}, {use.quantised->biases, &weight.offsets}};
    for (const auto& [tensor, target] : planes) {
        if (!tensor) continue;
        const Plane from = plane_of(*tensor, use.first_row);
        for (std::int64_t row = first; row < last; ++row)
            std::memcpy(const_cast<std::byte*>(target->data) + static_cast<std::size_t>(row) * target->stride,
                        from.data + static_cast<std::size_t>(source_row(use, row)) * from.stride, from.stride);
    }
}

struct Slice {
    const RowJob* job;
    std::int64_t first, last;
};

void run(const Slice& slice) {
    const RowJob& job = *slice.job;
    if (job.planes) {
        for (std::int64_t row = slice.first; row < slice.last; row += kTiledRows)
            write_tile(*job.planes, row, const_cast<std::byte*>(job.weight->codes.data) + static_cast<std::size_t>(row / kTiledRows) * job.weight->codes.stride);
        return;
    }
    if (job.use->quantised) return copy_planes(*job.use, slice.first, slice.last, *job.weight);
    const std::int64_t* map = job.use->row_map.empty() ? nullptr : job.use->row_map.data();
    if (!job.dense_target) {
        convert_gguf_rows(job.use->tensor->block, job.source, slice.first, slice.last, map, *job.weight);
        return;
    }
    for (std::int64_t row = slice.first; row < slice.last; ++row) {
        const auto from = static_cast<std::size_t>(source_row(*job.use, row));
        std::memcpy(job.dense_target + static_cast<std::size_t>(row) * job.row_bytes, job.source + from * job.row_bytes, job.row_bytes);
    }
}

class Loader {
  public:
    // quiet: no progress bar, and the system is not told that all of the file will be read.
    Loader(const ModelFile& file, const std::vector<TensorUse>& uses, WeightLayout layout, LoadReport& report, bool quiet)
        : file_(file), uses_(uses), layout_(layout), weights_(uses.size()), report_(report), quiet_(quiet) { jobs_.reserve(uses.size()); }

    std::vector<Weight> load(ThreadPool& pool, const std::function<void(const WeightBytes&)>& check) {
        for (std::size_t i = 0; i < uses_.size(); ++i) {
            Weight& weight = weights_[i];
            const TensorUse& use = uses_[i];
            weight.name = use.tensor->name;
            weight.rows = use.rows;
            weight.cols = use.cols;
            weight.global_scale = use.global_scale;
            check_size(*use.tensor);
            if (use.as_f32) {
                bind_floats(use, weight);
            } else {
                bind_matrix(use, weight);
            }
        }
        for (const Weight& weight : weights_)
            if (weight.codes.data && !weight.format.is_dense()) report_.mapped_bytes += weight.bytes();
        report_.mapped_bytes += mapped_dense_;
        if (check) check({report_.mapped_bytes, planes_bytes_});
        for (RowJob& job : jobs_)
            if (job.planes || (!job.dense_target && tiles_wanted(job))) allocate_tiles(*job.weight);
            else if (!job.dense_target) allocate_planes(*job.weight);
        convert(pool);
        return std::move(weights_);
    }

  private:
    bool tiles_wanted(const RowJob& job) const {
        return layout_ != WeightLayout::rows && !job.use->quantised && job.weight->rows >= kTiledRows && can_tile(job.weight->format);
    }

    // Norm weights, biases and convolutions: a few thousand floats, converted once.
    void bind_floats(const TensorUse& use, Weight& weight) {
        const std::vector<float> all = floats_of(*use.tensor);
        const auto count = static_cast<std::size_t>(use.rows * use.cols);
        const auto first = static_cast<std::size_t>(use.first_row * (use.rows == 1 ? 1 : use.cols));
        auto data = allocate(count * sizeof(float));
        auto* out = reinterpret_cast<float*>(data.get());
        for (std::size_t i = 0; i < count; ++i)
            out[i] = all[first + (use.row_map.empty() ? i : static_cast<std::size_t>(use.row_map[i]))];
        weight.format = dense_format(DType::f32);
        weight.codes = {data.get(), static_cast<std::size_t>(use.cols) * sizeof(float)};
        weight.owner = std::move(data);
        ++report_.converted;
    }

    void bind_matrix(const TensorUse& use, Weight& weight) {
        const Tensor& tensor = *use.tensor;
        RowJob job;
        job.use = &use;
        job.weight = &weight;
        const Plane rows = plane_of(tensor, use.first_row);
        job.row_bytes = rows.stride;
        job.source = rows.data;
        if (use.quantised) return bind_quantised(use, weight, job);
        const auto dense = dense_float_type(tensor);
        if (!dense) {
            if (!tensor.is_block)
                fail(ErrorKind::unsupported, "{}: matrices of type {} are not implemented (f32, f16 and bf16 are)", tensor.describe(), name_of(tensor.dtype));
            weight.format = format_of_gguf(tensor.block, tensor.name);
            planes_bytes_ += plane_bytes(weight);
            ++report_.converted;
            jobs_.push_back(std::move(job));
            return;
        }
        weight.format = dense_format(*dense);
        const bool aligned = reinterpret_cast<std::uintptr_t>(job.source) % size_of(*dense) == 0;
        if (aligned && use.row_map.empty()) {
            weight.codes = {job.source, job.row_bytes};
            weight.owner = tensor.file;
            ++report_.mapped;
            mapped_dense_ += weight.bytes();
            return;
        }
        const std::size_t bytes = static_cast<std::size_t>(use.rows) * job.row_bytes;
        auto data = allocate(bytes);
        job.dense_target = data.get();
        weight.codes = {data.get(), job.row_bytes};
        weight.owner = std::move(data);
        planes_bytes_ += bytes;
        report_.copied_bytes += bytes;
        ++report_.copied;
        if (!aligned) ++report_.misaligned;
        jobs_.push_back(std::move(job));
    }

    // MLX's tensors are planes already: mapped at any address (kernels read them unaligned), unless
    // rows have to change places.
    void bind_quantised(const TensorUse& use, Weight& weight, const RowJob& job) {
        const QuantisedTensor& q = *use.quantised;
        for (const Tensor* plane : {q.scales, q.biases})
            if (plane) check_size(*plane);
        weight.format = q.format;
        if (!use.row_map.empty()) {
            planes_bytes_ += plane_bytes(weight);
            report_.copied_bytes += plane_bytes(weight);
            ++report_.copied;
            jobs_.push_back(job);
            return;
        }
        weight.codes = {job.source, job.row_bytes};
        weight.scales = plane_of(*q.scales, use.first_row);
        if (q.biases) weight.offsets = plane_of(*q.biases, use.first_row);
        if (layout_ == WeightLayout::tiles_by_copy && use.rows >= kTiledRows && can_tile(weight.format)) {
            RowJob copy = job;
            copy.planes = std::make_shared<const Weight>(weight);
            weight.codes = weight.scales = weight.offsets = {};
            planes_bytes_ += plane_bytes(weight);
            report_.copied_bytes += plane_bytes(weight);
            ++report_.copied;
            jobs_.push_back(std::move(copy));
            return;
        }
        // The planes may lie in different files of the model.
        weight.owner = std::make_shared<std::array<std::shared_ptr<const void>, 3>>(
            std::array<std::shared_ptr<const void>, 3>{use.tensor->file, q.scales->file, q.biases ? q.biases->file : nullptr});
        ++report_.mapped;
    }

    static std::uint64_t plane_bytes(const Weight& weight) {
        const PlaneStrides s = tight_strides(weight.format, weight.cols);
        return static_cast<std::uint64_t>(weight.rows) * (s.codes + s.codes_high + s.scales + s.offsets + s.super_scales + s.super_mins);
    }

    void convert(ThreadPool& pool) {
        if (jobs_.empty()) return;
        if (!quiet_)
            for (const auto& mapped : file_.files) mapped->advise_sequential();
        // In the order of the bytes in the file, so that a cold disk is read once, front to back.
        std::vector<const RowJob*> order;
        for (const RowJob& job : jobs_) order.push_back(&job);
        std::sort(order.begin(), order.end(), [&](const RowJob* a, const RowJob* b) {
            return std::pair(position(*a), a->source) < std::pair(position(*b), b->source);
        });
        std::vector<Slice> slices;
        std::uint64_t total = 0;
        constexpr std::size_t slice_bytes = 512 * 1024;  // long enough to amortise, short enough to share evenly
        for (const RowJob* job : order) {
            const auto fit = static_cast<std::int64_t>(slice_bytes / std::max<std::size_t>(1, job->row_bytes));
            const std::int64_t step = std::max<std::int64_t>(1, fit / kTiledRows) * kTiledRows;  // whole tiles
            const std::int64_t rows = job->weight->rows;
            for (std::int64_t first = 0; first < rows; first += step) slices.push_back({job, first, std::min(rows, first + step)});
            total += static_cast<std::uint64_t>(rows) * job->row_bytes;
        }
        std::optional<Progress> progress;
        if (!quiet_) progress.emplace("reading weights", total);
        pool.parallel_for(slices.size(), 1, [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) {
                run(slices[i]);
                if (progress) progress->advance(static_cast<std::uint64_t>(slices[i].last - slices[i].first) * slices[i].job->row_bytes);
            }
        });
    }

    // Which of the model's files a job reads.
    std::size_t position(const RowJob& job) const {
        const auto it = std::find(file_.files.begin(), file_.files.end(), job.use->tensor->file);
        return static_cast<std::size_t>(it - file_.files.begin());
    }

    const ModelFile& file_;
    const std::vector<TensorUse>& uses_;
    const WeightLayout layout_;
    std::vector<Weight> weights_;
    std::vector<RowJob> jobs_;
    std::uint64_t planes_bytes_ = 0;  // that loading allocates
    std::uint64_t mapped_dense_ = 0;  // plain matrices that stay in the file
    LoadReport& report_;
    const bool quiet_;
};

}  // namespace

std::vector<Weight> load_weights(const ModelFile& file, const std::vector<TensorUse>& uses, ThreadPool& pool,
                                 WeightLayout layout, LoadReport& report,
                                 const std::function<void(const WeightBytes&)>& check) {
    if (file.packed) return load_packed(file, uses, pool, layout, report, check);
    return Loader(file, uses, layout, report, false).load(pool, check);
}

Weight load_weight(const ModelFile& file, const TensorUse& use, ThreadPool& pool, WeightLayout layout) {
    const std::vector<TensorUse> uses{use};
    LoadReport report;
    return std::move(Loader(file, uses, layout, report, true).load(pool, {}).front());
}

}  // namespace forge
