// Relaxed atomics, and fences.
#pragma once

namespace metal {
// ---- atomics
enum memory_order { memory_order_relaxed = 0, memory_order_seq_cst = 5 };
enum thread_scope { thread_scope_thread = 0, thread_scope_simdgroup = 1, thread_scope_threadgroup = 2, thread_scope_device = 3 };
EMU_UNCHECKED inline void atomic_thread_fence(mem_flags flags, memory_order order, thread_scope scope = thread_scope_device) {
    if (order != memory_order_relaxed) emu_fence((int)flags, (int)scope);
}
template <class T>
struct atomic {
    T v;
};
typedef atomic<uint> atomic_uint;
typedef atomic<int> atomic_int;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
typedef atomic<ulong> atomic_ulong;
template <class T>
struct _id_ {
    typedef T t;
};
// (device and threadgroup pointers are different types in the address-space build, hence the macro)
#ifdef EMU_ADDRESS_SPACES
#define _ATO(M) M(device) M(threadgroup)
#else
#define _ATO(M) M()
#endif
#define _RMW(S, op)                                                                                     \
    template <class T>                                                                                  \
    EMU_UNCHECKED METAL_FUNC T atomic_fetch_##op##_explicit(volatile S atomic<T>* p, typename _id_<T>::t x, \
                                                        memory_order) {                                 \
        return __atomic_fetch_##op((volatile T*)&p->v, x, __ATOMIC_RELAXED);                            \
    }
#define _RMWS(S)                                                                                        \
    _RMW(S, add)                                                                                        \
    _RMW(S, sub)                                                                                        \
    _RMW(S, and)                                                                                        \
    _RMW(S, or)                                                                                         \
    _RMW(S, xor)                                                                                        \
    _RMW(S, max)                                                                                        \
    _RMW(S, min)                                                                                        \
    template <class T>                                                                                  \
    EMU_UNCHECKED METAL_FUNC T atomic_load_explicit(const volatile S atomic<T>* p, memory_order) {          \
        return _ald<T>::f((const volatile T*)&p->v);                                                    \
    }                                                                                                   \
    template <class T>                                                                                  \
    EMU_UNCHECKED METAL_FUNC void atomic_store_explicit(volatile S atomic<T>* p, typename _id_<T>::t x,     \
                                                    memory_order) {                                     \
        _ald<T>::st((volatile T*)&p->v, x);                                                             \
    }                                                                                                   \
    template <class T>                                                                                  \
    EMU_UNCHECKED METAL_FUNC T atomic_exchange_explicit(volatile S atomic<T>* p, typename _id_<T>::t x,     \
                                                    memory_order) {                                     \
        return __atomic_exchange_n((volatile T*)&p->v, x, __ATOMIC_RELAXED);                            \
    }                                                                                                   \
    template <class T>                                                                                  \
    EMU_UNCHECKED METAL_FUNC bool atomic_compare_exchange_weak_explicit(                                    \
        volatile S atomic<T>* p, T* e, typename _id_<T>::t x, memory_order, memory_order) {             \
        return __atomic_compare_exchange_n((volatile T*)&p->v, e, x, true, __ATOMIC_RELAXED,            \
                                           __ATOMIC_RELAXED);                                           \
    }                                                                                                   \
    EMU_UNCHECKED METAL_FUNC float atomic_fetch_add_explicit(volatile S atomic<float>* p, float x,          \
                                                         memory_order) {                                \
        volatile uint* u = (volatile uint*)&p->v;                                                       \
        uint o = __atomic_load_n(u, __ATOMIC_RELAXED);                                                  \
        while (!__atomic_compare_exchange_n(u, &o,                                                      \
                                            __builtin_bit_cast(uint, __builtin_bit_cast(float, o) + x), \
                                            true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {                \
        }                                                                                               \
        return __builtin_bit_cast(float, o);                                                            \
    }
template <class T>
struct _ald {
    static EMU_UNCHECKED METAL_FUNC T f(const volatile T* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
    static EMU_UNCHECKED METAL_FUNC void st(volatile T* p, T x) { __atomic_store_n(p, x, __ATOMIC_RELAXED); }
};
template <>
struct _ald<float> {
    static EMU_UNCHECKED METAL_FUNC float f(const volatile float* p) {
        return __builtin_bit_cast(float, __atomic_load_n((const volatile uint*)p, __ATOMIC_RELAXED));
    }
    static EMU_UNCHECKED METAL_FUNC void st(volatile float* p, float x) {
        __atomic_store_n((volatile uint*)p, __builtin_bit_cast(uint, x), __ATOMIC_RELAXED);
    }
};
_ATO(_RMWS)
}  // namespace metal
