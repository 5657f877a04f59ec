// Matmuls of the same input next to each other: nothing separates them, so that a backend can run them as one launch.
#include <algorithm>

#include "plan/passes/fusions.h"

namespace forge {

void order_products(Plan& plan) {
    const auto product = [&](std::size_t i) { return std::get_if<MatmulOp>(&plan.ops[i].attributes); };
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
        const MatmulOp* first = product(i);
        if (!first || first->gated_heads > 0) continue;
        std::size_t end = i + 1;
        for (std::size_t j = i + 1; j < plan.ops.size(); ++j) {
            const MatmulOp* other = product(j);
            const bool same = other && plan.ops[j].inputs == plan.ops[i].inputs && other->norm_weight == first->norm_weight && other->gated_heads == 0 &&
                              plan.values[static_cast<std::size_t>(plan.ops[j].output)].rows == plan.values[static_cast<std::size_t>(plan.ops[i].output)].rows;
            if (!same) continue;
            std::rotate(plan.ops.begin() + static_cast<std::ptrdiff_t>(end), plan.ops.begin() + static_cast<std::ptrdiff_t>(j), plan.ops.begin() + static_cast<std::ptrdiff_t>(j) + 1);
            ++end;
        }
        i = end - 1;
    }
}

}  // namespace forge
