// Kernels as Metal text, executed by the emulator in its checked mode.
#include <gtest/gtest.h>

#include <array>

#include "device.h"
#include "metal_emu/compile.h"

namespace forge::test {
namespace {

class EmulatedDevice final : public GpuDevice {
  public:
    void compile(const std::vector<gpu::Kernel>& kernels) override {
        const std::string text = gpu::source(gpu::Target::metal, kernels);
        std::string error;
        const metal_emu::Library library = metal_emu::parse(text, &error);
        ASSERT_EQ(error, "");
        // With address spaces: what Metal's compiler would refuse; then instrumented, to run.
        metal_emu::CompileOptions options;
        if (profile_ == metal_emu::Profile::m1) {
            options.syntax_only = true;
            const metal_emu::Compiled typed = metal_emu::compile(library, {}, {}, options);
            ASSERT_TRUE(typed.ok) << typed.log.substr(0, 4000);
        }
        options = {};
        options.profile = profile_;
        options.check = true;
        options.address_spaces = false;
        compiled_ = metal_emu::compile(library, {}, {}, options);
        ASSERT_TRUE(compiled_.ok) << compiled_.log.substr(0, 4000);
    }

    std::string run(const gpu::Kernel& kernel, Bindings& bindings, const StepRows& step, int max_rows, int order) override {
        const auto entry = compiled_.entries.find(kernel.name);
        if (entry == compiled_.entries.end()) return "the kernel was not compiled";
        const LaunchBuffers bound(kernel, bindings, step, max_rows);
        if (!bound.missing.empty()) return bound.missing;
        metal_emu::Launch launch;
        launch.entry = entry->second;
        launch.name = kernel.name.c_str();
        launch.image_low = compiled_.image_low;
        launch.image_high = compiled_.image_high;
        launch.check = true;
        launch.seed = static_cast<std::uint64_t>(order);
        launch.workers = 1;
        const gpu::GridSize grid = gpu::grid_size(kernel.grid, step);
        launch.grid[0] = grid.x;
        launch.grid[1] = grid.y;
        launch.grid[2] = grid.z;
        launch.threads[0] = static_cast<std::uint32_t>(kernel.threads);
        for (std::size_t i = 0; i < kernel.params.size(); ++i) {
            const LaunchBuffers::Buffer& b = bound.buffers[bound.which[i]];
            launch.buffers[i] = b.data;
            launch.bytes[i] = b.bytes;
            launch.read_only[i] = !kernel.params[i].written;
            launch.constant[i] = !b.written;   // one that is also written through another parameter must be tracked
        }
        metal_emu::memory_barrier();
        std::string findings;
        for (const std::string& f : metal_emu::run(launch)) findings += f + "\n";
        return findings;
    }
    int orders() const override { return 3; }
    int matrix_profiles() const override { return 3; }
    void choose_profile(int profile) override { profile_ = std::array{metal_emu::Profile::m1, metal_emu::Profile::m3, metal_emu::Profile::m5}.at(static_cast<std::size_t>(profile)); }

  private:
    metal_emu::Compiled compiled_;
    metal_emu::Profile profile_ = metal_emu::Profile::m1;
};

}  // namespace

std::unique_ptr<GpuDevice> make_gpu_device(std::string* reason) {
    if (!metal_emu::compiler_available(reason)) return nullptr;
    return std::make_unique<EmulatedDevice>();
}

}  // namespace forge::test
