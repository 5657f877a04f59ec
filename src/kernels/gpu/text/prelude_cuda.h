// What the shared bodies need, in CUDA C++ under NVRTC. Nothing is included: no toolkit has to be there.
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long long ulong;
#define INFINITY __int_as_float(0x7f800000)
#define DEVICE
#define CONSTANT const
#define THREADGROUP
#define THREAD
#define FK_FN __device__ __forceinline__
#define FK_UNROLL _Pragma("unroll")
#define FK_UNROLL2 _Pragma("unroll 2")
#define FK_UNROLL4 _Pragma("unroll 4")
#define FK_NO_UNROLL _Pragma("unroll 1")
#define FK_BARRIER() __syncthreads()
#define FK_BARRIER_ALL() __syncthreads()
#define FK_SG_BARRIER() __syncwarp()
#define SHARED_DEVICE
#if __CUDA_ARCH__ >= 900
// A dependent launch starts while the launch before still runs, and waits here for what that writes.
#define FK_WAIT_INPUTS() do { asm volatile("griddepcontrol.wait;" ::: "memory"); asm volatile("griddepcontrol.launch_dependents;"); } while (0)
#else
#define FK_WAIT_INPUTS()
#endif

namespace fk {

struct Ids { uint tg_x, tg_y, tg_z, n_x, lane, sg, tid; };

FK_FN Ids this_thread() {
    Ids id = {blockIdx.x, blockIdx.y, blockIdx.z, gridDim.x, threadIdx.x & 31u, threadIdx.x >> 5, threadIdx.x};
    return id;
}

template <typename T> FK_FN T simd_shuffle_xor(T v, ushort m) { return __shfl_xor_sync(0xffffffffu, v, m); }
template <typename T> FK_FN T simd_shuffle(T v, ushort lane) { return __shfl_sync(0xffffffffu, v, lane); }
template <typename T> FK_FN T simd_sum(T v) {
    FK_UNROLL for (int d = 16; d; d >>= 1) v = v + __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}
template <typename T> FK_FN T simd_max(T v) {
    FK_UNROLL for (int d = 16; d; d >>= 1) {
        const T o = __shfl_xor_sync(0xffffffffu, v, d);
        v = v > o ? v : o;
    }
    return v;
}
FK_FN uint simd_bits(bool b, uint) { return __ballot_sync(0xffffffffu, b); }
FK_FN uint count_bits(uint u) { return __popc(u); }
FK_FN float as_f32(uint u) { return __uint_as_float(u); }
FK_FN uint as_u32(float f) { return __float_as_uint(f); }
FK_FN uint4 make_u4(uint a, uint b, uint c, uint d) { return make_uint4(a, b, c, d); }
FK_FN float f16_to_f32(ushort h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
FK_FN ushort f32_to_f16(float f) {
    ushort h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
// (a & mask) | bits in one instruction, which the compiler does not find by itself.
FK_FN uint and_or(uint a, uint mask, uint bits) {
    uint r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(mask), "r"(bits));
    return r;
}
FK_FN uint byte_or(uint q, uint i, uint bits) { return __byte_perm(q, bits, 0x7650u | i); }
// Rows of codes are read 64 bytes at a time: L2 fetches the line around them.
FK_FN uint4 stream16(const uint4* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
FK_FN uint2 stream8(const uint2* p) {
    uint2 v;
    asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
FK_FN uint stream4(const uint* p) { return __ldg(p); }
FK_FN uint stream2(const ushort* p) { return __ldg(p); }
FK_FN uint stream1(const uchar* p) { return __ldg(p); }
FK_FN void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
FK_FN uint arrive(uint* at) {
    uint before;
    asm volatile("atom.relaxed.gpu.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(at) : "memory");
    return before;
}
FK_FN void clear_arrivals(uint* at) { asm volatile("st.relaxed.gpu.u32 [%0], 0;" ::"l"(at) : "memory"); }
FK_FN float exp(float x) { return expf(x); }
FK_FN float tanh(float x) { return tanhf(x); }
FK_FN float sqrt(float x) { return sqrtf(x); }
FK_FN float log(float x) { return logf(x); }
FK_FN float fma(float a, float b, float c) { return fmaf(a, b, c); }
FK_FN float max(float a, float b) { return fmaxf(a, b); }
FK_FN uint max(uint a, uint b) { return a > b ? a : b; }
FK_FN uint min(uint a, uint b) { return a < b ? a : b; }
FK_FN int max(int a, int b) { return a > b ? a : b; }
FK_FN int min(int a, int b) { return a < b ? a : b; }
FK_FN float fabs(float x) { return fabsf(x); }
FK_FN bool isnan(float x) { return x != x; }

}  // namespace fk
