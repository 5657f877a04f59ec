#include <fmt/format.h>
#include <sys/utsname.h>

#include "backends/metal.h"
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "metal_executable.h"
#include "gpu_backend.h"

namespace forge {
namespace {

using namespace metal;

std::string system_version() {
    utsname names{};
    return uname(&names) == 0 ? fmt::format("{} {}", names.sysname, names.release) : "unknown system";
}

class MetalBackend final : public gpu::GpuBackend {
  public:
    explicit MetalBackend(std::shared_ptr<Device> device) : device_(std::move(device)), weights_(std::make_shared<Weights>(device_)) {
        limits_.threadgroup_bytes = static_cast<int>(device_->info().threadgroup_bytes);
        // FORGE_METAL_MATRICES=0: products of many rows and prompts' attention without them, to compare and to debug.
        if (environment("FORGE_METAL_MATRICES") != "0") limits_.tensor = gpu::Tensor::simdgroup;
        // FORGE_METAL_TENSORS=0: not the matrix units of newer chips.
        limits_.matmul2d = device_->info().matmul2d && limits_.tensor != gpu::Tensor::none && environment("FORGE_METAL_TENSORS") != "0";
    }
    BackendLimits limits() const override {
        BackendLimits limits{fmt::format("Metal {}", device_->info().name), 1, device_->info().working_set_bytes};
        limits.driver = system_version();   // Metal's compiler and driver come with the system
        return limits;
    }
    std::shared_ptr<Cache> create_cache(std::span<const CacheLayer> layers, int slots, int capacity, DType type) override {
        return std::make_shared<MetalCache>(*device_, gpu::GpuCacheLayout(layers, slots, capacity, type));
    }
    std::unique_ptr<Executable> compile(const Program& program, std::span<const Weight> weights, std::shared_ptr<Cache> cache) override {
        auto own = std::static_pointer_cast<MetalCache>(std::move(cache));
        const gpu::GpuProgram bound = gpu::bind_program(program, weights, own->layout(), limits_);
        weights_->bind(bound, weights);
        log_debug("weights: {} mapped, {} copied", format_bytes(weights_->mapped_bytes()), format_bytes(weights_->copied_bytes()));
        return std::make_unique<MetalExecutable>(device_, program, bound, weights, weights_, std::move(own));
    }

  private:
    std::shared_ptr<Device> device_;
    std::shared_ptr<Weights> weights_;
};

}  // namespace

bool metal_available(std::string* reason) { return open_device(reason) != nullptr; }

std::unique_ptr<Backend> make_metal_backend() {
    std::string reason;
    std::shared_ptr<Device> device = open_device(&reason);
    if (!device) fail(ErrorKind::unsupported, "device 'metal' cannot be used here: {}", reason);
    return std::make_unique<MetalBackend>(std::move(device));
}

}  // namespace forge
