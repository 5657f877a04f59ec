// Weights where the GPU reads them: mapped in place, a buffer for each stretch of memory; small planes and planes
// that do not begin at a multiple of 16 bytes are copied.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "gpu_program.h"
#include "metal_api.h"

namespace forge::metal {

class Weights {
  public:
    explicit Weights(std::shared_ptr<Device> device) : device_(std::move(device)) {}
    // Binds the planes that a program reads and that are not bound yet.
    void bind(const gpu::GpuProgram& program, std::span<const Weight> weights);
    Binding plane(const Weight& weight, int plane) const;
    std::uint64_t mapped_bytes() const { return mapped_; }
    std::uint64_t copied_bytes() const { return copied_; }

  private:
    struct Range { const std::byte *low, *high; };
    void map(std::vector<Range> ranges);
    void copy(const std::vector<Range>& ranges);
    void stack(std::span<const Weight> stacked, int plane);

    std::shared_ptr<Device> device_;
    std::vector<std::shared_ptr<Buffer>> buffers_;
    std::map<const std::byte*, Binding> planes_;
    std::uint64_t mapped_ = 0, copied_ = 0;
};

}  // namespace forge::metal
