// Weight formats as planes (quant/weight.h): how a unit of E elements is loaded, decoded and multiplied.
// A unit's words are loaded first and used later, so that many loads are in flight.
namespace fk {

struct Planes {
    DEVICE const uchar* codes;
    DEVICE const uchar* high;
    DEVICE const uchar* scales;
    DEVICE const uchar* offsets;
    DEVICE const uchar* super_scales;
    DEVICE const uchar* super_mins;
};

// W words at a byte address that is a multiple of the largest power of two (at most 16) in 4 * W.
template <int W> FK_FN void load_words(DEVICE const uchar* p, THREAD uint* q) {
    if (W % 4 == 0) {
        FK_UNROLL for (uint i = 0; i < W / 4; ++i) {
            const uint4 v = stream16((DEVICE const uint4*)p + i);
            q[4 * i] = v.x;
            q[4 * i + 1] = v.y;
            q[4 * i + 2] = v.z;
            q[4 * i + 3] = v.w;
        }
    } else if (W % 2 == 0) {
        FK_UNROLL for (uint i = 0; i < W / 2; ++i) {
            const uint2 v = stream8((DEVICE const uint2*)p + i);
            q[2 * i] = v.x;
            q[2 * i + 1] = v.y;
        }
    } else {
        FK_UNROLL for (uint i = 0; i < W; ++i) q[i] = stream4((DEVICE const uint*)p + i);
    }
}

// ---- dense: E = 8 elements of W. ALIGNED: rows begin at multiples of 16 bytes and K is a multiple of 8.
template <class W, int K, int STRIDE, int ALIGNED> struct Dense {
    enum { E = 8, UNITS = (K + 7) / 8, Q = W::BYTES * 2, A = 1, SUMS = 0 };
    static FK_FN void load(THREAD const Planes& p, uint row, uint u, THREAD uint* q, THREAD uint* a) {
        DEVICE const uchar* at = p.codes + (ulong)row * STRIDE;
        a[0] = 0;
        if (ALIGNED) {
            load_words<Q>(at + (ulong)u * (8 * W::BYTES), q);
        } else {
            DEVICE const typename W::S* e = (DEVICE const typename W::S*)at;
            float f[8];
            FK_UNROLL for (uint j = 0; j < 8; ++j) f[j] = u * 8 + j < K ? W::get(e[u * 8 + j]) : 0.0f;
            FK_UNROLL for (uint c = 0; c < 8 / W::N; ++c) {
                const uint4 v = W::pack(f + c * W::N);
                q[4 * c] = v.x;
                q[4 * c + 1] = v.y;
                q[4 * c + 2] = v.z;
                q[4 * c + 3] = v.w;
            }
        }
    }
    static FK_FN void values(THREAD const Planes&, uint, uint, THREAD const uint* q, THREAD const uint*, THREAD float* f) {
        FK_UNROLL for (uint c = 0; c < 8 / W::N; ++c) W::unpack(make_u4(q[4 * c], q[4 * c + 1], q[4 * c + 2], q[4 * c + 3]), f + c * W::N);
    }
    static FK_FN void sums(THREAD const float*, THREAD float*) {}
    static FK_FN float dot(float acc, THREAD const uint* q, THREAD const uint*, uint, THREAD const float* x, THREAD const float*) {
        float w[8];
        FK_UNROLL for (uint c = 0; c < 8 / W::N; ++c) W::unpack(make_u4(q[4 * c], q[4 * c + 1], q[4 * c + 2], q[4 * c + 3]), w + c * W::N);
        FK_UNROLL for (uint j = 0; j < 8; ++j) acc = fma(w[j], x[j], acc);
        return acc;
    }
};

// ---- quantised: E = 32 elements
enum { MAP_INTEGER = 1, MAP_IQ4NL, MAP_E2M1, MAP_E4M3 };                      // CodeMap
enum { SCALE_F16 = 1, SCALE_BF16, SCALE_F32, SCALE_SUB_U8, SCALE_SUB_I8, SCALE_SUB_U4, SCALE_E8M0, SCALE_UE4M3 };   // ScaleKind
enum { OFFSET_NONE, OFFSET_BIAS, OFFSET_SUB_U8, OFFSET_SUB_U4 };              // OffsetKind
enum { PACK_STREAM = 1, PACK_4_1, PACK_4_2, PACK_2_1 };                       // Packing

FK_FN float e4m3(uint code) {
    const uint e = (code >> 3) & 15u, m = code & 7u;
    float v = e == 0u ? (float)m * 0.001953125f : as_f32(((e + 120u) << 23) | (m << 20));
    if ((code & 0x7fu) == 0x7fu) v = as_f32(0x7fc00000u);
    return (code & 0x80u) ? -v : v;
}
FK_FN float e2m1(uint code) {
    const uint e = (code >> 1) & 3u, m = code & 1u;
    const float v = e == 0u ? 0.5f * (float)m : as_f32(((e + 126u) << 23) | (m << 22));
    return (code & 8u) ? -v : v;
}
// -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113, a byte each
FK_FN float iq4nl(uint code) {
    const uint lower = (code & 4u) ? 0xf6eaddcfu : 0xbfad9881u, upper = (code & 4u) ? 0x71594535u : 0x26190d01u;
    const uint word = (code & 8u) ? upper : lower;
    return (float)(int)(((word >> (8u * (code & 3u))) & 255u) ^ 128u) - 128.0f;
}
// Four bits in a float's mantissa: the code costs one instruction, and the sums of x take 256 and 16 off again.
FK_FN float dot8_fast(uint q, THREAD const float* x, float acc) {
    const uint a = q << 15, b = q << 7, c = q >> 1, d = q >> 9;
    acc = fma(as_f32(and_or(a, 0x00078000u, 0x43800000u)), x[0], acc);
    acc = fma(as_f32(and_or(a, 0x00780000u, 0x41800000u)), x[1], acc);
    acc = fma(as_f32(and_or(b, 0x00078000u, 0x43800000u)), x[2], acc);
    acc = fma(as_f32(and_or(b, 0x00780000u, 0x41800000u)), x[3], acc);
    acc = fma(as_f32(and_or(c, 0x00078000u, 0x43800000u)), x[4], acc);
    acc = fma(as_f32(and_or(c, 0x00780000u, 0x41800000u)), x[5], acc);
    acc = fma(as_f32(and_or(d, 0x00078000u, 0x43800000u)), x[6], acc);
    acc = fma(as_f32(and_or(d, 0x00780000u, 0x41800000u)), x[7], acc);
    return acc;
}

// CS, HS, SS, OS, XS: bytes from a row to the next in the planes of codes, high bits, scales, offsets and supers.
// FAST: the mantissa form of 4-bit integer codes (groups of 32 and more).
template <int MAP, int PACK, int BITS, int GROUP, int ZERO, int SCALE, int OFFSET, int K, int CS, int HS, int SS, int OS, int XS, int FAST> struct Quant {
    enum {
        E = 32,
        UNITS = K / 32,
        LOW = PACK == PACK_STREAM ? BITS : PACK == PACK_2_1 ? 2 : 4,   // words of the low bits, and bits of a code there
        HIGH = PACK == PACK_STREAM ? 0 : PACK == PACK_2_1 ? 8 : 4,     // words of the high bits
        Q = LOW + HIGH,
        G = GROUP < 32 ? 32 / GROUP : 1,                               // groups of a unit
        GE = GROUP < 32 ? GROUP : 32,                                  // elements of a group in a unit
        A = (SCALE == SCALE_SUB_U8 || SCALE == SCALE_SUB_I8 || SCALE == SCALE_SUB_U4 ? 1 : 0) + 2 * G,
        OFFSETS = OFFSET != OFFSET_NONE,
        ZERO_POINT = ZERO,
        MAGIC = FAST && MAP == MAP_INTEGER && PACK == PACK_STREAM && BITS == 4 && G == 1,
        SUMS = MAGIC ? 2 : OFFSET != OFFSET_NONE ? G : 0               // values that sums() makes of a unit of x
    };
    static FK_FN uint group_of(uint u, uint g) { return GROUP < 32 ? u * G + g : u * 32 / GROUP; }

    // a: [g] the scale's bits, [G + g] the offset's, [2 * G] the supers of a block of 256.
    static FK_FN void load(THREAD const Planes& p, uint row, uint u, THREAD uint* q, THREAD uint* a) {
        load_words<LOW>(p.codes + (ulong)row * CS + (ulong)u * (4 * LOW), q);
        if (PACK == PACK_4_1) load_words<4>(p.high + (ulong)row * HS + (ulong)(u / 4) * 16, q + LOW);
        if (PACK == PACK_4_2) load_words<4>(p.high + (ulong)row * HS + (ulong)(u / 8) * 64 + (u % 4) * 16, q + LOW);
        if (PACK == PACK_2_1) load_words<8>(p.high + (ulong)row * HS + (ulong)(u / 8) * 32, q + LOW);
        FK_UNROLL for (uint g = 0; g < G; ++g) {
            const uint i = group_of(u, g);
            DEVICE const uchar* s = p.scales + (ulong)row * SS;
            if (SCALE == SCALE_F16 || SCALE == SCALE_BF16) a[g] = stream2((DEVICE const ushort*)s + i);
            else if (SCALE == SCALE_F32) a[g] = stream4((DEVICE const uint*)s + i);
            else a[g] = stream1(s + i);
            a[G + g] = 0;
            if (OFFSET == OFFSET_BIAS) {
                DEVICE const uchar* o = p.offsets + (ulong)row * OS;
                if (SCALE == SCALE_F32) a[G + g] = stream4((DEVICE const uint*)o + i);
                else a[G + g] = stream2((DEVICE const ushort*)o + i);
            }
            if (OFFSET == OFFSET_SUB_U8) a[G + g] = stream1(p.offsets + (ulong)row * OS + i);
        }
        if (A > 2 * G) {
            a[A - 1] = stream2((DEVICE const ushort*)(p.super_scales + (ulong)row * XS) + u / 8);
            if (OFFSET != OFFSET_NONE) a[A - 1] |= stream2((DEVICE const ushort*)(p.super_mins + (ulong)row * XS) + u / 8) << 16;
        }
    }
    static FK_FN float scale(THREAD const uint* a, uint g) {
        const uint s = a[g];
        if (SCALE == SCALE_F16) return f16_to_f32((ushort)s);
        if (SCALE == SCALE_BF16) return as_f32(s << 16);
        if (SCALE == SCALE_F32) return as_f32(s);
        if (SCALE == SCALE_SUB_U8) return f16_to_f32((ushort)(a[A - 1] & 0xffffu)) * (float)s;
        if (SCALE == SCALE_SUB_I8) return f16_to_f32((ushort)(a[A - 1] & 0xffffu)) * ((float)(s ^ 128u) - 128.0f);
        if (SCALE == SCALE_SUB_U4) return f16_to_f32((ushort)(a[A - 1] & 0xffffu)) * (float)(s & 15u);
        if (SCALE == SCALE_E8M0) return as_f32(s == 0u ? 0x00400000u : s << 23);
        if (s == 0x7fu) return 0.0f;
        return (s & 0x7fu) == 0x7fu ? 480.0f : e4m3(s & 0x7fu);
    }
    static FK_FN float offset(THREAD const uint* a, uint g) {
        const uint o = a[G + g];
        if (OFFSET == OFFSET_BIAS) return SCALE == SCALE_F16 ? f16_to_f32((ushort)o) : SCALE == SCALE_BF16 ? as_f32(o << 16) : as_f32(o);
        if (OFFSET == OFFSET_SUB_U8) return -(f16_to_f32((ushort)(a[A - 1] >> 16)) * (float)o);
        if (OFFSET == OFFSET_SUB_U4) return -(f16_to_f32((ushort)(a[A - 1] >> 16)) * (float)(a[g] >> 4));
        return 0.0f;
    }
    // Bits of element e of unit u; e is a constant once loops are unrolled.
    static FK_FN uint code(THREAD const uint* q, uint u, uint e) {
        const uint bit = e * LOW, w = bit / 32, s = bit % 32;
        uint c = q[w] >> s;
        if (s + LOW > 32) c |= q[w + 1 < LOW ? w + 1 : w] << (32 - s);
        c &= (1u << LOW) - 1u;
        if (PACK == PACK_4_1) c |= ((q[LOW + e % 4] >> (8 * (u % 4) + e / 4)) & 1u) << 4;
        if (PACK == PACK_4_2) {
            const uint byte = 2 * (e / 4) + (u % 8) / 4;
            c |= ((q[LOW + (e / 4) / 2] >> (8 * (byte % 4) + 2 * (e % 4))) & 3u) << 4;
        }
        if (PACK == PACK_2_1) c |= ((q[LOW + e % 8] >> (4 * (u % 8) + e / 8)) & 1u) << 2;
        return c;
    }
    // What element e of a unit means, but for its scale and offset. Codes of four and eight bits become floats
    // by being put into a mantissa, exactly.
    static FK_FN float element(THREAD const uint* q, uint u, uint e) {
        if (MAP == MAP_INTEGER && PACK == PACK_STREAM && BITS == 4) {
            const uint w = q[e / 8], at = e % 8 / 2, a = at == 0 ? w << 15 : at == 1 ? w << 7 : at == 2 ? w >> 1 : w >> 9;
            return e % 2 == 0 ? as_f32(and_or(a, 0x00078000u, 0x43800000u)) - (float)(256 + ZERO) : as_f32(and_or(a, 0x00780000u, 0x41800000u)) - (float)(16 + ZERO);
        }
        if (MAP == MAP_INTEGER && PACK == PACK_STREAM && BITS == 8) return as_f32(byte_or(q[e / 4], e % 4, 0x4b000000u)) - (float)(8388608 + ZERO);
        return value(code(q, u, e));
    }
    static FK_FN float value(uint c) {
        if (MAP == MAP_INTEGER) return (float)c - (float)ZERO;
        if (MAP == MAP_IQ4NL) return iq4nl(c);
        if (MAP == MAP_E2M1) return e2m1(c);
        return e4m3(c);
    }
    // The unit's elements exactly as the format defines them (but for the weight's global scale).
    static FK_FN void values(THREAD const Planes&, uint, uint u, THREAD const uint* q, THREAD const uint* a, THREAD float* f) {
        FK_UNROLL for (uint g = 0; g < G; ++g) {
            const float s = scale(a, g), o = offset(a, g);
            FK_UNROLL for (uint j = 0; j < GE; ++j) {
                const float v = s * element(q, u, g * GE + j);
                f[g * GE + j] = OFFSET == OFFSET_NONE ? v : v + o;
            }
        }
    }
    static FK_FN void sums(THREAD const float* x, THREAD float* c) {
        if (MAGIC) {
            float even = 0.0f, odd = 0.0f;
            FK_UNROLL for (uint j = 0; j < 32; j += 2) {
                even += x[j];
                odd += x[j + 1];
            }
            c[0] = fma((float)(256 + ZERO), even, (float)(16 + ZERO) * odd);
            c[1] = even + odd;
        } else if (OFFSET != OFFSET_NONE) {
            FK_UNROLL for (uint g = 0; g < G; ++g) {
                c[g] = 0.0f;
                FK_UNROLL for (uint j = 0; j < GE; ++j) c[g] += x[g * GE + j];
            }
        }
    }
    static FK_FN float dot(float acc, THREAD const uint* q, THREAD const uint* a, uint u, THREAD const float* x, THREAD const float* c) {
        if (MAGIC) {
            const float s = dot8_fast(q[3 % LOW], x + 24, dot8_fast(q[2 % LOW], x + 16, dot8_fast(q[1 % LOW], x + 8, dot8_fast(q[0], x, 0.0f))));
            acc = fma(scale(a, 0), s - c[0], acc);
            if (OFFSET != OFFSET_NONE) acc = fma(offset(a, 0), c[SUMS > 1 ? 1 : 0], acc);
            return acc;
        }
        FK_UNROLL for (uint g = 0; g < G; ++g) {
            float s = 0.0f;
            FK_UNROLL for (uint j = 0; j < GE; ++j) s = fma(element(q, u, g * GE + j), x[g * GE + j], s);
            acc = fma(scale(a, g), s, acc);
            if (OFFSET != OFFSET_NONE) acc = fma(offset(a, g), c[g], acc);
        }
        return acc;
    }
};

// y = table[token], times a scale. A thread takes a unit of row tg_y.
template <class T, class F, int K, int R, int NT>
FK_FN void embed(DEVICE const int* step, THREAD const Planes& p, DEVICE typename T::S* y, float global, float scale, Ids id) {
    FK_WAIT_INPUTS();
    const uint u = id.tg_x * NT + id.tid;
    if (u >= F::UNITS || (int)id.tg_y >= step[STEP_ROWS]) return;
    const uint row = (uint)step_token<R>(step, id.tg_y);
    uint q[F::Q], a[F::A];
    float f[F::E];
    F::load(p, row, u, q, a);
    F::values(p, row, u, q, a, f);
    const float factor = rounded<T>(scale);
    FK_UNROLL for (uint c = 0; c < F::E / T::N; ++c) {
        FK_UNROLL for (uint j = 0; j < T::N; ++j) {
            const float v = f[c * T::N + j] * global;
            f[c * T::N + j] = scale == 1.0f ? v : rounded<T>(v) * factor;
        }
        if ((u * F::E + c * T::N) < K) store_chunk<T, K>(y + (ulong)id.tg_y * K, u * (F::E / T::N) + c, f + c * T::N);
    }
}

}  // namespace fk
