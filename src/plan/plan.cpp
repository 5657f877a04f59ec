#include "plan/plan.h"

#include <algorithm>

namespace forge {

std::string_view name_of(const Op& op) {
    constexpr std::string_view names[] = {"embed", "rope_table", "norm", "matmul", "add", "qk_prepare",
                                          "attention", "act_mul", "take_rows", "scale", "head_gate", "conv", "delta",
                                          "gated_norm", "route", "expert_matmul", "combine"};
    static_assert(std::size(names) == std::variant_size_v<OpAttributes>);
    return names[op.attributes.index()];
}

ValueId Plan::add_value(std::string name, ValueType type, RowSpace rows, std::int64_t cols) {
    values.push_back({std::move(name), type, rows, cols});
    return static_cast<ValueId>(values.size() - 1);
}

int Plan::uses(ValueId value) const {
    int count = value == logits ? 1 : 0;
    for (const Op& op : ops) count += static_cast<int>(std::count(op.inputs.begin(), op.inputs.end(), value));
    return count;
}

}  // namespace forge
