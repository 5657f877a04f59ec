// What the shared bodies need, in the Metal Shading Language.
#include <metal_stdlib>
using namespace metal;
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
#define DEVICE device
#define CONSTANT constant
#define THREADGROUP threadgroup
#define THREAD thread
#define FK_FN inline
#define FK_UNROLL _Pragma("clang loop unroll(full)")
#define FK_UNROLL2 _Pragma("clang loop unroll_count(2)")
#define FK_UNROLL4 _Pragma("clang loop unroll_count(4)")
#define FK_NO_UNROLL
#define FK_BARRIER() threadgroup_barrier(mem_flags::mem_threadgroup)
#define FK_BARRIER_ALL() threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)
#define FK_SG_BARRIER() simdgroup_barrier(mem_flags::mem_threadgroup)
// What other threadgroups of the same launch read or write, between fences.
#if __METAL_VERSION__ >= 320
#define SHARED_DEVICE coherent(device) device
#define FK_DEVICE_FENCE() atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device)
#else
#define SHARED_DEVICE device
#define FK_DEVICE_FENCE()
#endif
#define FK_WAIT_INPUTS()

namespace fk {

struct Ids { uint tg_x, tg_y, tg_z, n_x, lane, sg, tid; };

// A bit for each lane. (simd_ballot returns 64 of them in a type of its own.)
FK_FN uint simd_bits(bool b, uint lane) { return simd_sum(b ? 1u << lane : 0u); }
FK_FN uint count_bits(uint u) { return popcount(u); }
FK_FN float as_f32(uint u) { return as_type<float>(u); }
FK_FN uint as_u32(float f) { return as_type<uint>(f); }
FK_FN uint4 make_u4(uint a, uint b, uint c, uint d) { return uint4(a, b, c, d); }
FK_FN float f16_to_f32(ushort h) { return (float)as_type<half>(h); }
FK_FN ushort f32_to_f16(float f) { return as_type<ushort>((half)f); }
FK_FN uint and_or(uint a, uint mask, uint bits) { return (a & mask) | bits; }
FK_FN uint byte_or(uint q, uint i, uint bits) { return ((q >> (8 * i)) & 255u) | bits; }
FK_FN void fence_device() { FK_DEVICE_FENCE(); }
FK_FN uint arrive(DEVICE uint* at) { return atomic_fetch_add_explicit((DEVICE atomic_uint*)at, 1u, memory_order_relaxed); }
FK_FN void clear_arrivals(DEVICE uint* at) { atomic_store_explicit((DEVICE atomic_uint*)at, 0u, memory_order_relaxed); }
// Loads of weights, which are read once.
FK_FN uint4 stream16(DEVICE const uint4* p) { return *p; }
FK_FN uint2 stream8(DEVICE const uint2* p) { return *p; }
FK_FN uint stream4(DEVICE const uint* p) { return *p; }
FK_FN uint stream2(DEVICE const ushort* p) { return *p; }
FK_FN uint stream1(DEVICE const uchar* p) { return *p; }

}  // namespace fk
