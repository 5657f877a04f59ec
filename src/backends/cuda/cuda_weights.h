// Weights on the GPU: every plane once, as it is stored.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <span>

#include "cuda_device.h"
#include "gpu_program.h"

namespace forge::cuda {

class Weights {
  public:
    explicit Weights(std::shared_ptr<GpuContext> context) : context_(std::move(context)) {}
    // Uploads the planes that a program reads and that are not there yet, through pinned memory, with progress, while the
    // caller goes on: plane() knows their places at once. `weights` must stay until then.
    std::future<void> upload(const gpu::GpuProgram& program, std::span<const Weight> weights);
    Pointer plane(const Weight& weight, int plane) const;

  private:
    std::shared_ptr<GpuContext> context_;
    std::map<const std::byte*, Pointer> planes_;   // by host address
    std::vector<Memory> blocks_;
};

}  // namespace forge::cuda
