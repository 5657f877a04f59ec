// Matrices and numeric limits.
#pragma once

namespace metal {
// ---- matrices: C columns of R components. In the address-space build they can be read from another space,
// not assigned or indexed in it (C++ has no such members)
template <class T, int C, int R = C>
struct matrix {
    typedef vec<T, R> col;
    col _c[C];
    matrix() = default;
    matrix(const matrix&) = default;
#ifdef EMU_ADDRESS_SPACES
    METAL_FUNC matrix(const __attribute__((address_space(1))) matrix& o) {
        for (int c = 0; c < C; c++) _c[c] = o._c[c];
    }
    METAL_FUNC matrix(const __attribute__((address_space(2))) matrix& o) {
        for (int c = 0; c < C; c++) _c[c] = o._c[c];
    }
    METAL_FUNC matrix(const __attribute__((address_space(3))) matrix& o) {
        for (int c = 0; c < C; c++) _c[c] = o._c[c];
    }
#endif
    matrix& operator=(const matrix&) = default;
    explicit METAL_FUNC matrix(T d) {
        for (int c = 0; c < C; c++)
            for (int r = 0; r < R; r++) _c[c][r] = c == r ? d : (T)0;
    }
    template <class U>
    explicit METAL_FUNC matrix(const matrix<U, C, R>& o) {
        for (int c = 0; c < C; c++)
            for (int r = 0; r < R; r++) _c[c][r] = _sc<T>::f((U)o._c[c][r]);
    }
    template <class... A>
    explicit METAL_FUNC matrix(col a, col b, A... z) : _c{a, b, z...} {}
    METAL_FUNC col& operator[](int i) { return _c[i]; }
    METAL_FUNC const col& operator[](int i) const { return _c[i]; }
};
template <class T, int C, int R>
METAL_FUNC matrix<T, C, R> operator*(matrix<T, C, R> m, T s) {
    for (int c = 0; c < C; c++) m._c[c] = m._c[c] * s;
    return m;
}
template <class T, int C, int R>
METAL_FUNC matrix<T, C, R> operator*(T s, matrix<T, C, R> m) {
    return m * s;
}
template <class T, int C, int R>
METAL_FUNC matrix<T, C, R> operator+(matrix<T, C, R> m, matrix<T, C, R> o) {
    for (int c = 0; c < C; c++) m._c[c] = m._c[c] + o._c[c];
    return m;
}
template <class T, int C, int R>
METAL_FUNC matrix<T, C, R> operator-(matrix<T, C, R> m, matrix<T, C, R> o) {
    for (int c = 0; c < C; c++) m._c[c] = m._c[c] - o._c[c];
    return m;
}
template <class T, int C, int R>
METAL_FUNC vec<T, R> operator*(matrix<T, C, R> m, vec<T, C> v) {
    vec<T, R> r = m._c[0] * v[0];
    for (int c = 1; c < C; c++) r = r + m._c[c] * v[c];
    return r;
}
#define _MAT(T)                     \
    typedef matrix<T, 2, 2> T##2x2; \
    typedef matrix<T, 2, 3> T##2x3; \
    typedef matrix<T, 2, 4> T##2x4; \
    typedef matrix<T, 3, 2> T##3x2; \
    typedef matrix<T, 3, 3> T##3x3; \
    typedef matrix<T, 3, 4> T##3x4; \
    typedef matrix<T, 4, 2> T##4x2; \
    typedef matrix<T, 4, 3> T##4x3; \
    typedef matrix<T, 4, 4> T##4x4;
_MAT(float)
_MAT(half)
template <class T>
struct numeric_limits;
#define _LIM(T, mn, mx, lo, ep)                                           \
    template <>                                                           \
    struct numeric_limits<T> {                                            \
        static constexpr T min() { return mn; }                           \
        static constexpr T max() { return mx; }                           \
        static constexpr T lowest() { return lo; }                        \
        static constexpr T epsilon() { return ep; }                       \
        static constexpr T infinity() { return (T)__builtin_inff(); }     \
        static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); }  \
        static constexpr bool has_infinity = true, is_specialized = true; \
    };
#define _LIMI(T, mn, mx)                                                   \
    template <>                                                            \
    struct numeric_limits<T> {                                             \
        static constexpr T min() { return mn; }                            \
        static constexpr T max() { return mx; }                            \
        static constexpr T lowest() { return mn; }                         \
        static constexpr T epsilon() { return 0; }                         \
        static constexpr bool has_infinity = false, is_specialized = true; \
    };
_LIM(float, 1.17549435e-38f, 3.402823466e+38f, -3.402823466e+38f, 1.1920929e-07f)
_LIM(half, (half)6.103515625e-05f, (half)65504.0f, (half)-65504.0f, (half)0.0009765625f)
_LIM(bfloat, (bfloat)1.17549435e-38f, (bfloat)3.38953139e38f, (bfloat)-3.38953139e38f, (bfloat)0.0078125f)
_LIMI(char, -128, 127)
_LIMI(signed char, -128, 127)
_LIMI(uchar, 0, 255)
_LIMI(short, -32768, 32767)
_LIMI(ushort, 0, 65535)
_LIMI(int, (-2147483647 - 1), 2147483647)
_LIMI(uint, 0, 4294967295u)
_LIMI(long, (-9223372036854775807l - 1), 9223372036854775807l)
_LIMI(ulong, 0, 18446744073709551615ul)
_LIMI(bool, false, true)
}  // namespace metal
