// The loops of machine.cpp that need AVX-512.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace forge::bench {

// 24 independent sums in registers, written out so that the compiler cannot spill them.
// The operands are zero: the time does not depend on them.
float bf16_product_loop(long rounds) {
    __m512 a = _mm512_setzero_ps();
#define FORGE_PRODUCT(n) "vdpbf16ps %%zmm30, %%zmm31, %%zmm" #n "\n\t"
    asm volatile(
        "vpxord %%zmm30, %%zmm30, %%zmm30\n\t"
        "vpxord %%zmm31, %%zmm31, %%zmm31\n\t"
        "1:\n\t" FORGE_PRODUCT(1) FORGE_PRODUCT(2) FORGE_PRODUCT(3) FORGE_PRODUCT(4) FORGE_PRODUCT(5)
        FORGE_PRODUCT(6) FORGE_PRODUCT(7) FORGE_PRODUCT(8) FORGE_PRODUCT(9) FORGE_PRODUCT(10) FORGE_PRODUCT(11)
        FORGE_PRODUCT(12) FORGE_PRODUCT(13) FORGE_PRODUCT(14) FORGE_PRODUCT(15) FORGE_PRODUCT(16) FORGE_PRODUCT(17)
        FORGE_PRODUCT(18) FORGE_PRODUCT(19) FORGE_PRODUCT(20) FORGE_PRODUCT(21) FORGE_PRODUCT(22) FORGE_PRODUCT(23)
        FORGE_PRODUCT(24)
        "decq %[rounds]\n\t"
        "jnz 1b\n\t"
        "vaddps %%zmm1, %%zmm24, %[out]\n\t"
        : [rounds] "+r"(rounds), [out] "=v"(a)
        :
        : "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11", "zmm12", "zmm13",
          "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", "zmm24", "zmm30",
          "zmm31", "cc");
#undef FORGE_PRODUCT
    return _mm512_cvtss_f32(a);
}

std::uint64_t read_streams_avx512(const char* data, std::size_t bytes) {
    const std::size_t quarter = bytes / 4 / 128 * 128;
    __m512i acc[8];
    for (__m512i& a : acc) a = _mm512_setzero_si512();
    for (std::size_t i = 0; i < quarter; i += 128)
#pragma GCC unroll 8
        for (std::size_t s = 0; s < 4; ++s) {
            acc[2 * s] = _mm512_xor_si512(acc[2 * s], _mm512_loadu_si512(data + s * quarter + i));
            acc[2 * s + 1] = _mm512_xor_si512(acc[2 * s + 1], _mm512_loadu_si512(data + s * quarter + i + 64));
        }
    for (int i = 1; i < 8; ++i) acc[0] = _mm512_xor_si512(acc[0], acc[i]);
    return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(acc[0]));
}

}  // namespace forge::bench
