// Kernels as Metal text through the backend's own host API: on a Mac's GPU, or over the emulator without its checks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device.h"
#include "metal_api.h"

namespace forge::test {
namespace {

class MetalTestDevice final : public GpuDevice {
  public:
    explicit MetalTestDevice(std::unique_ptr<metal::Device> device) : device_(std::move(device)) {}
    void compile(const std::vector<gpu::Kernel>& kernels) override {
        std::vector<std::string> names;
        for (const gpu::Kernel& k : kernels)
            if (std::find(names.begin(), names.end(), k.name) == names.end()) names.push_back(k.name);
        try {
            pipelines_ = device_->compile(gpu::source(gpu::Target::metal, kernels), names);
        } catch (const Error& e) {
            FAIL() << e.what();
        }
    }
    std::string run(const gpu::Kernel& kernel, Bindings& bindings, const StepRows& step, int max_rows, int) override {
        const LaunchBuffers launch(kernel, bindings, step, max_rows);
        if (!launch.missing.empty()) return launch.missing;
        std::vector<std::shared_ptr<metal::Buffer>> copies;
        for (const LaunchBuffers::Buffer& b : launch.buffers) {
            copies.push_back(device_->allocate(b.bytes, "test"));
            std::memcpy(copies.back()->contents(), b.data, b.bytes);
            device_->make_resident({&copies.back(), 1});
        }
        std::vector<metal::Binding> bound;
        for (const std::size_t i : launch.which) bound.push_back({copies[i].get(), 0});
        const metal::Pipeline& pipeline = *pipelines_.at(kernel.name);
        if (pipeline.most_threads() < kernel.threads) return "the GPU runs this kernel with " + std::to_string(pipeline.most_threads()) + " threads at most";
        const gpu::GridSize grid = gpu::grid_size(kernel.grid, step);
        device_->begin();
        device_->dispatch({&pipeline, bound, {grid.x, grid.y, grid.z}, static_cast<unsigned>(kernel.threads), false});
        device_->commit();
        try {
            device_->wait();
        } catch (const Error& e) {
            return e.what();
        }
        for (std::size_t i = 0; i < copies.size(); ++i)
            if (launch.buffers[i].written) std::memcpy(launch.buffers[i].data, copies[i]->contents(), launch.buffers[i].bytes);
        return "";
    }
    int orders() const override { return 1; }
    int matrix_profiles() const override { return 1; }
    bool matmul2d() const override { return device_->info().matmul2d; }

  private:
    std::unique_ptr<metal::Device> device_;
    std::map<std::string, std::shared_ptr<metal::Pipeline>> pipelines_;
};

}  // namespace

std::unique_ptr<GpuDevice> make_gpu_device(std::string* reason) {
    std::unique_ptr<metal::Device> device = metal::open_device(reason);
    return device ? std::make_unique<MetalTestDevice>(std::move(device)) : nullptr;
}

}  // namespace forge::test
