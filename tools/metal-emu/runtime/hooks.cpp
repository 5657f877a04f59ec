// The functions that clang's -fsanitize=thread calls for every access: ours, no sanitizer runtime is linked.
#include <cstring>

#include "runtime/shadow.h"

using metal_emu::misaligned;
using metal_emu::ReleaseExchange;
using metal_emu::touch;

#define EMU_CODE __builtin_return_address(0)
#define EMU_ACCESS(n)                                                                            \
    void __tsan_read##n(void* a) {                                                               \
        touch(a, {n, false, false, EMU_CODE});                                                   \
        if (reinterpret_cast<std::uintptr_t>(a) % n) misaligned(a, {n, false, false, EMU_CODE}); \
    }                                                                                            \
    void __tsan_write##n(void* a) {                                                              \
        touch(a, {n, true, false, EMU_CODE});                                                    \
        if (reinterpret_cast<std::uintptr_t>(a) % n) misaligned(a, {n, true, false, EMU_CODE});  \
    }
#define EMU_UNALIGNED(n)                                                              \
    void __tsan_unaligned_read##n(void* a) { touch(a, {n, false, false, EMU_CODE}); } \
    void __tsan_unaligned_write##n(void* a) { touch(a, {n, true, false, EMU_CODE}); }
#define EMU_ATOMIC(name, expression)                                \
    unsigned __tsan_atomic32_##name(unsigned* p, unsigned v, int) { \
        touch(p, {4, true, true, EMU_CODE});                        \
        const ReleaseExchange exchange(p);                          \
        return expression;                                          \
    }

extern "C" {
EMU_ACCESS(1)
EMU_ACCESS(2)
EMU_ACCESS(4)
EMU_ACCESS(8)
EMU_ACCESS(16)
EMU_UNALIGNED(2)
EMU_UNALIGNED(4)
EMU_UNALIGNED(8)
EMU_UNALIGNED(16)
void __tsan_read_write4(void* a) {
    touch(a, {4, false, false, EMU_CODE});
    touch(a, {4, true, false, EMU_CODE});
}
void __tsan_read_write8(void* a) {
    touch(a, {8, false, false, EMU_CODE});
    touch(a, {8, true, false, EMU_CODE});
}
void emu_also_read(const void* p, unsigned n) { touch(const_cast<void*>(p), {n, false, false, EMU_CODE}); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void* __tsan_memcpy(void* to, const void* from, std::size_t n) {
    touch(const_cast<void*>(from), {static_cast<unsigned>(n), false, false, EMU_CODE});
    touch(to, {static_cast<unsigned>(n), true, false, EMU_CODE});
    return std::memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, std::size_t n) {
    touch(const_cast<void*>(from), {static_cast<unsigned>(n), false, false, EMU_CODE});
    touch(to, {static_cast<unsigned>(n), true, false, EMU_CODE});
    return std::memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, std::size_t n) {
    touch(to, {static_cast<unsigned>(n), true, false, EMU_CODE});
    return std::memset(to, value, n);
}
EMU_ATOMIC(exchange, __atomic_exchange_n(p, v, __ATOMIC_RELAXED))
EMU_ATOMIC(fetch_add, __atomic_fetch_add(p, v, __ATOMIC_RELAXED))
EMU_ATOMIC(fetch_sub, __atomic_fetch_sub(p, v, __ATOMIC_RELAXED))
EMU_ATOMIC(fetch_and, __atomic_fetch_and(p, v, __ATOMIC_RELAXED))
EMU_ATOMIC(fetch_or, __atomic_fetch_or(p, v, __ATOMIC_RELAXED))
EMU_ATOMIC(fetch_xor, __atomic_fetch_xor(p, v, __ATOMIC_RELAXED))
unsigned __tsan_atomic32_load(const unsigned* p, int) {
    touch(const_cast<unsigned*>(p), {4, false, true, EMU_CODE});
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
void __tsan_atomic32_store(unsigned* p, unsigned v, int) {
    touch(p, {4, true, true, EMU_CODE});
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
unsigned __tsan_atomic32_compare_exchange_val(unsigned* p, unsigned expected, unsigned v, int, int) {
    touch(p, {4, true, true, EMU_CODE});
    const ReleaseExchange exchange(p);
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
}
