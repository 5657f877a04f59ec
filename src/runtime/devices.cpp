#include "devices.h"

#include <mutex>

#include "backends/cpu.h"
#include "backends/registry.h"
#ifdef FORGE_WITH_CUDA
#include "backends/cuda.h"
#endif
#ifdef FORGE_WITH_METAL
#include "backends/metal.h"
#endif

namespace forge {

void register_built_in_devices() {
    static std::once_flag once;
    std::call_once(once, [] {
        register_device({"cpu", 0, [](std::string*) { return true; }, [](ThreadPool& pool, int) { return make_cpu_backend(pool); }});
#ifdef FORGE_WITH_CUDA
        register_device({"cuda", 10, cuda_available, [](ThreadPool&, int ordinal) { return make_cuda_backend(ordinal); }});
#endif
#ifdef FORGE_WITH_METAL
        register_device({"metal", 20, metal_available, [](ThreadPool&, int) { return make_metal_backend(); }});
#endif
    });
}

}  // namespace forge
