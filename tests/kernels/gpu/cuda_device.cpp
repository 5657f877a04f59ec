// Kernels as CUDA C++ on a real GPU, or, where there is none, compiled by NVRTC alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/error.h"
#include "device.h"
#include "driver.h"
#include "nvrtc.h"

namespace forge::test {
namespace {

class CudaDevice final : public GpuDevice {
  public:
    explicit CudaDevice(const cuda::Driver* driver) : d_(driver) {
        if (!d_) return;
        cuda::Device device = 0;
        cuda::check(d_->device_get(&device, 0), "be found");
        cuda::Context context = nullptr;
        cuda::check(d_->context_retain(&context, device), "be used");
        cuda::check(d_->context_set(context), "be used");
        cuda::check(d_->stream_create(&stream_, 1), "make a stream");
        int major = 0, minor = 0;
        d_->device_attribute(&major, cuda::kComputeMajor, device);
        d_->device_attribute(&minor, cuda::kComputeMinor, device);
        capability_ = major * 10 + minor;
    }
    // In shares, a thread each: the compiler is slow.
    void compile(const std::vector<gpu::Kernel>& kernels) override {
        const std::size_t shares = std::min<std::size_t>(kernels.size(), std::max(1u, std::thread::hardware_concurrency()));
        std::vector<std::vector<char>> code(shares);
        std::vector<std::string> errors(shares);
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < shares; ++i)
            threads.emplace_back([&, i] {
                std::vector<gpu::Kernel> share;
                for (std::size_t k = i; k < kernels.size(); k += shares) share.push_back(kernels[k]);
                try {
                    code[i] = cuda::compile(gpu::source(gpu::Target::cuda, share), capability_);
                } catch (const Error& e) {
                    errors[i] = e.what();
                }
            });
        for (std::thread& t : threads) t.join();
        for (const std::string& e : errors) ASSERT_EQ(e, "");
        functions_.clear();
        if (!d_) return;
        for (std::size_t i = 0; i < shares; ++i) {
            cuda::Module module = nullptr;
            cuda::check(d_->module_load(&module, code[i].data()), "load the kernels");
            for (std::size_t k = i; k < kernels.size(); k += shares) cuda::check(d_->module_function(&functions_[kernels[k].name], module, kernels[k].name.c_str()), "find a kernel");
        }
    }
    std::string run(const gpu::Kernel& kernel, Bindings& bindings, const StepRows& step, int max_rows, int) override {
        const cuda::Function function = functions_.at(kernel.name);
        const LaunchBuffers launch(kernel, bindings, step, max_rows);
        if (!launch.missing.empty()) return launch.missing;
        std::vector<cuda::Pointer> copies;
        for (const LaunchBuffers::Buffer& b : launch.buffers) {
            copies.push_back(0);
            cuda::check(d_->alloc(&copies.back(), std::max<std::size_t>(b.bytes, 16)), "allocate");
            cuda::check(d_->to_device(copies.back(), b.data, b.bytes, stream_), "copy");
        }
        std::vector<void*> arguments;
        for (const std::size_t i : launch.which) arguments.push_back(&copies[i]);
        const gpu::GridSize grid = gpu::grid_size(kernel.grid, step);
        const auto dynamic = static_cast<unsigned>(kernel.dynamic_bytes());
        if (dynamic > 0) cuda::check(d_->function_attribute(function, cuda::kDynamicShared, static_cast<int>(dynamic)), "give shared memory");
        cuda::LaunchConfig config{grid.x, grid.y, grid.z, static_cast<unsigned>(kernel.threads), 1, 1, dynamic, stream_, nullptr, 0};
        cuda::check(d_->launch(&config, function, arguments.data(), nullptr), "launch a kernel");
        for (std::size_t i = 0; i < copies.size(); ++i)
            if (launch.buffers[i].written) cuda::check(d_->to_host(launch.buffers[i].data, copies[i], launch.buffers[i].bytes, stream_), "copy back");
        cuda::check(d_->stream_synchronize(stream_), "run a kernel");
        for (const cuda::Pointer c : copies) cuda::check(d_->free(c), "free");
        return "";
    }
    int orders() const override { return d_ ? 1 : 0; }   // without a GPU: compiled only
    bool tensor() const override { return true; }

  private:
    const cuda::Driver* d_;
    cuda::Stream stream_ = nullptr;
    std::map<std::string, cuda::Function> functions_;
    int capability_ = 90;
};

}  // namespace

std::unique_ptr<GpuDevice> make_gpu_device(std::string* reason) {
    if (!cuda::nvrtc_available(reason)) return nullptr;
    std::string why;
    const cuda::Driver* driver = cuda::load_driver(&why);
    if (!driver) std::printf("compiled only: %s\n", why.c_str());
    return std::make_unique<CudaDevice>(driver);
}

}  // namespace forge::test
