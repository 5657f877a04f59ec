#include <fmt/format.h>

#include <cstdlib>

#include "backends/cuda.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cuda_executable.h"
#include "gpu_backend.h"
#include "nvrtc.h"

namespace forge {
namespace {

using namespace cuda;

class CudaBackend final : public gpu::GpuBackend {
  public:
    explicit CudaBackend(int ordinal) : context_(std::make_shared<GpuContext>(ordinal)), weights_(std::make_shared<Weights>(context_)) {
        std::string reason;
        if (!nvrtc_available(&reason)) fail(ErrorKind::unsupported, "{}", reason);
        limits_.cores = context_->multiprocessors();
        // To compare and to debug. FORGE_CUDA_TENSOR=0: products of many rows in f32; FORGE_CUDA_JOIN=0: every product in a
        // launch of its own; FORGE_CUDA_TILES=0: the tiles for few rows that Metal has; FORGE_CUDA_CODES=N: few rows take tensor
        // cores for matrices of 4-bit codes from N elements on; FORGE_CUDA_MERGE=1: parts of short contexts merged in attention,
        // which takes longer here than the dependent launch that it saves; FORGE_CUDA_EVEN=0: products of one row in threadgroups of
        // 256 threads, however many.
        limits_.join = environment("FORGE_CUDA_JOIN") != "0";
        limits_.merge = environment("FORGE_CUDA_MERGE") == "1";
        limits_.wide = environment("FORGE_CUDA_TILES") != "0";
        limits_.even = environment("FORGE_CUDA_EVEN") != "0";
        if (const char* from = std::getenv("FORGE_CUDA_CODES")) limits_.tensor_codes = std::atol(from);
        if (environment("FORGE_CUDA_TENSOR") != "0") limits_.tensor = context_->capability() == 90 ? gpu::Tensor::wgmma : context_->capability() >= 80 ? gpu::Tensor::mma_sync : gpu::Tensor::none;
    }
    BackendLimits limits() const override {
        BackendLimits limits{fmt::format("CUDA {} (compute capability {}.{})", context_->name(), context_->capability() / 10, context_->capability() % 10), 1,
                             context_->free_memory(), limits_.tensor == gpu::Tensor::none ? 512 : 2048};
        limits.tune_unasked = false;   // hundreds of kernels to compile, for tiles that were measured on such a GPU already
        limits.driver = fmt::format("driver {}, NVRTC {}", context_->driver_version(), nvrtc_version());
        return limits;
    }
    std::shared_ptr<Cache> create_cache(std::span<const CacheLayer> layers, int slots, int capacity, DType type) override {
        return std::make_shared<CudaCache>(context_, gpu::GpuCacheLayout(layers, slots, capacity, type));
    }
    std::unique_ptr<Executable> compile(const Program& program, std::span<const Weight> weights, std::shared_ptr<Cache> cache) override {
        auto own = std::static_pointer_cast<CudaCache>(std::move(cache));
        gpu::GpuProgram bound = gpu::bind_program(program, weights, own->layout(), limits_);
        std::future<void> uploaded = weights_->upload(bound, weights);
        auto executable = std::make_unique<CudaExecutable>(context_, program, std::move(bound), weights, weights_, std::move(own));
        uploaded.get();
        return executable;
    }
    // Compiled code is kept on disk, where compile() finds it.
    void prepare(std::span<const Program> programs, std::span<const Weight> weights, std::span<const CacheLayer> layers, int capacity) override {
        std::vector<gpu::Kernel> kernels;
        try {
            for (const Program& p : programs)
                for (gpu::Kernel& k : gpu::bind_program(p, weights, gpu::GpuCacheLayout(layers, 1, capacity, p.type), limits_).kernels()) kernels.push_back(std::move(k));
            compile_kernels(*context_, kernels);
        } catch (const Error& e) {
            log_debug("not all was compiled ahead: {}", e.what());   // compile() says it where it matters
        }
    }

  private:
    std::shared_ptr<GpuContext> context_;
    std::shared_ptr<Weights> weights_;
};

}  // namespace

bool cuda_available(std::string* reason) { return load_driver(reason) != nullptr && nvrtc_available(reason); }
std::unique_ptr<Backend> make_cuda_backend(int ordinal) { return std::make_unique<CudaBackend>(ordinal); }

}  // namespace forge
