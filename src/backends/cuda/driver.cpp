#include "driver.h"

#include <dlfcn.h>

#include "base/error.h"

namespace forge::cuda {
namespace {

constexpr Result kOutOfMemory = 2;

struct Loaded {
    Driver driver{};
    std::string reason;
    bool ok = false;
};

void load(Loaded& out) {
    void* library = nullptr;
    for (const char* name : {"libcuda.so.1", "libcuda.so", "/usr/local/nvidia/lib64/libcuda.so.1"})
        if ((library = dlopen(name, RTLD_NOW | RTLD_LOCAL))) break;
    if (!library) {
        out.reason = "the NVIDIA driver (libcuda.so.1) is not installed";
        return;
    }
    Driver& d = out.driver;
    const auto find = [&](auto& function, const char* name) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
        if (!function && out.reason.empty()) out.reason = std::string("the NVIDIA driver is too old: it has no ") + name;
    };
    find(d.init, "cuInit");
    find(d.driver_version, "cuDriverGetVersion");
    find(d.device_count, "cuDeviceGetCount");
    find(d.device_get, "cuDeviceGet");
    find(d.device_name, "cuDeviceGetName");
    find(d.device_attribute, "cuDeviceGetAttribute");
    find(d.device_memory, "cuDeviceTotalMem_v2");
    find(d.context_retain, "cuDevicePrimaryCtxRetain");
    find(d.context_release, "cuDevicePrimaryCtxRelease_v2");
    find(d.context_set, "cuCtxSetCurrent");
    find(d.memory_info, "cuMemGetInfo_v2");
    find(d.alloc, "cuMemAlloc_v2");
    find(d.free, "cuMemFree_v2");
    find(d.host_alloc, "cuMemHostAlloc");
    find(d.host_free, "cuMemFreeHost");
    find(d.to_device, "cuMemcpyHtoDAsync_v2");
    find(d.to_host, "cuMemcpyDtoHAsync_v2");
    find(d.fill8, "cuMemsetD8Async");
    find(d.module_load, "cuModuleLoadData");
    find(d.module_unload, "cuModuleUnload");
    find(d.module_function, "cuModuleGetFunction");
    find(d.function_attribute, "cuFuncSetAttribute");
    find(d.launch, "cuLaunchKernelEx");
    find(d.stream_create, "cuStreamCreate");
    find(d.stream_destroy, "cuStreamDestroy_v2");
    find(d.stream_synchronize, "cuStreamSynchronize");
    find(d.capture_begin, "cuStreamBeginCapture_v2");
    find(d.capture_end, "cuStreamEndCapture");
    find(d.graph_instantiate, "cuGraphInstantiateWithFlags");
    find(d.graph_launch, "cuGraphLaunch");
    find(d.graph_destroy, "cuGraphDestroy");
    find(d.graph_exec_destroy, "cuGraphExecDestroy");
    find(d.event_create, "cuEventCreate");
    find(d.event_destroy, "cuEventDestroy_v2");
    find(d.event_record, "cuEventRecord");
    find(d.event_query, "cuEventQuery");
    find(d.event_elapsed, "cuEventElapsedTime");
    find(d.error_name, "cuGetErrorName");
    find(d.error_text, "cuGetErrorString");
    if (!out.reason.empty()) return;
    int devices = 0;
    if (const Result r = d.init(0); r != 0) out.reason = "the NVIDIA driver does not start (error " + std::to_string(r) + "): is there a GPU?";
    else if (d.device_count(&devices) != 0 || devices == 0) out.reason = "the NVIDIA driver sees no GPU";
    else out.ok = true;
}

const Loaded& loaded() {
    static const Loaded one = [] {
        Loaded l;
        load(l);
        return l;
    }();
    return one;
}

}  // namespace

const Driver* load_driver(std::string* reason) {
    if (reason) *reason = loaded().reason;
    return loaded().ok ? &loaded().driver : nullptr;
}

void check(Result result, const char* what) {
    if (result == 0) return;
    const char *name = nullptr, *text = nullptr;
    if (const Driver* d = load_driver(nullptr)) {
        d->error_name(result, &name);
        d->error_text(result, &text);
    }
    fail(result == kOutOfMemory ? ErrorKind::out_of_memory : ErrorKind::io, "the GPU could not {}: {} ({})", what, text ? text : "unknown error",
         name ? name : std::to_string(result).c_str());
}

}  // namespace forge::cuda
