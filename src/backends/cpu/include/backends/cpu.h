// The CPU backend: launches are function pointers over item ranges, spread
// over a thread pool by an atomic counter.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "base/thread_pool.h"

namespace forge {

// Kernels are chosen for detect_isa(). The pool must outlive the backend.
std::unique_ptr<Backend> make_cpu_backend(ThreadPool& pool);
// The readable kernels, slow: what all others are checked against.
std::unique_ptr<Backend> make_plain_backend(ThreadPool& pool);

}  // namespace forge
