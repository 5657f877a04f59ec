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

// Index of the op that makes a value; -1 when none does.
int producer(const Plan& plan, ValueId value);
// Drops ops whose output nobody reads (a cache write counts as a reader).
void drop_dead_ops(Plan& plan);

}  // namespace forge
