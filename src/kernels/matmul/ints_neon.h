// NEON: included by ints.h only.
#pragma once

namespace forge::simd_neon {

struct U32 {
    uint32x4_t v;
};

FORGE_INLINE U32 set1(std::uint32_t x) { return {vdupq_n_u32(x)}; }
FORGE_INLINE U32 load_ints(const void* p) {
    return {vreinterpretq_u32_u8(vld1q_u8(static_cast<const std::uint8_t*>(p)))};
}
FORGE_INLINE U32 load_ints(const void* p, int bytes) {
    std::uint8_t copy[16] = {};
    std::memcpy(copy, p, static_cast<std::size_t>(bytes < 16 ? bytes : 16));
    return {vreinterpretq_u32_u8(vld1q_u8(copy))};
}
FORGE_INLINE U32 lane_index() {
    const std::uint32_t lanes[4] = {0, 1, 2, 3};
    return {vld1q_u32(lanes)};
}
FORGE_INLINE U32 operator+(U32 a, U32 b) { return {vaddq_u32(a.v, b.v)}; }
FORGE_INLINE U32 operator&(U32 a, U32 b) { return {vandq_u32(a.v, b.v)}; }
FORGE_INLINE U32 operator|(U32 a, U32 b) { return {vorrq_u32(a.v, b.v)}; }
template <int n>
FORGE_INLINE U32 shift_right(U32 a) {
    if constexpr (n == 0)
        return a;
    else
        return {vshrq_n_u32(a.v, n)};
}
template <int n>
FORGE_INLINE U32 shift_left(U32 a) {
    return {vshlq_n_u32(a.v, n)};
}
FORGE_INLINE U32 operator>>(U32 a, U32 n) { return {vshlq_u32(a.v, vnegq_s32(vreinterpretq_s32_u32(n.v)))}; }
FORGE_INLINE F32 to_float(U32 a) { return {vcvtq_f32_u32(a.v)}; }
FORGE_INLINE F32 as_float(U32 a) { return {vreinterpretq_f32_u32(a.v)}; }
FORGE_INLINE uint32x4_t four_bytes(const std::uint8_t* p, int n) {
    std::uint32_t copy[4] = {};
    for (int i = 0; i < (n < 4 ? n : 4); ++i) copy[i] = p[i];
    return vld1q_u32(copy);
}
FORGE_INLINE U32 load_bytes(const std::uint8_t* p, int n) { return {four_bytes(p, n)}; }
FORGE_INLINE F32 load_i8(const std::uint8_t* p, int n) {
    return {vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_u32(vshlq_n_u32(four_bytes(p, n), 24)), 24))};
}
FORGE_INLINE F32 broadcast(const f16* p) { return from_f16_bits(vdup_n_u16(p->bits)); }

struct Table {
    uint8x16x4_t bytes;
};
FORGE_INLINE Table load_table(const float* sixteen) {
    Table t;
    for (int i = 0; i < 4; ++i) t.bytes.val[i] = vreinterpretq_u8_f32(vld1q_f32(sixteen + 4 * i));
    return t;
}
FORGE_INLINE F32 lookup(const Table& t, U32 index) {  // byte addresses 4 * index + 0..3
    const uint32x4_t at =
        vmlaq_n_u32(vdupq_n_u32(0x03020100u), vandq_u32(index.v, vdupq_n_u32(15)), 0x04040404u);
    return {vreinterpretq_f32_u8(vqtbl4q_u8(t.bytes, vreinterpretq_u8_u32(at)))};
}
FORGE_INLINE F32 permute(F32 x, U32 index) {
    const uint32x4_t at = vmlaq_n_u32(vdupq_n_u32(0x03020100u), index.v, 0x04040404u);
    return {vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(x.v), vreinterpretq_u8_u32(at)))};
}
FORGE_INLINE void unzip(F32 a, F32 b, F32& even, F32& odd) {
    even = {vuzp1q_f32(a.v, b.v)};
    odd = {vuzp2q_f32(a.v, b.v)};
}

// out[j][i] = in[i][j] for 4 x 4 words of 32 bits; strides in words.
FORGE_INLINE void transpose(const float* in, std::ptrdiff_t in_stride, float* out,
                            std::ptrdiff_t out_stride) {
    const float32x4x2_t a = vtrnq_f32(vld1q_f32(in), vld1q_f32(in + in_stride));
    const float32x4x2_t b = vtrnq_f32(vld1q_f32(in + 2 * in_stride), vld1q_f32(in + 3 * in_stride));
    vst1q_f32(out, vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0])));
    vst1q_f32(out + out_stride, vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1])));
    vst1q_f32(out + 2 * out_stride, vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0])));
    vst1q_f32(out + 3 * out_stride, vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1])));
}

}  // namespace forge::simd_neon
