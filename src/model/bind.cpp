#include "model/bind.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "load.h"
#include "read_spec.h"
#include "resolve.h"

namespace forge {
namespace {

// "a, b, c and 4 more"
std::string some_of(const std::vector<std::string>& names) {
    const std::size_t shown = std::min<std::size_t>(5, names.size());
    std::string out = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
    return names.size() > shown ? fmt::format("{} and {} more", out, names.size() - shown) : out;
}

}  // namespace

std::shared_ptr<const BoundModel> bind_model(const ModelFile& file, ThreadPool& pool, WeightLayout layout, const MemoryCheck& check) {
    Draft draft = read_draft(file);
    const Resolution resolution = resolve_tensors(draft);
    if (file.tensors.empty()) fail("{} holds no tensors, only a description of a {} model", file.path, draft.spec.architecture);
    if (!resolution.missing.empty())
        fail("{}: {} {} needs {} missing: {}", file.path, draft.spec.architecture,
             "as its configuration describes it", resolution.missing.size() == 1 ? "a tensor that is" : fmt::format("{} tensors that are", resolution.missing.size()), some_of(resolution.missing));
    if (!resolution.unused.empty())
        log_warn("{}: {} {} not used: {}", file.path, resolution.unused.size(), resolution.unused.size() == 1 ? "tensor is" : "tensors are", some_of(resolution.unused));
    auto model = std::make_shared<BoundModel>();
    LoadReport report;
    model->spec = std::move(draft.spec);
    model->weights = load_weights(file, resolution.uses, pool, layout, report, [&](const WeightBytes& bytes) {
        if (check) check(model->spec, bytes);
    });
    model->mapped = report.mapped_bytes;
    if (report.misaligned > 0)
        log_info("{}: {} tensors ({}) are not aligned for their type in the file and were copied", file.path, report.misaligned, format_bytes(report.copied_bytes));
    log_debug("{}: {} weights mapped, {} converted, {} copied", file.path, report.mapped, report.converted, report.copied);
    return model;
}

std::uint64_t BoundModel::bytes() const {
    std::uint64_t total = 0;
    for (const Weight& weight : weights) total += weight.bytes();
    return total;
}

}  // namespace forge
