// Mathematics.
#pragma once

namespace metal {
// ---- math: one overload a type, as in Metal (arguments convert, a scalar splats, two different integer
// types are ambiguous)
#define _EACH4(M, T) M(T, 1, T) M(T##2, 2, T) M(T##3, 3, T) M(T##4, 4, T)
#define _FLT(M) _EACH4(M, float) _EACH4(M, half)
#define _INT(M)                                                                                        \
    _EACH4(M, char)                                                                                    \
    _EACH4(M, uchar) _EACH4(M, short) _EACH4(M, ushort) _EACH4(M, int) _EACH4(M, uint) _EACH4(M, long) \
        _EACH4(M, ulong)
#define _BF(M) _EACH4(M, bfloat)
template <class V, int N>
struct _lift {
    template <class F>
    static METAL_FUNC V f(F g, V a) {
        V r;
        for (int i = 0; i < N; i++) r[i] = (typename _vt<V>::e)g((float)a[i]);
        return r;
    }
    template <class F>
    static METAL_FUNC V f(F g, V a, V b) {
        V r;
        for (int i = 0; i < N; i++) r[i] = (typename _vt<V>::e)g((float)a[i], (float)b[i]);
        return r;
    }
};
template <class V>
struct _lift<V, 1> {
    template <class F>
    static METAL_FUNC V f(F g, V a) {
        return (V)g((float)a);
    }
    template <class F>
    static METAL_FUNC V f(F g, V a, V b) {
        return (V)g((float)a, (float)b);
    }
};
#define _F1(name, expr) \
    METAL_FUNC float _f_##name(float x) { return expr; }
#define _F2(name, expr) \
    METAL_FUNC float _f_##name(float x, float y) { return expr; }
METAL_FUNC float _sgn(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : (x == x ? x : 0.0f); }
METAL_FUNC float _fmn(float x, float y) { return __builtin_fminf(x, y); }
METAL_FUNC float _fmx(float x, float y) { return __builtin_fmaxf(x, y); }
#define _ALL1(M)                                                                                             \
    M(exp, ::expf(x))                                                                                        \
    M(exp2, ::exp2f(x)) M(exp10, ::exp10f(x)) M(log, ::logf(x)) M(log2, ::log2f(x))                          \
        M(log10, ::log2f(x) * 0.30102999566f) M(tanh, ::tanhf(x)) M(sin, ::sinf(x)) M(cos, ::cosf(x))        \
            M(tan, ::tanf(x)) M(asin, ::asinf(x)) M(acos, ::acosf(x)) M(atan, ::atanf(x))                    \
                M(sinh, ::sinhf(x)) M(cosh, ::coshf(x)) M(asinh, ::asinhf(x)) M(acosh, ::acoshf(x))          \
                    M(atanh, ::atanhf(x)) M(sqrt, __builtin_sqrtf(x)) M(rsqrt, 1.0f / __builtin_sqrtf(x))    \
                        M(fabs, __builtin_fabsf(x)) M(floor, __builtin_floorf(x))                            \
                            M(ceil, __builtin_ceilf(x)) M(rint, __builtin_rintf(x))                          \
                                M(round, __builtin_roundf(x)) M(trunc, __builtin_truncf(x))                  \
                                    M(fract, x - __builtin_floorf(x)) M(saturate, _fmn(_fmx(x, 0.0f), 1.0f)) \
                                        M(sign, _sgn(x))
#define _ALL2(M)                                                                                  \
    M(pow, ::powf(x, y))                                                                          \
    M(powr, ::powf(x, y)) M(atan2, ::atan2f(x, y)) M(fmod, ::fmodf(x, y)) M(fmin, _fmn(x, y))     \
        M(fmax, _fmx(x, y)) M(copysign, __builtin_copysignf(x, y)) M(step, (y < x ? 0.0f : 1.0f)) \
            M(fdim, (x > y ? x - y : 0.0f)) M(divide, x / y)
_ALL1(_F1)
_ALL2(_F2)
#define _O1(name, T, N) \
    METAL_FUNC T name(T a) { return _lift<T, N>::f(_f_##name, a); }
#define _O2(name, T, N) \
    METAL_FUNC T name(T a, T b) { return _lift<T, N>::f(_f_##name, a, b); }
#define _T1(name, e)                                                                                      \
    _O1(name, float, 1)                                                                                   \
    _O1(name, float2, 2) _O1(name, float3, 3) _O1(name, float4, 4) _O1(name, half, 1) _O1(name, half2, 2) \
        _O1(name, half3, 3) _O1(name, half4, 4)
#define _T2(name, e)                                                                                      \
    _O2(name, float, 1)                                                                                   \
    _O2(name, float2, 2) _O2(name, float3, 3) _O2(name, float4, 4) _O2(name, half, 1) _O2(name, half2, 2) \
        _O2(name, half3, 3) _O2(name, half4, 4)
_ALL1(_T1)
_ALL2(_T2)
namespace precise {
_ALL1(_T1)
_ALL2(_T2)
}  // namespace precise
namespace fast {
_ALL1(_T1)
_ALL2(_T2)
}  // namespace fast
// no overload for bfloat in Metal: the argument becomes float, so does the result. Templates here, so that a
// program's own bfloat overload wins
template <class T>
using _isbf = typename enable_if<is_same<T, bfloat>::value, float>::type;
#define _B1(name, e)                \
    template <class T>              \
    METAL_FUNC _isbf<T> name(T x) { \
        return _f_##name((float)x); \
    }
#define _B2(name, e)                          \
    template <class T>                        \
    METAL_FUNC _isbf<T> name(T x, T y) {      \
        return _f_##name((float)x, (float)y); \
    }
_ALL1(_B1)
_ALL2(_B2)
namespace precise {
_ALL1(_B1)
_ALL2(_B2)
}  // namespace precise
namespace fast {
_ALL1(_B1)
_ALL2(_B2)
}  // namespace fast
#define _MM(T, N, E)                                                       \
    METAL_FUNC T max(T a, T b) { return __builtin_elementwise_max(a, b); } \
    METAL_FUNC T min(T a, T b) { return __builtin_elementwise_min(a, b); } \
    METAL_FUNC T clamp(T x, T lo, T hi) { return min(max(x, lo), hi); }
_FLT(_MM)
_INT(_MM)
template <class T>
METAL_FUNC _isbf<T> max(T a, T b) {
    return max((float)a, (float)b);
}
template <class T>
METAL_FUNC _isbf<T> min(T a, T b) {
    return min((float)a, (float)b);
}
template <class T>
METAL_FUNC _isbf<T> clamp(T x, T lo, T hi) {
    return clamp((float)x, (float)lo, (float)hi);
}
#define _FX(T, N, E) \
    METAL_FUNC T mix(T a, T b, T t) { return a + (b - a) * t; }
_FLT(_FX)
METAL_FUNC float max3(float a, float b, float c) { return max(max(a, b), c); }
METAL_FUNC float min3(float a, float b, float c) { return min(min(a, b), c); }
METAL_FUNC float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#define _FM(N)                                                                                            \
    METAL_FUNC float##N fma(float##N a, float##N b, float##N c) {                                         \
        return __builtin_elementwise_fma(a, b, c);                                                        \
    }                                                                                                     \
    METAL_FUNC half##N fma(half##N a, half##N b, half##N c) {                                             \
        half##N r;                                                                                        \
        for (int i = 0; i < N; i++) r[i] = (half)__builtin_fma((double)a[i], (double)b[i], (double)c[i]); \
        return r;                                                                                         \
    }
_FM(2)
_FM(3)
_FM(4)
METAL_FUNC half fma(half a, half b, half c) { return (half)__builtin_fma((double)a, (double)b, (double)c); }
template <class T>
METAL_FUNC _isbf<T> fma(T a, T b, T c) {
    return __builtin_fmaf((float)a, (float)b, (float)c);
}
METAL_FUNC float ldexp(float a, int e) { return ::ldexpf(a, e); }
template <class T>
METAL_FUNC typename enable_if<!is_same<T, bfloat>::value, T>::type abs(T a) {
    return __builtin_elementwise_abs(a);
}
template <class T>
METAL_FUNC _isbf<T> abs(T a) {
    return __builtin_fabsf((float)a);
}
template <class T>
METAL_FUNC T select(T a, T b, bool c) {
    return c ? b : a;
}
#define _SEL(T, N, E)                                          \
    METAL_FUNC T select(T a, T b, decltype(T{} < T{}) c) {     \
        T r;                                                   \
        for (int i = 0; i < N; i++) r[i] = c[i] ? b[i] : a[i]; \
        return r;                                              \
    }
#define _SELV(T) _SEL(T##2, 2, T) _SEL(T##3, 3, T) _SEL(T##4, 4, T)
_SELV(float)
_SELV(half)
_SELV(int)
_SELV(short)
METAL_FUNC bool isnan(float x) { return x != x; }
METAL_FUNC bool isinf(float x) { return __builtin_isinf(x); }
METAL_FUNC bool isfinite(float x) { return __builtin_isfinite(x); }
METAL_FUNC bool signbit(float x) { return __builtin_signbit(x); }
#define _DOT(T, E, N)                                         \
    METAL_FUNC E dot(T a, T b) {                              \
        E s = (E)(a[0] * b[0]);                               \
        for (int i = 1; i < N; i++) s = (E)(s + a[i] * b[i]); \
        return s;                                             \
    }
_DOT(float2, float, 2)
_DOT(float3, float, 3)
_DOT(float4, float, 4)
_DOT(half2, half, 2)
_DOT(half3, half, 3)
_DOT(half4, half, 4)
_DOT(bfloat2, bfloat, 2)
_DOT(bfloat4, bfloat, 4)
METAL_FUNC float length_squared(float4 a) { return dot(a, a); }
METAL_FUNC float length(float2 a) { return __builtin_sqrtf(dot(a, a)); }
METAL_FUNC float length(float3 a) { return __builtin_sqrtf(dot(a, a)); }
METAL_FUNC float length(float4 a) { return __builtin_sqrtf(dot(a, a)); }
#define _AA(T, N)                                   \
    METAL_FUNC bool any(T a) {                      \
        bool r = false;                             \
        for (int i = 0; i < N; i++) r |= a[i] != 0; \
        return r;                                   \
    }                                               \
    METAL_FUNC bool all(T a) {                      \
        bool r = true;                              \
        for (int i = 0; i < N; i++) r &= a[i] != 0; \
        return r;                                   \
    }
_AA(int2, 2)
_AA(int3, 3)
_AA(int4, 4)
_AA(short2, 2)
_AA(short3, 3)
_AA(short4, 4)
#define _BITS(T, U, W)                                                                        \
    METAL_FUNC T popcount(T x) { return (T)__builtin_popcountll((U)x); }                      \
    METAL_FUNC T clz(T x) { return (T)((U)x ? __builtin_clzll((ulong)(U)x) - (64 - W) : W); } \
    METAL_FUNC T ctz(T x) { return (T)((U)x ? __builtin_ctzll((ulong)(U)x) : W); }            \
    METAL_FUNC T rotate(T x, T k) {                                                           \
        U u = (U)x;                                                                           \
        unsigned s = (unsigned)k & (W - 1);                                                   \
        return (T)(s ? (U)((u << s) | (u >> (W - s))) : u);                                   \
    }                                                                                         \
    METAL_FUNC T reverse_bits(T x) {                                                          \
        U u = (U)x, r = 0;                                                                    \
        for (int i = 0; i < W; i++) {                                                         \
            r = (U)((r << 1) | (u & 1));                                                      \
            u = (U)(u >> 1);                                                                  \
        }                                                                                     \
        return (T)r;                                                                          \
    }
_BITS(uint, uint, 32)
_BITS(int, uint, 32)
_BITS(ushort, ushort, 16)
_BITS(short, ushort, 16)
_BITS(uchar, uchar, 8)
_BITS(char, uchar, 8)
_BITS(ulong, ulong, 64)
_BITS(long, ulong, 64)
METAL_FUNC uint mulhi(uint a, uint b) { return (uint)(((ulong)a * b) >> 32); }
METAL_FUNC int mulhi(int a, int b) { return (int)(((long)a * b) >> 32); }
METAL_FUNC uint extract_bits(uint x, uint o, uint n) {
    return n == 0 ? 0 : (x >> o) & (n >= 32 ? ~0u : (1u << n) - 1);
}
METAL_FUNC uint absdiff(int a, int b) { return a > b ? (uint)a - (uint)b : (uint)b - (uint)a; }

}  // namespace metal
