// Which instruction sets this machine runs, and which one is used.
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "kernels/cpu_kernel.h"

namespace forge {

std::string_view name_of(Isa isa) {
    switch (isa) {
        case Isa::plain: return "plain";
        case Isa::avx2: return "avx2";
        case Isa::avx512: return "avx512";
        case Isa::neon: return "neon";
    }
    return "?";
}

bool isa_available(Isa isa) {
    switch (isa) {
        case Isa::plain: return true;
#if defined(__x86_64__)
        // __builtin_cpu_supports also asks whether the system saves the registers.
        case Isa::avx2:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
        case Isa::avx512:
            return isa_available(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni") &&
                   __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
        case Isa::neon: return true;  // part of every arm64
#endif
        default: return false;
    }
}

Isa detect_isa() {
    constexpr Isa best_first[] = {Isa::avx512, Isa::avx2, Isa::neon, Isa::plain};
    const char* wanted = std::getenv("FORGE_ISA");
    if (wanted != nullptr && *wanted != '\0') {
        for (const Isa isa : best_first) {
            if (name_of(isa) != wanted) continue;
            if (!isa_available(isa))
                fail(ErrorKind::unsupported,
                     "FORGE_ISA asks for {}, which this machine does not run; unset it, or set it to plain", wanted);
            return isa;
        }
        fail("FORGE_ISA must be plain, avx2, avx512 or neon, not '{}'", wanted);
    }
    for (const Isa isa : best_first)
        if (isa_available(isa)) return isa;
    return Isa::plain;
}

}  // namespace forge
