// 8x8 matrices spread over a simdgroup, two elements a lane.
#pragma once

namespace metal {
// Where an element lies: lane l holds row _fm(l), columns _fn(l) and _fn(l) + 1; _fl is the inverse.
// Chips differ in this, so a kernel may not depend on it; profiles differ in it to show those that do.
#if EMU_MATRIX_LAYOUT == 1
METAL_FUNC int _fm(unsigned l) { return (int)(l / 4); }
METAL_FUNC int _fn(unsigned l) { return (int)(l % 4) * 2; }
METAL_FUNC int _fl(int r, int c) { return r * 4 + c / 2; }
#elif EMU_MATRIX_LAYOUT == 2
METAL_FUNC int _fm(unsigned l) { return (int)(l % 8); }
METAL_FUNC int _fn(unsigned l) { return (int)(l / 8) * 2; }
METAL_FUNC int _fl(int r, int c) { return r + c / 2 * 8; }
#else
METAL_FUNC int _fm(unsigned l) {
    int q = l / 4;
    return (q & 4) + ((l / 2) % 4);
}
METAL_FUNC int _fn(unsigned l) {
    int q = l / 4;
    return (q & 2) * 2 + (l % 2) * 2;
}
METAL_FUNC int _fl(int r, int c) { return ((r & 4) << 2) | ((c & 4) << 1) | ((r & 3) << 1) | ((c >> 1) & 1); }
#endif

template <class T, int R, int C = R>
struct simdgroup_matrix {
    static_assert(R == 8 && C == 8, "8x8 only");
    vec<T, 2> _e;
    simdgroup_matrix() {
        for (int i = 0; i < 2; i++) _e[i] = (T)__builtin_nanf("");
    }  // uninitialised reads show as NaN
    EMU_UNCHECKED explicit simdgroup_matrix(T d) {
        unsigned l = emu_lane();
        for (int i = 0; i < 2; i++) _e[i] = _fm(l) == _fn(l) + i ? d : (T)0;
    }
    vec<T, 2>& thread_elements() { return _e; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int R, int C = R>
METAL_FUNC simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v) {
    simdgroup_matrix<T, R, C> m;
    m._e[0] = v;
    m._e[1] = v;
    return m;
}
template <class T, class P>
inline void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& m, P* p, ulong ld = 8, ulong2 o = ulong2{0, 0},
                           bool tr = false, _LOC) {
    _xchg(ld, 32, _f, _l);
    unsigned l = emu_lane();
    for (int i = 0; i < 2; i++) {
        ulong r = _fm(l), c = _fn(l) + i;
        if (tr) {
            ulong t = r;
            r = c;
            c = t;
        }
        m._e[i] = (T)p[(o.y + r) * ld + o.x + c];
    }
}
template <class T, class P>
inline void simdgroup_store(simdgroup_matrix<T, 8, 8> m, P* p, ulong ld = 8, ulong2 o = ulong2{0, 0},
                            bool tr = false, _LOC) {
    _xchg(ld, 33, _f, _l);
    unsigned l = emu_lane();
    for (int i = 0; i < 2; i++) {
        ulong r = _fm(l), c = _fn(l) + i;
        if (tr) {
            ulong t = r;
            r = c;
            c = t;
        }
        p[(o.y + r) * ld + o.x + c] = m._e[i];
    }
}
template <class A, class B>
struct _AB {
    vec<A, 2> a;
    vec<B, 2> b;
};
template <class D, class A, class B, class Cc>
EMU_COLLECTIVE void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d,
                                                  simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                                  simdgroup_matrix<Cc, 8, 8> c, _LOC) {
    _AB<A, B> ab;
    ab.a = a._e;
    ab.b = b._e;
    const _slot<_AB<A, B>>* s = _xchg(ab, 34, _f, _l);
    unsigned l = emu_lane();
    int r = _fm(l), cc = _fn(l);
    float acc0 = (float)c._e[0], acc1 = (float)c._e[1];
    for (int k = 0; k < 8; k++) {
        float av = (float)s[_fl(r, k)].v.a[k & 1];
        int lb = _fl(k, cc);
        acc0 = __builtin_fmaf(av, (float)s[lb].v.b[0], acc0);
        acc1 = __builtin_fmaf(av, (float)s[lb].v.b[1], acc1);
    }
    d._e[0] = (D)acc0;
    d._e[1] = (D)acc1;
}
template <class D, class A, class B>
METAL_FUNC void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                   simdgroup_matrix<B, 8, 8> b, _LOC) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>((D)0), _f, _l);
}

}  // namespace metal
