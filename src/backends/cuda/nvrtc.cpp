#include "nvrtc.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"

namespace forge::cuda {
namespace {

using Program = struct ProgramTag*;

struct Nvrtc {
    int (*version)(int* major, int* minor) = nullptr;
    int (*create)(Program*, const char* source, const char* name, int headers, const char* const*, const char* const*) = nullptr;
    int (*compile)(Program, int count, const char* const* options) = nullptr;
    int (*destroy)(Program*) = nullptr;
    int (*log_size)(Program, std::size_t*) = nullptr;
    int (*log)(Program, char*) = nullptr;
    int (*code_size)(Program, std::size_t*) = nullptr;
    int (*code)(Program, char*) = nullptr;
    std::string reason;
};

// A library by its path. NVRTC opens its built-in functions by name when it compiles; where they lie beside it and nowhere
// that the loader looks, as in the Python package, they must be there by then.
void* open_path(const std::filesystem::path& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return nullptr;
    std::error_code ignored;
    for (const auto& file : std::filesystem::directory_iterator(path.parent_path(), ignored))
        if (file.path().filename().string().rfind("libnvrtc-builtins.so.", 0) == 0) dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    return library;
}

// FORGE_NVRTC names the library; else the dynamic loader's places, then those of toolkits.
void* open_library() {
    if (const char* path = std::getenv("FORGE_NVRTC")) return open_path(path);
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"})
        if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    std::error_code ignored;
    for (const char* root : {"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/cuda/targets/x86_64-linux/lib", "/opt/cuda/lib64"})
        for (const auto& file : std::filesystem::directory_iterator(root, ignored)) {
            const std::string name = file.path().filename();
            if (name.rfind("libnvrtc.so.", 0) != 0) continue;
            if (void* library = open_path(file.path())) return library;
        }
    return nullptr;
}

const Nvrtc& nvrtc() {
    static const Nvrtc one = [] {
        Nvrtc n;
        void* library = open_library();
        if (!library) {
            n.reason = "NVIDIA's run-time compiler (libnvrtc.so) is not here: install the CUDA toolkit or the package nvidia-cuda-nvrtc, or set "
                       "FORGE_NVRTC to the library's path";
            return n;
        }
        const auto find = [&](auto& function, const char* name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
            if (!function) n.reason = std::string("NVIDIA's run-time compiler is too old: it has no ") + name;
        };
        find(n.version, "nvrtcVersion");
        find(n.create, "nvrtcCreateProgram");
        find(n.compile, "nvrtcCompileProgram");
        find(n.destroy, "nvrtcDestroyProgram");
        find(n.log_size, "nvrtcGetProgramLogSize");
        find(n.log, "nvrtcGetProgramLog");
        find(n.code_size, "nvrtcGetCUBINSize");
        find(n.code, "nvrtcGetCUBIN");
        return n;
    }();
    return one;
}

}  // namespace

bool nvrtc_available(std::string* reason) {
    if (reason) *reason = nvrtc().reason;
    return nvrtc().reason.empty();
}

std::string nvrtc_version() {
    int major = 0, minor = 0;
    nvrtc().version(&major, &minor);
    return fmt::format("{}.{}", major, minor);
}

std::vector<char> compile(const std::string& source, int capability) {
    const Nvrtc& n = nvrtc();
    if (!n.reason.empty()) fail(ErrorKind::unsupported, "{}", n.reason);
    struct Owner {
        Program program = nullptr;
        ~Owner() { if (program) nvrtc().destroy(&program); }
    } owner;
    if (n.create(&owner.program, source.c_str(), "kernels.cu", 0, nullptr, nullptr) != 0) fail(ErrorKind::internal, "the GPU compiler did not take the kernels");
    // sm_90a: wgmma is of that architecture alone.
    const std::string architecture = fmt::format("--gpu-architecture=sm_{}{}", capability, capability == 90 ? "a" : "");
    // Nothing may be contracted or reordered: fusion is written as fma().
    const char* options[] = {architecture.c_str(), "--std=c++14", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"};
    const int result = n.compile(owner.program, static_cast<int>(std::size(options)), options);
    if (result != 0) {
        std::size_t bytes = 0;
        n.log_size(owner.program, &bytes);
        std::string log(bytes, '\0');
        n.log(owner.program, log.data());
        fail(ErrorKind::internal, "the GPU compiler refused the kernels (error {}):\n{}", result, log.substr(0, 8000));
    }
    std::size_t bytes = 0;
    n.code_size(owner.program, &bytes);
    std::vector<char> code(bytes);
    n.code(owner.program, code.data());
    if (code.empty()) fail(ErrorKind::unsupported, "the GPU compiler {} makes no code for compute capability {}.{}", nvrtc_version(), capability / 10, capability % 10);
    return code;
}

}  // namespace forge::cuda
