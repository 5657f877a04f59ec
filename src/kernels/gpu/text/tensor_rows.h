// Products of up to eight rows of 16-bit activations with 4-bit integer codes on the tensor cores of NVIDIA GPUs, where
// decoding and multiplying in f32 would be bound by instructions. CUDA only.
//
// The matrix is the first operand, 16 of its rows by 16 columns: lane (g, t) = (lane / 4, lane % 4) holds a unit of rows
// g and g + 8, another one than its neighbours t. x is the second operand, which has eight columns: column 2t + m has row
// m of x where it meets the units of lanes t, and zeros elsewhere. So a lane finds the sums of its own units, unmixed, and
// applies their scales to them in f32. Codes become T exactly, products are exact, sums are f32 as the hardware adds them.
// The order depends on the matrix's shape alone.
namespace fk {

// Codes 0 and 4 of a word's low 16 bits' nibble: put into the mantissa of 128 (bf16) or 1024 (f16), and that and the zero
// point taken off again; all three steps are exact.
template <class T, int ZERO> struct CodePairs;
template <int ZERO> struct CodePairs<Bf16, ZERO> {
    static FK_FN uint two(uint q) {
        uint r;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(and_or(q, 0x000f000fu, 0x43004300u)), "r"(0x3f803f80u), "r"(0xc300c300u + ZERO * 0x10001u));
        return r;
    }
};
template <int ZERO> struct CodePairs<F16, ZERO> {
    static FK_FN uint two(uint q) {
        uint r;
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(and_or(q, 0x000f000fu, 0x64006400u)), "r"(0x3c003c00u), "r"(0xe400e400u + ZERO * 0x10001u));
        return r;
    }
};

// 16 bytes of shared memory where `there`; else r keeps what it has.
FK_FN void load_where(bool there, uint from, uint* r) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %4, 0; @p ld.shared.v4.b32 {%0, %1, %2, %3}, [%5];}"
                 : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3]) : "r"((uint)there), "r"(from));
}

// Units that a simdgroup has in flight: U of each of the 16 rows of RT tiles; KS simdgroups take turns along the rows. For
// EPI_ACT every second tile is of the second matrix.
template <class T, class F, int K, int N, int M, int RT, int U, int KS, int EPI, int STAGED> struct CodeTiles {
    typedef typename TensorOf<T>::X X;
    enum { SPAN = 4 * U * KS, SLOTS = (F::UNITS + 31) / 32 * 32, RS = EPI == EPI_ACT ? 8 * RT : 16 * RT, Q = U * RT * 2 * F::Q, A = U * RT * 2 * F::A,
           P = (M + 1) / 2, CHAINS = 2, SUMS = RT * P * 4, EVEN = F::UNITS % SPAN == 0 };

    static FK_FN void load(const Planes& w1, const Planes& w2, uint strip, uint first, uint* q, uint* a, Ids id) {
        FK_UNROLL for (uint u = 0; u < U; ++u) {
            // Past a row's end: what is there is multiplied by zeros.
            const uint unit = EVEN ? first + 4 * u + id.lane % 4 : min(first + 4 * u + id.lane % 4, (uint)(F::UNITS - 1));
            FK_UNROLL for (uint r = 0; r < RT * 2; ++r) {
                const uint tile = EPI == EPI_ACT ? r / 4 : r / 2, row = min(strip * RS + tile * 16 + r % 2 * 8 + id.lane / 4, (uint)(N - 1));
                F::load(EPI == EPI_ACT && r / 2 % 2 ? w2 : w1, row, unit, q + (u * RT * 2 + r) * F::Q, a + (u * RT * 2 + r) * F::A);
            }
        }
    }
    // b: registers for x; zeros, and zeros where this leaves them. acc [tile][pair of rows of x][4]. sums: of x in each unit.
    static FK_FN void use(const typename T::S* x, uint xs, const float* sums, uint rows, uint first, const uint* q, const uint* a, uint (&b)[P][16], float* acc, Ids id) {
        const bool mine = id.lane % 4 == id.lane / 8;
        FK_UNROLL for (uint u = 0; u < U; ++u) {
            if (!EVEN && first + 4 * u >= F::UNITS) break;   // the same for a simdgroup
            const uint unit = first + 4 * u + id.lane % 4;
            FK_UNROLL for (uint p = 0; p < P; ++p) {
                const uint m = 2 * p + id.lane / 4 % 2;
                const bool there = mine && m < M;
                if (STAGED) {
                    const uint at = xs + (m * (SLOTS * 4) + (unit / 32 * 4) * 32 + unit % 32) * 16;
                    FK_UNROLL for (uint j = 0; j < 4; ++j) load_where(there, at + j * 512, b[p] + 4 * j);
                } else {
                    FK_UNROLL for (uint j = 0; j < 4; ++j) {
                        uint4 v = make_u4(0u, 0u, 0u, 0u);
                        if (there && (EVEN || unit < F::UNITS)) v = far_apart(((const uint4*)(x + (ulong)min(m, rows - 1u) * K))[unit * 4 + j]);
                        b[p][4 * j] = v.x;
                        b[p][4 * j + 1] = v.y;
                        b[p][4 * j + 2] = v.z;
                        b[p][4 * j + 3] = v.w;
                    }
                }
            }
            FK_UNROLL for (uint r = 0; r < RT; ++r) {
                const uint *low = q + (u * RT + r) * 2 * F::Q, *high = low + F::Q, *a_low = a + (u * RT + r) * 2 * F::A, *a_high = a_low + F::A;
                float c[CHAINS][P][4];   // sums that do not wait for each other
                FK_UNROLL for (uint i = 0; i < CHAINS * P * 4; ++i) c[i / (P * 4)][i / 4 % P][i % 4] = 0.0f;
                FK_UNROLL for (uint h = 0; h < 8; ++h) {
                    typedef CodePairs<T, F::ZERO_POINT> Codes;
                    const uint l = low[h / 2] >> (h % 2 * 8), o = high[h / 2] >> (h % 2 * 8);
                    const uint w[4] = {Codes::two(l), Codes::two(o), Codes::two(l >> 4), Codes::two(o >> 4)};
                    FK_UNROLL for (uint p = 0; p < P; ++p) X::mma(c[h % CHAINS][p], w, b[p] + 2 * h);
                }
                const float s[2] = {F::scale(a_low, 0), F::scale(a_high, 0)};
                FK_UNROLL for (uint p = 0; p < P; ++p)
                    FK_UNROLL for (uint i = 0; i < 4; ++i) {
                        const uint m = 2 * p + i % 2;
                        if (m >= M) continue;
                        float &to = acc[(r * P + p) * 4 + i], all = c[0][p][i];
                        FK_UNROLL for (uint k = 1; k < CHAINS; ++k) all += c[k][p][i];
                        to = fma(s[i / 2], all, to);
                        if (F::OFFSETS && (EVEN || unit < F::UNITS)) to = fma(F::offset(i / 2 ? a_high : a_low, 0), sums[m * SLOTS + unit], to);
                    }
            }
        }
    }
};

// As matvec() in matvec.h, whose arguments these are; RT: tiles of 16 rows of a strip (EPI_ACT: even), U: units a lane and
// row in flight, KS: simdgroups a strip. red: 8 floats, and NT / 32 * M * RT * 16. sums: M * SLOTS floats, for formats with offsets.
template <class T, class F, int K, int N, int M, int RT, int U, int KS, int PF, int STAGED, int KIND, int HEAD, int EPI, int ACT, int TAPS, int R, int BIAS, int F32_OUT, int OUT, int ONCE, int NT>
FK_FN void tensor_rows(const MatvecInputs<T>& in, const Planes& w1, const Planes& w2, uint4* xs, float* red, float* sums, Ids id) {
    typedef CodeTiles<T, F, K, N, M, RT, U, KS, EPI, STAGED> G;
    enum { SPAN = G::SPAN, ITERS = (F::UNITS + SPAN - 1) / SPAN, SLOTS = G::SLOTS, PER = NT / 32 / KS, RS = G::RS, STRIPS = (N + RS - 1) / RS, P = G::P, W = RT * 16,
           TAP = EPI == EPI_CONV ? TAPS : 1 };
    typedef Stage<T, K, M, 4, SLOTS, KIND, NT, 1> Staging;
    const uint stride = id.n_x * PER, k0 = id.sg % KS * (4 * U), own = id.sg % KS * 32 + id.lane;   // own: this thread's place in its strip
    uint q[G::Q], a[G::A], strip = id.tg_x * PER + id.sg / KS;
    if (strip < STRIPS) G::load(w1, w2, strip, k0, q, a, id);
    float early_w[Staging::W];
    if (STAGED) Staging::early(in.norm_w, early_w, id);
    const uint rows = M == 1 ? 1u : (uint)in.step[OUT ? STEP_OUTPUTS : STEP_ROWS];
    ConvChannel<T, N, TAP, R> channel;
    if (EPI == EPI_CONV && own < RS && strip * RS + own < N && rows > 0u) {
        channel.begin(in.conv_w, strip * RS + own);
        channel.enter(in.step, in.conv_state, 0, strip * RS + own);
    }
    FK_WAIT_INPUTS();
    if (rows == 0u) return;
    // Thread `own` of a strip writes result `own`, and others where there are more results than threads.
    float residual = 0.0f;
    if (EPI == EPI_ADD && own < rows * RS && strip * RS + own % RS < N) residual = T::get(in.residual[(ulong)(own / RS) * N + strip * RS + own % RS]);
    if (STAGED && KIND == PRO_GATED) stage_gated<T, K, (KIND == PRO_GATED ? HEAD : K), M, 4, SLOTS, NT, 1>(in.x, in.z, in.norm_w, rows, in.eps, xs, id);
    else if (STAGED) Staging::run(in.x, in.norm_w, early_w, rows, in.eps, xs, red, id);
    if (F::OFFSETS) {
        for (uint i = id.tid; i < M * SLOTS; i += NT) {
            float total = 0.0f;
            const uint m = i / SLOTS, unit = i % SLOTS;
            FK_UNROLL for (uint j = 0; j < 4; ++j) {
                float f[8];
                FK_UNROLL for (uint e = 0; e < 8; ++e) f[e] = 0.0f;
                if (STAGED) T::unpack(xs[m * (SLOTS * 4) + (unit / 32 * 4 + j) * 32 + unit % 32], f);
                else if (unit < F::UNITS) T::unpack(far_apart(((const uint4*)(in.x + (ulong)min(m, rows - 1u) * K))[unit * 4 + j]), f);
                FK_UNROLL for (uint e = 0; e < 8; ++e) total += f[e];
            }
            sums[i] = total;
        }
        FK_BARRIER();
    }
    const uint staged = shared_address(xs);
    uint b[P][16];
    FK_UNROLL for (uint i = 0; i < P * 16; ++i) b[i / 16][i % 16] = 0u;
    for (uint first = id.tg_x * PER; first < STRIPS; first += stride, strip += stride) {   // the same for a threadgroup
        const bool live = strip < STRIPS, again = first != id.tg_x * PER;
        if (EPI == EPI_ADD && again && own < rows * RS && strip * RS + own % RS < N) residual = T::get(in.residual[(ulong)(own / RS) * N + strip * RS + own % RS]);
        float acc[G::SUMS];
        FK_UNROLL for (uint i = 0; i < G::SUMS; ++i) acc[i] = 0.0f;
        FK_NO_UNROLL for (uint it = 0; it < ITERS; ++it) {
            const bool last = it + 1 == ITERS;
            const uint next = last ? strip + stride : strip, at = last ? k0 : k0 + (it + 1) * SPAN;
            const bool more = (!last || !ONCE) && next < STRIPS;
            if (PF && ITERS * (ONCE ? 1 : 2) > 1) {
                uint q2[G::Q], a2[G::A];
                if (more) G::load(w1, w2, next, at, q2, a2, id);
                if (live) G::use(in.x, staged, sums, rows, k0 + it * SPAN, q, a, b, acc, id);
                FK_UNROLL for (uint i = 0; i < G::Q; ++i) q[i] = q2[i];
                FK_UNROLL for (uint i = 0; i < G::A; ++i) a[i] = a2[i];
            } else {
                if (live) G::use(in.x, staged, sums, rows, k0 + it * SPAN, q, a, b, acc, id);
                if (more) G::load(w1, w2, next, at, q, a, id);
            }
        }
        FK_UNROLL for (uint i = 0; i < G::SUMS; ++i) {
            if (2 * (i / 4 % P) + i % 2 >= M) continue;
            acc[i] += simd_shuffle_xor(acc[i], (ushort)1);
            acc[i] += simd_shuffle_xor(acc[i], (ushort)2);
        }
        // red [simdgroup][row of x][row of the strip's tiles]
        FK_BARRIER();   // red has been read: by the norm, or by the strip before
        FK_UNROLL for (uint i = 0; i < G::SUMS; ++i) {
            const uint m = 2 * (i / 4 % P) + i % 2;
            if (m < M && id.lane % 4 == i % 4 / 2) red[(id.sg * M + m) * W + i / (4 * P) * 16 + i / 2 % 2 * 8 + id.lane / 4] = acc[i];
        }
        FK_BARRIER();
        if (!live) continue;
        const float* from = red + id.sg / KS * (KS * M * W);
        const auto total = [&](uint m, uint w) {
            float t = 0.0f;
            FK_UNROLL for (uint s = 0; s < KS; ++s) t += from[(s * M + m) * W + w];
            return t;
        };
        if (EPI == EPI_CONV) {   // a thread takes its channel through all rows
            const uint n = strip * RS + own;
            if (own >= RS || n >= N) continue;
            if (again) channel.begin(in.conv_w, n);
            FK_UNROLL for (uint m = 0; m < M; ++m)
                if (m < rows) {
                    if (M > 1 || again) channel.enter(in.step, in.conv_state, m, n);
                    in.y[(ulong)m * N + n] = channel.push(rounded<T>(total(m, own) * in.global1));
                }
            channel.end(in.conv_state, n);
            continue;
        }
        for (uint i = own; i < rows * RS; i += KS * 32) {
            const uint m = i / RS, o = i % RS, n = strip * RS + o;
            if (n >= N) continue;
            const ulong at = (ulong)m * N + n;
            if (EPI == EPI_ADD && i != own) residual = T::get(in.residual[at]);
            const uint w = EPI == EPI_ACT ? o / 16 * 32 + o % 16 : o;
            const float v = total(m, w) * in.global1, up = EPI == EPI_ACT ? total(m, EPI == EPI_ACT ? w + 16 : w) * in.global2 : 0.0f;
            const float f = finished<T, EPI, ACT, BIAS, F32_OUT>(v, up, residual, in.bias1, in.bias2, n, in.softcap);
            if (F32_OUT) in.y32[at] = f;
            else in.y[at] = T::put(f);
        }
    }
}

}  // namespace fk
