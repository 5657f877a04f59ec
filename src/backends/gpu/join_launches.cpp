#include "join_launches.h"

#include <optional>
#include <string>

namespace forge::gpu {
namespace {

// Nothing where there would be more buffers than Metal binds.
std::optional<BoundKernel> joined(const BoundKernel& a, const BoundKernel& b) {
    constexpr std::size_t most_buffers = 30;
    BoundKernel k;
    std::vector<std::string> names[2];
    for (int part = 0; part < 2; ++part) {
        const BoundKernel& from = part ? b : a;
        for (const Buffer& buffer : from.buffers) {
            std::size_t at = 0;
            while (at < k.buffers.size() && !(k.buffers[at] == buffer)) ++at;
            if (at == k.buffers.size()) k.buffers.push_back(buffer);
            names[part].push_back("b" + std::to_string(at));
        }
    }
    if (k.buffers.size() > most_buffers) return std::nullopt;
    const Kernel kernels[] = {a.kernel, b.kernel};
    k.kernel = side_by_side(kernels, names);
    return k;
}

bool join(GpuLaunch& a, const GpuLaunch& b) {
    if (a.variants.front().kernels.empty() || a.output_rows != b.output_rows || a.variants.size() != b.variants.size()) return false;
    std::vector<BoundKernel> both;
    for (std::size_t i = 0; i < a.variants.size(); ++i) {
        const Variant &x = a.variants[i], &y = b.variants[i];
        if (x.max_rows != y.max_rows || x.single != y.single || y.kernels.size() != 1) return false;
        const BoundKernel &p = x.kernels.back(), &q = y.kernels[0];
        if (p.kernel.family != "matvec" || q.kernel.family != "matvec" || !can_run_side_by_side(p.kernel, q.kernel)) return false;
        std::optional<BoundKernel> k = joined(p, q);
        if (!k) return false;
        both.push_back(std::move(*k));
    }
    for (std::size_t i = 0; i < both.size(); ++i) a.variants[i].kernels.back() = std::move(both[i]);
    a.beside.push_back(b.source);
    return true;
}

}  // namespace

void join_matvecs(std::vector<GpuLaunch>& launches) {
    std::vector<GpuLaunch> joined;
    for (GpuLaunch& l : launches)
        if (joined.empty() || l.barrier || !join(joined.back(), l)) joined.push_back(std::move(l));
    launches = std::move(joined);
}

}  // namespace forge::gpu
