// Constructors and conversions of vectors.
#pragma once

namespace metal {
template <class T>
struct _vt {
    typedef T e;
    enum { n = 1 };
};
template <>
struct _vt<bool2> {
    typedef bool e;
    enum { n = 2 };
};
template <>
struct _vt<bool3> {
    typedef bool e;
    enum { n = 3 };
};
template <>
struct _vt<bool4> {
    typedef bool e;
    enum { n = 4 };
};
#define _MSL_V(T)       \
    template <>         \
    struct _vt<T##2> {  \
        typedef T e;    \
        enum { n = 2 }; \
    };                  \
    template <>         \
    struct _vt<T##3> {  \
        typedef T e;    \
        enum { n = 3 }; \
    };                  \
    template <>         \
    struct _vt<T##4> {  \
        typedef T e;    \
        enum { n = 4 }; \
    };
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
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));  // deducible: vec<T,2> matches float2

template <class E>
struct _sc {
    template <class A>
    static METAL_FUNC E f(A a) {
        return (E)a;
    }
};  // bfloat and half convert through float
template <>
struct _sc<half> {
    template <class A>
    static METAL_FUNC half f(A a) {
        return (half)a;
    }
    static METAL_FUNC half f(bfloat a) { return (half)(float)a; }
};
template <>
struct _sc<bfloat> {
    template <class A>
    static METAL_FUNC bfloat f(A a) {
        return (bfloat)a;
    }
    static METAL_FUNC bfloat f(half a) { return (bfloat)(float)a; }
};
template <bool B, class T = void>
struct _if {};
template <class T>
struct _if<true, T> {
    typedef T t;
};
template <class V, int K>
struct _put {  // flatten constructor arguments
    template <class A>
    static METAL_FUNC typename _if<_vt<A>::n == 1>::t one(V& v, A a) {
        v[K] = _sc<typename _vt<V>::e>::f(a);
    }
    template <class A>
    static METAL_FUNC typename _if<(_vt<A>::n > 1)>::t one(V& v, A a) {
        for (int i = 0; i < _vt<A>::n; i++) v[K + i] = _sc<typename _vt<V>::e>::f((typename _vt<A>::e)a[i]);
    }
};
template <class V, int K, class A>
METAL_FUNC void _fill(V& v, A a) {
    static_assert(K + _vt<A>::n == _vt<V>::n, "vector constructor: wrong number of components");
    _put<V, K>::one(v, a);
}
template <class V, int K, class A, class B, class... R>
METAL_FUNC void _fill(V& v, A a, B b, R... r) {
    _put<V, K>::one(v, a);
    _fill<V, K + _vt<A>::n>(v, b, r...);
}
template <class V, class A, bool S>
struct _mk1 {
    static METAL_FUNC V f(A a) {
        V v;
        for (int i = 0; i < _vt<V>::n; i++) v[i] = _sc<typename _vt<V>::e>::f(a);
        return v;
    }
};
template <class V, class A>
struct _mk1<V, A, false> {
    static_assert(_vt<V>::n == _vt<A>::n, "vector conversion: different number of components");
    static METAL_FUNC V f(A a) {
        V v;
        for (int i = 0; i < _vt<V>::n; i++) v[i] = _sc<typename _vt<V>::e>::f((typename _vt<A>::e)a[i]);
        return v;
    }
};
template <class V, int N>
struct _mk0 {
    template <class A>
    static METAL_FUNC V f(A a) {
        return _mk1 < V, A, _vt<A>::n == 1 > ::f(a);
    }
    template <class A, class B, class... R>
    static METAL_FUNC V f(A a, B b, R... r) {
        V v;
        _fill<V, 0>(v, a, b, r...);
        return v;
    }
};
template <class V>
struct _mk0<V, 1> {
    template <class... A>
    static METAL_FUNC V f(A... a) {
        return V(a...);
    }
};  // a scalar, a matrix or a struct
template <class V, class... A>
METAL_FUNC V _mk(A... a) {
    return _mk0<V, _vt<V>::n>::f(a...);
}
template <class V>
METAL_FUNC V _mk() {
    return V{};
}
template <class V, class S>
METAL_FUNC V _cvt(S a) {
    return _mk0<V, _vt<V>::n>::f(a);
}
// the argument is a comparison: a vector of -1 and 0 here, of booleans in MSL
template <class V, int N>
struct _mkb0 {
    template <class A>
    static METAL_FUNC V f(A a) {
        V v;
        for (int i = 0; i < N; i++) v[i] = (typename _vt<V>::e)(a[i] != 0);
        return v;
    }
};
template <class V>
struct _mkb0<V, 1> {
    template <class A>
    static METAL_FUNC V f(A a) {
        return V(a);
    }
};
template <class V, bool S>
struct _mkbs {
    template <class A>
    static METAL_FUNC V f(A a) {
        return _mk<V>(a);
    }
};
template <class V>
struct _mkbs<V, false> {
    template <class A>
    static METAL_FUNC V f(A a) {
        return _mkb0<V, _vt<V>::n>::f(a);
    }
};
template <class V, class A>
METAL_FUNC V _mkb(A a) {
    return _mkbs < V, _vt<A>::n == 1 > ::f(a);
}
template <class V, class A, class B, class... R>
METAL_FUNC V _mkb(A a, B b, R... r) {
    return _mk<V>(a, b, r...);
}
template <class V, class A>
METAL_FUNC V _cvtb(A a) {
    return _mkb<V>(a);
}

}  // namespace metal
