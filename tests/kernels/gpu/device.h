// What runs GPU kernels in tests: the Metal emulator, or a CUDA device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/step_rows.h"
#include "kernels/gpu/kernel.h"
#include "quant/weight.h"

namespace forge::test {

// Buffers by parameter name. Written ones come back.
struct Bindings {
    struct Span { void* data = nullptr; std::size_t bytes = 0; };
    std::map<std::string, Span> buffers;

    Bindings& add(const std::string& name, const void* data, std::size_t bytes) {
        buffers[name] = {const_cast<void*>(data), bytes};
        return *this;
    }
    template <typename Array>
    Bindings& add(const std::string& name, Array& array) {
        return add(name, array.data(), array.bytes());
    }
    Bindings& floats(const std::string& name, const std::vector<float>& values) { return add(name, values.data(), values.size() * sizeof(float)); }
    Bindings& weight(const std::string& operand, const Weight& w) {
        const std::pair<const char*, const Plane*> planes[] = {{"codes", &w.codes}, {"high", &w.codes_high}, {"scales", &w.scales}, {"offsets", &w.offsets},
                                                               {"super_scales", &w.super_scales}, {"super_mins", &w.super_mins}};
        for (const auto& [name, plane] : planes)
            if (plane->data) add(operand + "." + name, plane->data, plane->stride * static_cast<std::size_t>(w.rows));
        return *this;
    }
};

// What a launch of a kernel reads and writes: the step's record, and what the test binds by the parameters' names. Buffers
// that several parameters share are one.
struct LaunchBuffers {
    struct Buffer { void* data; std::size_t bytes; bool written; };
    std::vector<std::int32_t> record;
    std::vector<Buffer> buffers;
    std::vector<std::size_t> which;   // of `buffers`, for each parameter
    std::string missing;              // not empty: what the test binds no buffer for

    LaunchBuffers(const gpu::Kernel& kernel, const Bindings& bindings, const StepRows& step, int max_rows) : record(gpu::step_words(max_rows), -1) {
        gpu::write_step(step, max_rows, record.data());
        for (const gpu::Param& p : kernel.params) {
            Bindings::Span span{record.data(), record.size() * sizeof(std::int32_t)};
            if (p.name != "step") {
                const auto it = bindings.buffers.find(p.name);
                if (it == bindings.buffers.end()) {
                    missing = "the test binds no buffer " + p.name;
                    return;
                }
                span = it->second;
            }
            std::size_t i = 0;
            while (i < buffers.size() && buffers[i].data != span.data) ++i;
            if (i == buffers.size()) buffers.push_back({span.data, span.bytes, false});
            buffers[i].written = buffers[i].written || p.written;
            which.push_back(i);
        }
    }
    LaunchBuffers(const LaunchBuffers&) = delete;   // buffers hold the record's address
    LaunchBuffers& operator=(const LaunchBuffers&) = delete;
};

class GpuDevice {
  public:
    virtual ~GpuDevice() = default;
    // Compiles kernels for run(); a failure is the test's.
    virtual void compile(const std::vector<gpu::Kernel>& kernels) = 0;
    // Runs one and returns findings, empty when clean. `order` permutes the order of lanes where that can be done.
    virtual std::string run(const gpu::Kernel& kernel, Bindings& bindings, const StepRows& step, int max_rows, int order) = 0;
    virtual int orders() const = 0;
    // Whether kernels for NVIDIA's tensor cores are valid here.
    virtual bool tensor() const { return false; }
    // Whether kernels for Metal's 8x8 matrices are, and how many chips there are that place a matrix's elements
    // differently; compile() is for the one that was chosen last.
    virtual int matrix_profiles() const { return 0; }
    virtual void choose_profile(int) {}
    // Whether kernels for Metal 4's tensor operations are.
    virtual bool matmul2d() const { return matrix_profiles() > 0; }
};

// Null with a reason when there is none here. Which one a test program has is a matter of what is linked.
std::unique_ptr<GpuDevice> make_gpu_device(std::string* reason);

}  // namespace forge::test
