// Names that programs use although they are no part of the language's library.
#pragma once

// names that Apple's headers use inside, and MLX too
#define __METAL_FAST_MATH__ 1
#define __METAL_PRECISE_MATH__ 0
#define __METAL_MAYBE_FAST_MATH__ 0
#define _N1(name, e) \
    METAL_FUNC float __metal_##name(float x, int) { return metal::_f_##name(x); }
#define _N2(name, e) \
    METAL_FUNC float __metal_##name(float x, float y, int) { return metal::_f_##name(x, y); }
_ALL1(_N1)
_ALL2(_N2)
METAL_FUNC float __metal_sinpi(float x, int) { return ::sinf(M_PI_F * x); }
METAL_FUNC float __metal_cospi(float x, int) { return ::cosf(M_PI_F * x); }
METAL_FUNC float __metal_tanpi(float x, int) { return ::tanf(M_PI_F * x); }
METAL_FUNC float __metal_nextafter(float x, float y) {
    return x == y ? y
                  : __builtin_bit_cast(float, __builtin_bit_cast(int, x) + (((y > x) == (x > 0)) ? 1 : -1));
}
METAL_FUNC float __metal_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
METAL_FUNC float __metal_ldexp(float a, int e, int = 0) { return ::ldexpf(a, e); }
METAL_FUNC float __metal_frexp(float a, thread int* e, int = 0) { return ::frexpf(a, e); }
METAL_FUNC float __metal_fmax3(float a, float b, float c, int = 0) {
    return __builtin_fmaxf(__builtin_fmaxf(a, b), c);
}
METAL_FUNC float __metal_fmin3(float a, float b, float c, int = 0) {
    return __builtin_fminf(__builtin_fminf(a, b), c);
}
METAL_FUNC float __metal_fmedian3(float a, float b, float c, int = 0) {
    return __builtin_fmaxf(__builtin_fminf(a, b), __builtin_fminf(__builtin_fmaxf(a, b), c));
}
METAL_FUNC ushort __metal_get_simdgroup_size(ushort) { return 32; }
METAL_FUNC ushort __metal_get_thread_index_in_simdgroup(ushort) { return emu_lane(); }
#define __metal_simd_shuffle_and_fill_down(v, f, d, m) metal::simd_shuffle_and_fill_down(v, f, d)
#define __metal_simd_shuffle_and_fill_up(v, f, d, m) metal::simd_shuffle_and_fill_up(v, f, d)
#define __metal_simd_broadcast metal::simd_broadcast
#define __metal_simd_shuffle metal::simd_shuffle
#define __metal_simd_shuffle_xor metal::simd_shuffle_xor
#define __metal_simd_shuffle_up metal::simd_shuffle_up
#define __metal_simd_shuffle_down metal::simd_shuffle_down
#define __metal_simd_shuffle_rotate_up metal::simd_shuffle_rotate_up
#define __metal_simd_shuffle_rotate_down metal::simd_shuffle_rotate_down
#define __metal_simd_sum metal::simd_sum
#define __metal_simd_product metal::simd_product
#define __metal_simd_max metal::simd_max
#define __metal_simd_min metal::simd_min
#define __metal_simd_xor metal::simd_xor
#define __metal_simd_prefix_inclusive_sum metal::simd_prefix_inclusive_sum
#define __metal_simd_prefix_exclusive_sum metal::simd_prefix_exclusive_sum
#define __metal_simd_prefix_inclusive_product metal::simd_prefix_inclusive_product
#define __metal_simd_prefix_exclusive_product metal::simd_prefix_exclusive_product
