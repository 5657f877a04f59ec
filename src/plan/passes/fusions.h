// The passes themselves, one file each; passes.cpp lists them.
#pragma once

#include "plan/plan.h"

namespace forge {

void trim_outputs(Plan& plan);
void fuse_norm_matmul(Plan& plan);
void fuse_gate_up(Plan& plan);
void fuse_residual(Plan& plan);
void fuse_norm_residual(Plan& plan);
void fuse_delta_norm(Plan& plan);
void fuse_conv(Plan& plan);
void fuse_gated_norm(Plan& plan);
void fuse_prepare(Plan& plan);
void fuse_head_gate(Plan& plan);
void fuse_merge(Plan& plan);
void fuse_combine(Plan& plan);
void skip_take(Plan& plan);
void order_products(Plan& plan);

// Index of the op that makes a value; -1 when none does.
int producer(const Plan& plan, ValueId value);
// Index of the op of kind T that makes a value which nobody else reads; -1 when there is none.
template <typename T>
int sole_producer(const Plan& plan, ValueId value) {
    if (plan.uses(value) != 1) return -1;
    const int p = producer(plan, value);
    return p >= 0 && std::holds_alternative<T>(plan.ops[static_cast<std::size_t>(p)].attributes) ? p : -1;
}
// Drops ops whose output nobody reads (a cache write counts as a reader).
void drop_dead_ops(Plan& plan);

}  // namespace forge
