#include "warm_up.h"

#include <algorithm>

#include "base/log.h"
#include "base/machine_memory.h"
#include "base/progress.h"
#include "formats/forge_model.h"

namespace forge {
namespace {

struct Range {
    const MappedFile* file;
    std::size_t first, count;
};

// What stays mapped, in the order of its use: shards are in it, safetensors as they come.
std::vector<Range> mapped_ranges(const ModelFile& model) {
    std::vector<Range> ranges;
    if (model.packed) {
        for (const ForgeModel::Shard& shard : model.packed->shards()) ranges.push_back({shard.blob.file.get(), shard.blob.offset, shard.blob.bytes.size()});
    } else if (model.format != ModelFormat::gguf) {
        for (const auto& file : model.files) ranges.push_back({file.get(), 0, file->bytes().size()});
    }
    return ranges;
}

constexpr std::size_t window = std::size_t{8} << 20;   // asked for at once

}  // namespace

WarmUp::WarmUp(std::shared_ptr<const ModelFile> model) : model_(std::move(model)) {
    std::uint64_t total = 0;
    for (const Range& range : mapped_ranges(*model_)) total += range.count;
    if (total == 0) return;
    const std::uint64_t available = machine_memory().available;
    if (available > 0 && total > available - available / 10) {
        log_info("{}: {} of weights are not read ahead, since {} of memory are free", model_->path, format_bytes(total), format_bytes(available));
        return;
    }
    thread_ = std::thread([this] { run(); });
}

WarmUp::~WarmUp() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
}

void WarmUp::run() {
    // All of it is asked for, in order: the disk always has something to do, and its queue paces this thread.
    // Pages are mapped as they are touched, a little at a time: entering them in the page table here as well
    // (MADV_POPULATE_READ) made the first token later.
    for (const Range& range : mapped_ranges(*model_))
        for (std::size_t at = 0; at < range.count && !stop_; at += window)
            range.file->read_ahead(range.first + at, std::min(window, range.count - at));
}

void lock_weights(const ModelFile& model) {
    for (const Range& range : mapped_ranges(model)) range.file->lock(range.first, range.count);
}

}  // namespace forge
