// Products of up to M rows with a matrix: every simdgroup owns strips of output rows, lanes stride along a row in
// units, dequantisation is in the loop, one reduction ends it. A row's sums do not depend on the other rows.
namespace fk {

enum { EPI_NONE, EPI_ADD, EPI_ACT, EPI_CONV };

// What a product's sum goes through on its way out: bias, soft cap (f32 results only), residual or activation, each
// rounded to T where the reference rounds. `up`: the sum of the second matrix (EPI_ACT).
template <class T, int EPI, int ACT, int BIAS, int F32_OUT>
FK_FN float finished(float v, float up, float residual, DEVICE const float* bias1, DEVICE const float* bias2, uint n, float softcap) {
    if (BIAS) v += bias1[n];
    if (F32_OUT) return softcap != 0.0f ? softcap * tanh(v / softcap) : v;
    if (EPI == EPI_ADD) v = residual + rounded<T>(v);
    if (EPI == EPI_ACT) {
        if (BIAS) up += bias2[n];
        v = rounded<T>(activate<ACT>(rounded<T>(v))) * rounded<T>(up);
    }
    return v;
}
// What happens to x first: one of the norms (types.h), nothing, or a norm of each head and a gate (delta.h).
enum { PRO_NONE = 3, PRO_GATED = 4 };

// Where x is while the product runs. Staged: in threadgroup memory as T, chunks of 16 bytes permuted so that lanes
// read neighbouring chunks; C chunks make a unit.
template <int C> FK_FN uint chunk_slot(uint chunk) {
    const uint u = chunk / C, c = chunk % C;
    return ((u >> 5) * C + c) * 32 + (u & 31u);
}

// Elements 0 and 4, 1 and 5, 2 and 6, 3 and 7 of a chunk of 16-bit elements side by side: as tensor_rows.h finds codes.
FK_FN uint4 far_apart(uint4 v) {
    return make_u4((v.x & 0xffffu) | (v.z << 16), (v.x >> 16) | (v.z & 0xffff0000u), (v.y & 0xffffu) | (v.w << 16), (v.y >> 16) | (v.w & 0xffff0000u));
}

// Rows of x to threadgroup memory, normed when KIND is below 3. A row's chunks and (where they are few) the norm's
// weights are a thread's registers: the weights are there before the launch before has ended. FAR: chunks are far_apart().
template <class T, int K, int M, int C, int SLOTS, int KIND, int NT, int FAR> struct Stage {
    typedef NormShare<T, K, NT> Share;
    enum { WHOLE = K % T::N == 0, NORM = KIND < 3, EARLY = NORM && WHOLE && Share::OWN <= 2, W = EARLY ? Share::OWN * T::N : 1 };
    static FK_FN uint4 arranged(uint4 v) { return FAR ? far_apart(v) : v; }
    static FK_FN void early(DEVICE const float* w, THREAD float* early_w, Ids id) {
        if (!EARLY) return;
        FK_UNROLL for (uint i = 0; i < (EARLY ? Share::OWN : 0); ++i) {
            const uint c = id.tid + i * Share::LANES;
            if (id.tid >= Share::LANES || c >= Share::CHUNKS) continue;
            FK_UNROLL for (uint j = 0; j < T::N; ++j) early_w[(i * T::N + j) % W] = w[c * T::N + j];
        }
    }
    static FK_FN void run(DEVICE const typename T::S* x, DEVICE const float* w, THREAD const float* early_w, uint rows, float eps, THREADGROUP uint4* xs, THREADGROUP float* red, Ids id) {
        FK_NO_UNROLL for (uint m = 0; m < M; ++m) {
            DEVICE const typename T::S* row = x + (ulong)min(m, rows - 1u) * K;
            THREADGROUP uint4* out = xs + (ulong)m * (SLOTS * C);
            for (uint c = Share::CHUNKS + id.tid; c < (uint)(SLOTS * C); c += NT) out[chunk_slot<C>(c)] = make_u4(0u, 0u, 0u, 0u);   // units past the end
            if (!NORM && WHOLE) {
                for (uint c = id.tid; c < Share::CHUNKS; c += NT) out[chunk_slot<C>(c)] = arranged(((DEVICE const uint4*)row)[c]);
            } else if (EARLY) {
                uint4 own[Share::OWN];
                float squares[Share::SETS];
                FK_UNROLL for (uint j = 0; j < Share::SETS; ++j) squares[j] = 0.0f;
                FK_UNROLL for (uint i = 0; i < Share::OWN; ++i) {
                    const uint c = id.tid + i * Share::LANES;
                    own[i] = make_u4(0u, 0u, 0u, 0u);
                    if (id.tid < Share::LANES && c < Share::CHUNKS) own[i] = ((DEVICE const uint4*)row)[c];
                }
                FK_UNROLL for (uint i = 0; i < Share::OWN; ++i) {
                    float f[T::N];
                    T::unpack(own[i], f);
                    FK_UNROLL for (uint j = 0; j < T::N; ++j) squares[i % Share::SETS] = fma(f[j], f[j], squares[i % Share::SETS]);
                }
                const float factor = Share::factor(squares, eps, m > 0u, red, id);
                FK_UNROLL for (uint i = 0; i < Share::OWN; ++i) {
                    const uint c = id.tid + i * Share::LANES;
                    float f[T::N];
                    T::unpack(own[i], f);
                    FK_UNROLL for (uint j = 0; j < T::N; ++j) f[j] = normed<T, KIND>(f[j] * factor, early_w[(i * T::N + j) % W]);
                    if (id.tid < Share::LANES && c < Share::CHUNKS) out[chunk_slot<C>(c)] = arranged(T::pack(f));
                }
            } else {
                const float factor = NORM ? norm_factor<T, K, NT>(row, eps, red, id) : 1.0f;
                for (uint c = id.tid; c < Share::CHUNKS; c += NT) {
                    float f[T::N];
                    load_chunk<T, K>(row, c, f);
                    if (NORM) {
                        FK_UNROLL for (uint j = 0; j < T::N; ++j) f[j] = normed<T, KIND>(f[j] * factor, w[min(c * T::N + j, (uint)(K - 1))]);
                        FK_UNROLL for (uint j = 0; j < T::N; ++j) f[j] = c * T::N + j < K ? f[j] : 0.0f;
                    }
                    out[chunk_slot<C>(c)] = arranged(T::pack(f));
                }
            }
        }
        FK_BARRIER();
    }
};

// The same for what the delta rule leaves: K = HEADS * W, each head normed and times silu(z) (gated_norm in delta.h).
template <class T, int K, int W, int M, int C, int SLOTS, int NT, int FAR>
FK_FN void stage_gated(DEVICE const typename T::S* x, DEVICE const typename T::S* z, DEVICE const float* w, uint rows, float eps, THREADGROUP uint4* xs, Ids id) {
    THREADGROUP typename T::S* out = (THREADGROUP typename T::S*)xs;
    for (uint i = K + id.tid; i < (uint)(SLOTS * C * T::N); i += NT)
        for (uint m = 0; m < M; ++m) out[(m * (SLOTS * C) + chunk_slot<C>(i / T::N)) * T::N + i % T::N] = T::put(0.0f);
    for (uint h = id.sg; h < (uint)M * (K / W); h += NT / 32) {   // a simdgroup takes a head
        const uint m = h / (K / W), head = h % (K / W);
        const ulong at = (ulong)min(m, rows - 1u) * K + head * W;
        float v[(W + 31) / 32], g[(W + 31) / 32], squares = 0.0f;
        FK_UNROLL for (uint j = 0; j < (W + 31) / 32; ++j) {
            const uint i = id.lane + 32 * j;
            v[j] = i < W ? T::get(x[at + i]) : 0.0f;
            g[j] = i < W ? T::get(z[at + i]) : 0.0f;
        }
        FK_UNROLL for (uint j = 0; j < (W + 31) / 32; ++j) squares = fma(v[j], v[j], squares);
        const float factor = 1.0f / sqrt(simd_sum(squares) / (float)W + eps);
        FK_UNROLL for (uint j = 0; j < (W + 31) / 32; ++j) {
            const uint i = id.lane + 32 * j;
            if (i >= W) continue;
            const float t = rounded<T>(w[i] * rounded<T>(v[j] * factor));
            const uint e = head * W + i;
            out[(m * (SLOTS * C) + chunk_slot<C>(e / T::N)) * T::N + (FAR ? e % 4 * 2 + e % 8 / 4 : e % T::N)] = T::put(t * (g[j] * sigmoid(g[j])));
        }
    }
    FK_BARRIER();
}

// The units that a simdgroup's strip loads at a time: U a lane of each of NR rows, KS simdgroups in turn along a row.
template <class F, int N, int NR, int U, int KS, int EPI> struct Group {
    enum { SPAN = 32 * U * KS, RS = EPI == EPI_ACT ? NR / 2 : NR, EVEN = F::UNITS % SPAN == 0 };
    static FK_FN void load(THREAD const Planes& w1, THREAD const Planes& w2, uint strip, uint first, THREAD uint* q, THREAD uint* a) {
        FK_UNROLL for (uint u = 0; u < U; ++u)
            FK_UNROLL for (uint r = 0; r < NR; ++r) {
                const uint row = min(EPI == EPI_ACT ? strip * RS + r / 2 : strip * RS + r, (uint)(N - 1)), unit = first + u * (32 * KS);
                if (EVEN || unit < F::UNITS) F::load(EPI == EPI_ACT && (r & 1u) ? w2 : w1, row, unit, q + (u * NR + r) * F::Q, a + (u * NR + r) * F::A);
            }
    }
    template <class T, int K, int M, int SLOTS, int STAGED>
    static FK_FN void use(DEVICE const typename T::S* x, THREADGROUP const uint4* xs, uint rows, uint first, THREAD const uint* q, THREAD const uint* a, THREAD float* acc) {
        enum { C = F::E / T::N, CS = F::SUMS > 0 ? F::SUMS : 1 };
        FK_UNROLL for (uint u = 0; u < U; ++u) {
            const uint unit = first + u * (32 * KS);
            if (EVEN || unit < F::UNITS) {
                FK_UNROLL for (uint m = 0; m < M; ++m) {
                    float f[F::E], c[CS];
                    FK_UNROLL for (uint k = 0; k < C; ++k) {
                        if (STAGED) T::unpack(xs[m * (SLOTS * C) + ((unit >> 5) * C + k) * 32 + (unit & 31u)], f + k * T::N);
                        else if (K % F::E == 0 || (unit * C + k) * T::N < K) load_chunk<T, K>(x + (ulong)min(m, rows - 1u) * K, unit * C + k, f + k * T::N);
                        else FK_UNROLL for (uint j = 0; j < T::N; ++j) f[k * T::N + j] = 0.0f;
                    }
                    F::sums(f, c);
                    FK_UNROLL for (uint r = 0; r < NR; ++r) acc[m * NR + r] = F::dot(acc[m * NR + r], q + (u * NR + r) * F::Q, a + (u * NR + r) * F::A, unit, f, c);
                }
            }
        }
    }
};

// What a product takes besides its matrix; pointers that a kernel does not use are anything.
template <class T> struct MatvecInputs {
    DEVICE const int* step;
    DEVICE const typename T::S* x;
    DEVICE const float* norm_w;
    DEVICE const typename T::S* z;          // PRO_GATED
    DEVICE const float* bias1;
    DEVICE const float* bias2;
    DEVICE const typename T::S* residual;   // EPI_ADD
    DEVICE const float* conv_w;             // EPI_CONV
    DEVICE typename T::S* conv_state;       // EPI_CONV
    DEVICE typename T::S* y;
    DEVICE float* y32;
    float eps, global1, global2, softcap;
};

// F format, K columns, N rows of the matrix, M most rows of x, NR matrix rows of a strip, U units in flight, KS
// simdgroups a strip, PF: the next units are loaded before these are used. STAGED: x in threadgroup memory (needed for
// a norm). KIND: a norm's, or PRO_*; HEAD: PRO_GATED's width of a head. EPI_ACT: NR is even, and every second row is
// of the second matrix. EPI_CONV: matrix row n is channel n of a convolution of TAPS over the step's rows (delta.h); R:
// most rows of the step record. OUT: the rows are the step's outputs. ONCE: the grid has a place for every strip.
// red: 8 floats, and (KS > 1) NT / 32 * M * NR.
template <class T, class F, int K, int N, int M, int NR, int U, int KS, int PF, int STAGED, int KIND, int HEAD, int EPI, int ACT, int TAPS, int R, int BIAS, int F32_OUT, int OUT, int ONCE, int NT>
FK_FN void matvec(THREAD const MatvecInputs<T>& in, THREAD const Planes& w1, THREAD const Planes& w2, THREADGROUP uint4* xs, THREADGROUP float* red, Ids id) {
    typedef Group<F, N, NR, U, KS, EPI> G;
    enum { C = F::E / T::N, SPAN = G::SPAN, ITERS = (F::UNITS + SPAN - 1) / SPAN, SLOTS = (F::UNITS + 31) / 32 * 32, PER = NT / 32 / KS, RS = G::RS, STRIPS = (N + RS - 1) / RS,
           QS = U * NR * F::Q, AS = U * NR * F::A, TAP = EPI == EPI_CONV ? TAPS : 1 };
    typedef Stage<T, K, M, C, SLOTS, KIND, NT, 0> Staging;
    const uint stride = id.n_x * PER, k0 = id.sg % KS * 32 + id.lane;
    uint q[QS], a[AS], strip = id.tg_x * PER + id.sg / KS;
    // The first weights do not depend on the launch before, nor does what this kernel wrote in the step before.
    if (strip < STRIPS) G::load(w1, w2, strip, k0, q, a);
    float early_w[Staging::W];
    if (STAGED) Staging::early(in.norm_w, early_w, id);
    const uint rows = M == 1 ? 1u : (uint)in.step[OUT ? STEP_OUTPUTS : STEP_ROWS];
    ConvChannel<T, N, TAP, R> channel;
    if (EPI == EPI_CONV && id.lane < RS && strip * RS + id.lane < N && rows > 0u) {
        channel.begin(in.conv_w, strip * RS + id.lane);
        channel.enter(in.step, in.conv_state, 0, strip * RS + id.lane);
    }
    FK_WAIT_INPUTS();
    if (rows == 0u) return;
    // Lane i writes result i.
    const uint mine_m = id.lane / RS, mine_r = id.lane % RS;
    const bool writes = id.lane < M * RS && mine_m < rows && id.sg % KS == 0u;
    float residual = 0.0f;
    if (EPI == EPI_ADD && writes && strip * RS + mine_r < N) residual = T::get(in.residual[(ulong)mine_m * N + strip * RS + mine_r]);
    if (STAGED && KIND == PRO_GATED) stage_gated<T, K, (KIND == PRO_GATED ? HEAD : K), M, C, SLOTS, NT, 0>(in.x, in.z, in.norm_w, rows, in.eps, xs, id);
    else if (STAGED) Staging::run(in.x, in.norm_w, early_w, rows, in.eps, xs, red, id);
    for (uint first = id.tg_x * PER; first < STRIPS; first += stride, strip += stride) {   // the same for a threadgroup
        const bool live = strip < STRIPS, again = first != id.tg_x * PER;
        if (KS == 1 && !live) break;
        if (EPI == EPI_ADD && again && writes && strip * RS + mine_r < N) residual = T::get(in.residual[(ulong)mine_m * N + strip * RS + mine_r]);
        float acc[M * NR];
        FK_UNROLL for (uint i = 0; i < M * NR; ++i) acc[i] = 0.0f;
        FK_NO_UNROLL for (uint it = 0; it < ITERS; ++it) {
            const bool last = it + 1 == ITERS;
            const uint next = last ? strip + stride : strip, at = last ? k0 : k0 + (it + 1) * SPAN;   // the next group, of this strip or the next one
            const bool more = (!last || !ONCE) && next < STRIPS;
            if (PF && ITERS * (ONCE ? 1 : 2) > 1) {
                uint q2[QS], a2[AS];
                if (more) G::load(w1, w2, next, at, q2, a2);
                if (live) G::template use<T, K, M, SLOTS, STAGED>(in.x, xs, rows, k0 + it * SPAN, q, a, acc);
                FK_UNROLL for (uint i = 0; i < QS; ++i) q[i] = q2[i];
                FK_UNROLL for (uint i = 0; i < AS; ++i) a[i] = a2[i];
            } else {
                if (live) G::template use<T, K, M, SLOTS, STAGED>(in.x, xs, rows, k0 + it * SPAN, q, a, acc);
                if (more) G::load(w1, w2, next, at, q, a);
            }
        }
        FK_UNROLL for (uint i = 0; i < M * NR; ++i) acc[i] = simd_sum(acc[i]);
        if (KS > 1) {
            FK_BARRIER();   // red has been read: by the norm, or by the strip before
            if (id.lane == 0) { FK_UNROLL for (uint i = 0; i < M * NR; ++i) red[id.sg * (M * NR) + i] = acc[i]; }
            FK_BARRIER();
            FK_UNROLL for (uint i = 0; i < M * NR; ++i) {
                acc[i] = 0.0f;
                FK_UNROLL for (uint s = 0; s < KS; ++s) acc[i] += red[(id.sg / KS * KS + s) * (M * NR) + i];
            }
        }
        if (!live) continue;
        if (EPI == EPI_CONV) {   // lane i takes channel i through all rows
            const uint n = strip * RS + id.lane;
            if (id.lane >= RS || n >= N || id.sg % KS != 0u) continue;
            float u[M];
            FK_UNROLL for (uint m = 0; m < M; ++m) {
                u[m] = 0.0f;
                FK_UNROLL for (uint r = 0; r < RS; ++r)
                    if (r == id.lane) u[m] = rounded<T>(acc[m * NR + r] * in.global1);
            }
            if (again) channel.begin(in.conv_w, n);
            FK_UNROLL for (uint m = 0; m < M; ++m)
                if (m < rows) {
                    if (M > 1 || again) channel.enter(in.step, in.conv_state, m, n);
                    in.y[(ulong)m * N + n] = channel.push(u[m]);
                }
            channel.end(in.conv_state, n);
            continue;
        }
        const uint n = strip * RS + mine_r;
        if (!writes || n >= N) continue;
        const ulong at = (ulong)mine_m * N + n;
        float v = 0.0f, up = 0.0f;
        FK_UNROLL for (uint m = 0; m < M; ++m)
            FK_UNROLL for (uint r = 0; r < RS; ++r)
                if (id.lane == m * RS + r) {
                    v = (EPI == EPI_ACT ? acc[m * NR + (2 * r) % NR] : acc[m * NR + r]) * in.global1;
                    if (EPI == EPI_ACT) up = acc[m * NR + (2 * r + 1) % NR] * in.global2;
                }
        v = finished<T, EPI, ACT, BIAS, F32_OUT>(v, up, residual, in.bias1, in.bias2, n, in.softcap);
        if (F32_OUT) in.y32[at] = v;
        else in.y[at] = T::put(v);
    }
}

}  // namespace fk
