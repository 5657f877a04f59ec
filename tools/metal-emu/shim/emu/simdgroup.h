// Barriers and simdgroup operations: lanes meet in the host and read each other's slots.
#pragma once

namespace metal {
// ---- synchronisation
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_device_and_threadgroup = 3 };
METAL_FUNC mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }
EMU_UNCHECKED inline void threadgroup_barrier(mem_flags m, _LOC) { emu_barrier(0, (int)m, _f, _l); }
EMU_UNCHECKED inline void simdgroup_barrier(mem_flags m, _LOC) { emu_barrier(1, (int)m, _f, _l); }

// ---- simdgroup
template <class T>
struct _slot {
    T v;
    char pad[64 - sizeof(T)];
};
template <class T>
EMU_UNCHECKED inline const _slot<T>* _xchg(const T& v, unsigned op, const char* f, int l) {
    return (const _slot<T>*)emu_exchange(&v, sizeof(T), op, f, l);
}
#define _RED(name, op, expr)                            \
    template <class T>                                  \
    EMU_COLLECTIVE T name(T v, _LOC) {                  \
        const _slot<T>* s = _xchg(v, op, _f, _l);       \
        unsigned n = emu_simd_width();                  \
        if (n == 32) {                                  \
            T t[32];                                    \
            for (int i = 0; i < 32; i++) t[i] = s[i].v; \
            for (int d = 16; d; d >>= 1)                \
                for (int i = 0; i < d; i++) {           \
                    T a = t[i], b = t[i + d];           \
                    t[i] = (T)(expr);                   \
                }                                       \
            return t[0];                                \
        }                                               \
        T a = s[0].v;                                   \
        for (unsigned i = 1; i < n; i++) {              \
            T b = s[i].v;                               \
            a = (T)(expr);                              \
        }                                               \
        return a;                                       \
    }
_RED(simd_sum, 1, a + b)
_RED(simd_max, 2, (a > b ? a : b))
_RED(simd_min, 3, (a < b ? a : b))
_RED(simd_product, 4, a* b)
_RED(simd_or, 5, a | b)
_RED(simd_and, 6, a& b)
template <class T>
struct _x_ {
    static METAL_FUNC T f(T a, T b) { return a ^ b; }
};
template <>
struct _x_<float> {
    static METAL_FUNC float f(float a, float b) {
        return __builtin_bit_cast(float, __builtin_bit_cast(uint, a) ^ __builtin_bit_cast(uint, b));
    }
};
_RED(simd_xor, 7, _x_<T>::f(a, b))
template <class T>
EMU_COLLECTIVE T simd_shuffle_xor(T v, ushort m, _LOC) {
    return _xchg(v, 16, _f, _l)[(emu_lane() ^ m) & 31].v;
}
template <class T>
EMU_COLLECTIVE T simd_shuffle(T v, ushort i, _LOC) {
    return _xchg(v, 17, _f, _l)[i & 31].v;
}
template <class T>
EMU_COLLECTIVE T simd_broadcast(T v, ushort i, _LOC) {
    return _xchg(v, 18, _f, _l)[i & 31].v;
}
template <class T>
EMU_COLLECTIVE T simd_broadcast_first(T v, _LOC) {
    return _xchg(v, 19, _f, _l)[0].v;
}
template <class T>
EMU_COLLECTIVE T simd_shuffle_down(T v, ushort d, _LOC) {
    unsigned i = emu_lane() + d;
    const _slot<T>* s = _xchg(v, 20, _f, _l);
    return i < 32 ? s[i].v : v;
}
template <class T>
EMU_COLLECTIVE T simd_shuffle_rotate_down(T v, ushort d, _LOC) {
    return _xchg(v, 26, _f, _l)[(emu_lane() + d) & 31].v;
}
template <class T>
EMU_COLLECTIVE T simd_shuffle_rotate_up(T v, ushort d, _LOC) {
    return _xchg(v, 27, _f, _l)[(emu_lane() - d) & 31].v;
}
template <class T>
EMU_COLLECTIVE T simd_shuffle_and_fill_down(T v, T fill, ushort d, _LOC) {
    unsigned i = emu_lane() + d;
    const _slot<T>* s = _xchg(v, 28, _f, _l);
    return i < 32 ? s[i].v : fill;
}
template <class T>
EMU_COLLECTIVE T simd_shuffle_and_fill_up(T v, T fill, ushort d, _LOC) {
    int i = (int)emu_lane() - d;
    const _slot<T>* s = _xchg(v, 29, _f, _l);
    return i >= 0 ? s[i].v : fill;
}
template <class T>
EMU_COLLECTIVE T quad_shuffle_xor(T v, ushort m, _LOC) {
    return _xchg(v, 48, _f, _l)[(emu_lane() ^ (m & 3)) & 31].v;
}
template <class T>
EMU_COLLECTIVE T quad_sum(T v, _LOC) {
    const _slot<T>* s = _xchg(v, 49, _f, _l);
    unsigned b = emu_lane() & ~3u;
    return (T)((s[b].v + s[b + 2].v) + (s[b + 1].v + s[b + 3].v));
}
template <class T>
EMU_COLLECTIVE T quad_max(T v, _LOC) {
    const _slot<T>* s = _xchg(v, 50, _f, _l);
    unsigned b = emu_lane() & ~3u;
    T r = s[b].v;
    for (int i = 1; i < 4; i++) r = s[b + i].v > r ? s[b + i].v : r;
    return r;
}
template <class T>
EMU_COLLECTIVE T quad_broadcast(T v, ushort i, _LOC) {
    return _xchg(v, 51, _f, _l)[(emu_lane() & ~3u) | (i & 3)].v;
}
struct simd_vote {
    typedef ulong vote_t;
    vote_t m;
    explicit simd_vote(vote_t x = 0) : m(x) {}
    explicit operator vote_t() const { return m; }
    bool any() const { return m != 0; }
    bool all() const { return m == 0xffffffffull; }
};
EMU_COLLECTIVE inline simd_vote simd_ballot(bool v, _LOC) {
    const _slot<bool>* s = _xchg(v, 52, _f, _l);
    ulong r = 0;
    for (unsigned i = 0; i < emu_simd_width(); i++) r |= (ulong)s[i].v << i;
    return simd_vote(r);
}
EMU_COLLECTIVE inline simd_vote simd_active_threads_mask(_LOC) { return simd_ballot(true, _f, _l); }
EMU_COLLECTIVE inline bool simd_is_first(_LOC) { return emu_lane() == 0; }  // all lanes active is assumed
template <class T>
EMU_COLLECTIVE T simd_shuffle_up(T v, ushort d, _LOC) {
    int i = (int)emu_lane() - d;
    const _slot<T>* s = _xchg(v, 21, _f, _l);
    return i >= 0 ? s[i].v : v;
}
template <class T>
EMU_COLLECTIVE T simd_prefix_exclusive_sum(T v, _LOC) {
    const _slot<T>* s = _xchg(v, 22, _f, _l);
    T a = T(0);
    for (unsigned i = 0, e = emu_lane(); i < e; i++) a = (T)(a + s[i].v);
    return a;
}
template <class T>
EMU_COLLECTIVE T simd_prefix_exclusive_product(T v, _LOC) {
    const _slot<T>* s = _xchg(v, 54, _f, _l);
    T a = T(1);
    for (unsigned i = 0, e = emu_lane(); i < e; i++) a = (T)(a * s[i].v);
    return a;
}
template <class T>
EMU_COLLECTIVE T simd_prefix_inclusive_product(T v, _LOC) {
    const _slot<T>* s = _xchg(v, 53, _f, _l);
    T a = T(1);
    for (unsigned i = 0, e = emu_lane(); i <= e; i++) a = (T)(a * s[i].v);
    return a;
}
template <class T>
EMU_COLLECTIVE T simd_prefix_inclusive_sum(T v, _LOC) {
    const _slot<T>* s = _xchg(v, 23, _f, _l);
    T a = T(0);
    for (unsigned i = 0, e = emu_lane(); i <= e; i++) a = (T)(a + s[i].v);
    return a;
}
EMU_COLLECTIVE inline bool simd_any(bool v, _LOC) {
    const _slot<bool>* s = _xchg(v, 24, _f, _l);
    bool r = false;
    for (unsigned i = 0; i < emu_simd_width(); i++) r |= s[i].v;
    return r;
}
EMU_COLLECTIVE inline bool simd_all(bool v, _LOC) {
    const _slot<bool>* s = _xchg(v, 25, _f, _l);
    bool r = true;
    for (unsigned i = 0; i < emu_simd_width(); i++) r &= s[i].v;
    return r;
}

}  // namespace metal
