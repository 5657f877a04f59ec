// NEON (armv8-a): included by vec.h only.
#pragma once

#include <arm_neon.h>

#include <cstring>

namespace forge::simd_neon {

inline constexpr int kLanes = 4;
struct F32 { float32x4_t v; };
struct Mask { uint32x4_t v; };  // all ones or all zeros a lane

FORGE_INLINE F32 zero() { return {vdupq_n_f32(0)}; }
FORGE_INLINE F32 set1(float x) { return {vdupq_n_f32(x)}; }
FORGE_INLINE F32 operator+(F32 a, F32 b) { return {vaddq_f32(a.v, b.v)}; }
FORGE_INLINE F32 operator-(F32 a, F32 b) { return {vsubq_f32(a.v, b.v)}; }
FORGE_INLINE F32 operator*(F32 a, F32 b) { return {vmulq_f32(a.v, b.v)}; }
FORGE_INLINE F32 operator/(F32 a, F32 b) { return {vdivq_f32(a.v, b.v)}; }
FORGE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
FORGE_INLINE F32 select(Mask m, F32 yes, F32 no) { return {vbslq_f32(m.v, yes.v, no.v)}; }
// As on x86: b when either is NaN.
FORGE_INLINE F32 max(F32 a, F32 b) { return {vbslq_f32(vcgtq_f32(a.v, b.v), a.v, b.v)}; }
FORGE_INLINE F32 min(F32 a, F32 b) { return {vbslq_f32(vcltq_f32(a.v, b.v), a.v, b.v)}; }
FORGE_INLINE F32 abs(F32 a) { return {vabsq_f32(a.v)}; }
FORGE_INLINE F32 nearest(F32 a) { return {vrndnq_f32(a.v)}; }
FORGE_INLINE Mask less(F32 a, F32 b) { return {vcltq_f32(a.v, b.v)}; }
FORGE_INLINE Mask equal(F32 a, F32 b) { return {vceqq_f32(a.v, b.v)}; }
FORGE_INLINE F32 copy_sign(F32 magnitude, F32 sign) {
    return {vbslq_f32(vdupq_n_u32(0x80000000u), sign.v, magnitude.v)};
}
FORGE_INLINE float first_of(F32 a) { return vgetq_lane_f32(a.v, 0); }
FORGE_INLINE std::uint32_t bits(Mask m) {
    static const std::int32_t shifts[4] = {0, 1, 2, 3};
    return vaddvq_u32(vshlq_u32(vshrq_n_u32(m.v, 31), vld1q_s32(shifts)));
}
FORGE_INLINE Mask first_lanes(int n) {
    static const std::int32_t lane[4] = {0, 1, 2, 3};
    return {vcltq_s32(vld1q_s32(lane), vdupq_n_s32(n))};
}
FORGE_INLINE Mask operator&(Mask a, Mask b) { return {vandq_u32(a.v, b.v)}; }
FORGE_INLINE Mask but_not(Mask a, Mask b) { return {vbicq_u32(a.v, b.v)}; }
FORGE_INLINE float32x4_t power_of_two(int32x4_t n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }
// |n| <= 250; in two steps, because 2^n itself may be out of range
FORGE_INLINE F32 scale_by_power(F32 x, F32 n) {
    const int32x4_t whole = vcvtnq_s32_f32(n.v);
    const int32x4_t half = vshrq_n_s32(whole, 1);
    return {vmulq_f32(vmulq_f32(x.v, power_of_two(half)), power_of_two(vsubq_s32(whole, half)))};
}
// x - floor(x), 0 for -inf; and p * 2^floor(x), 0 for x = -inf (x at most 250)
FORGE_INLINE F32 floor_above_150(F32 x) { return {vrndmq_f32(max(set1(-150.0f), x).v)}; }
FORGE_INLINE F32 above_floor(F32 x) { return max(set1(-150.0f), x) - floor_above_150(x); }
FORGE_INLINE F32 scale_by_floor(F32 p, F32 x) { return scale_by_power(p, floor_above_150(x)); }
FORGE_INLINE float sum(F32 a) { return vaddvq_f32(a.v); }
FORGE_INLINE float largest(F32 a) { return vmaxvq_f32(a.v); }

FORGE_INLINE uint32x4_t bf16_bits(F32 x) {
    const uint32x4_t u = vreinterpretq_u32_f32(x.v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd), 16);
    return vbslq_u32(vceqq_f32(x.v, x.v), rounded, vorrq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(0x40)));
}
FORGE_INLINE F32 from_bf16_bits(uint32x4_t low) { return {vreinterpretq_f32_u32(vshlq_n_u32(low, 16))}; }
FORGE_INLINE F32 round_bf16(F32 x) { return from_bf16_bits(bf16_bits(x)); }
FORGE_INLINE uint16x4_t f16_bits(F32 x) { return vreinterpret_u16_f16(vcvt_f16_f32(x.v)); }
FORGE_INLINE F32 from_f16_bits(uint16x4_t h) { return {vcvt_f32_f16(vreinterpret_f16_u16(h))}; }
FORGE_INLINE F32 round_f16(F32 x) { return from_f16_bits(f16_bits(x)); }

FORGE_INLINE F32 load(const float* p) { return {vld1q_f32(p)}; }
FORGE_INLINE F32 load(const bf16* p) { return from_bf16_bits(vmovl_u16(vld1_u16(&p->bits))); }
FORGE_INLINE F32 load(const f16* p) { return from_f16_bits(vld1_u16(&p->bits)); }
FORGE_INLINE void store(float* p, F32 x) { vst1q_f32(p, x.v); }
FORGE_INLINE void store(bf16* p, F32 x) { vst1_u16(&p->bits, vmovn_u32(bf16_bits(x))); }
FORGE_INLINE void store(f16* p, F32 x) { vst1_u16(&p->bits, f16_bits(x)); }
template <typename T>
FORGE_INLINE F32 load_first(const T* p, int n) {
    T raw[4] = {};
    std::memcpy(static_cast<void*>(raw), p, sizeof(T) * static_cast<std::size_t>(n));
    return load(raw);
}
template <typename T>
FORGE_INLINE void store_first(T* p, F32 x, int n) {
    T raw[4];
    store(raw, x);
    std::memcpy(static_cast<void*>(p), raw, sizeof(T) * static_cast<std::size_t>(n));
}

struct Pairs { F32 first, second; };
FORGE_INLINE Pairs load_pairs(const bf16* p) {
    const uint32x4_t u = vreinterpretq_u32_u16(vld1q_u16(&p->bits));
    return {{vreinterpretq_f32_u32(vshlq_n_u32(u, 16))}, {vreinterpretq_f32_u32(vandq_u32(u, vdupq_n_u32(0xffff0000u)))}};
}

}  // namespace forge::simd_neon
