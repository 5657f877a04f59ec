#include "cpu_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kernels/matmul/matmul.h"

namespace forge {
namespace {

std::vector<std::string> item_sizes(const Weight& w) {
    const std::int64_t standard = default_item_rows(w), most = (w.rows + 63) / 64 * 64;
    std::vector<std::string> names{fmt::format("rows {}", standard)};
    for (const std::int64_t rows : {64, 128, 256, 512, 1024, 4096})
        if (rows != standard && rows <= std::max(most, std::int64_t{64})) names.push_back(fmt::format("rows {}", rows));
    return names;
}

}  // namespace

std::vector<std::string> cpu_variants(const Launch& launch, std::span<const Weight> weights) {
    if (launch.kernel == "matvec") return item_sizes(weights[static_cast<std::size_t>(launch.operand("weight").buffer.index)]);
    for (const char* kernel : {"gemm", "expert_gemm", "expert_matvec", "attention_prefill"})
        if (launch.kernel == kernel) return {"items 1", "items 2", "items 4"};
    return {};
}

std::int64_t cpu_variant_value(const Launch& launch, int rows) {
    const std::string* name = launch.variant(rows);
    if (!name) return 0;
    std::int64_t value = 0;
    const char* const end = name->data() + name->size();
    const auto [stop, error] = std::from_chars(name->data() + std::min(name->find(' ') + 1, name->size()), end, value);
    return error == std::errc{} && stop == end && value > 0 ? value : 0;
}

}  // namespace forge
