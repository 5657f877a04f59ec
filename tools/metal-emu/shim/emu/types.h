// Scalar and vector types, qualifiers, what the host provides.
#pragma once

#include <stdint.h>
#include <stddef.h>
#ifndef __METAL_VERSION__
#define __METAL_VERSION__ 310
#endif
#define EMU_SHIM 1
#ifdef EMU_ADDRESS_SPACES  // type-checking build: misuse of an address space is an error
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2))) const
#define threadgroup __attribute__((address_space(3)))
#else  // instrumented build: plain pointers (sanitizers skip AS != 0)
#define device
#define constant const
#define threadgroup
#endif
#ifdef EMU_LINT  // a qualifier that shows in a dump of the syntax tree
#define thread __unaligned
#else
#define thread
#endif
#define kernel static
// How far stores through a pointer are seen; what needs it and lacks it is not found.
#define coherent(scope)
#define METAL_FUNC inline __attribute__((always_inline))
#define EMU_COLLECTIVE __attribute__((no_sanitize("thread"), noinline, convergent))
#define EMU_UNCHECKED __attribute__((no_sanitize("thread"), convergent))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;

#define _MSL_V(T)                                       \
    typedef T T##2 __attribute__((ext_vector_type(2))); \
    typedef T T##3 __attribute__((ext_vector_type(3))); \
    typedef T T##4 __attribute__((ext_vector_type(4)));
_MSL_V(char)
_MSL_V(uchar)
_MSL_V(short)
_MSL_V(ushort)
_MSL_V(int)
_MSL_V(uint)
_MSL_V(long)
_MSL_V(ulong)
_MSL_V(half)
_MSL_V(float)
_MSL_V(bfloat)
#undef _MSL_V
typedef bool bool2 __attribute__((ext_vector_type(2)));
typedef bool bool3 __attribute__((ext_vector_type(3)));
typedef bool bool4 __attribute__((ext_vector_type(4)));
#define _MSL_P(T)                                                                    \
    typedef T packed_##T##2 __attribute__((ext_vector_type(2), aligned(sizeof(T)))); \
    typedef T packed_##T##4                                                          \
        __attribute__((ext_vector_type(4), aligned(sizeof(T))));  // three components: struct, not here
_MSL_P(char)
_MSL_P(uchar)
_MSL_P(short)
_MSL_P(ushort)
_MSL_P(int)
_MSL_P(uint)
_MSL_P(half)
_MSL_P(float)
#undef _MSL_P

extern "C" {
// bfloat rounding (to nearest even), which compiler runtimes before GCC 13 lack.
__attribute__((weak, no_sanitize("thread"))) bfloat __truncsfbf2(float f) {
    uint u = __builtin_bit_cast(uint, f);
    if ((u & 0x7fffffffu) > 0x7f800000u) u |= 0x400000u;
    else u += 0x7fffu + ((u >> 16) & 1u);
    return __builtin_bit_cast(bfloat, (ushort)(u >> 16));
}

// What the process that runs the kernel provides (runtime/collectives.cpp).
__attribute__((convergent)) void emu_barrier(int kind, int flags, const char* file,
                                             int line);  // 0 threadgroup, 1 simdgroup
__attribute__((convergent)) const char* emu_exchange(const void* v, unsigned n, unsigned op, const char* file,
                                                     int line);  // 32 slots x 64 B
// scope: 0 thread, 1 simdgroup, 2 threadgroup, 3 device.
__attribute__((convergent)) void emu_fence(int flags, int scope);
unsigned emu_lane(void);
unsigned emu_simd_width(void);  // live width of this simdgroup
// This thread's simdgroup within a scope of so many, which the threadgroup must have.
__attribute__((convergent)) unsigned emu_scope(unsigned simdgroups, const char* file, int line);
void emu_also_read(const void* p, unsigned n);   // checked builds: as if the kernel's text read it
// Extents of the tensor that the host bound, and its strides (0: dense).
const long* emu_tensor_shape(unsigned index);
char* emu_threadgroup_static(unsigned id, unsigned size, unsigned align);
float expf(float);
float exp2f(float);
float exp10f(float);
float asinf(float);
float acosf(float);
float atanf(float);
float tanf(float);
float sinhf(float);
float coshf(float);
float asinhf(float);
float acoshf(float);
float atanhf(float);
float atan2f(float, float);
float fmodf(float, float);
float ldexpf(float, int);
float frexpf(float, int*);
float logf(float);
float log2f(float);
float tanhf(float);
float sinf(float);
float cosf(float);
float powf(float, float);
}
#define _LOC                                      \
    const char *_f = __builtin_FILE(),            \
               int _l = __builtin_LINE() * 1024 + \
                        __builtin_COLUMN()  // column: two calls on one line are two sites

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX 3.402823466e+38f
#define MAXFLOAT FLT_MAX
#define M_PI_F 3.14159265f
#define FLT_MIN 1.17549435e-38f
#define FLT_EPSILON 1.1920929e-07f
#define HALF_MAX ((half)65504.0f)
#define MAXHALF HALF_MAX
#define HALF_MIN ((half)6.103515625e-05f)
#define HUGE_VALF __builtin_inff()
#define M_E_F 2.71828183f
#define M_LOG2E_F 1.44269504f
#define M_LN2_F 0.69314718f
#define M_SQRT2_F 1.41421356f
#define M_SQRT1_2_F 0.70710678f
#define M_1_PI_F 0.31830989f
#define M_2_SQRTPI_F 1.12837917f
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
