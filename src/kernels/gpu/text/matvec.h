// Products of up to M rows with a matrix: every simdgroup owns strips of output rows, lanes stride along a row in
// units, dequantisation is in the loop, one reduction ends it. A row's sums do not depend on the other rows.
namespace fk {

enum { EPI_NONE, EPI_ADD, EPI_ACT };

// Where x is while the product runs. Staged: in threadgroup memory as T, chunks of 16 bytes permuted so that lanes
// read neighbouring chunks; C chunks make a unit.
template <int C> FK_FN uint chunk_slot(uint chunk) {
    const uint u = chunk / C, c = chunk % C;
    return ((u >> 5) * C + c) * 32 + (u & 31u);
}

// Rows of x to threadgroup memory, normed when KIND is below 3.
template <class T, int K, int M, int C, int SLOTS, int KIND, int NT>
FK_FN void stage(DEVICE const typename T::S* x, DEVICE const float* w, uint rows, float eps, THREADGROUP uint4* xs, THREADGROUP float* red, Ids id) {
    FK_NO_UNROLL for (uint m = 0; m < M; ++m) {
        DEVICE const typename T::S* row = x + (ulong)min(m, rows - 1u) * K;
        const float factor = KIND < 3 ? norm_factor<T, K, NT>(row, eps, red, id) : 1.0f;
        for (uint c = id.tid; c < (uint)(SLOTS * C); c += NT) {
            if (c * T::N >= K) {   // units past the end
                xs[(ulong)m * (SLOTS * C) + chunk_slot<C>(c)] = make_u4(0u, 0u, 0u, 0u);
                continue;
            }
            float f[T::N];
            load_chunk<T, K>(row, c, f);
            if (KIND < 3) {
                FK_UNROLL for (uint j = 0; j < T::N; ++j) f[j] = normed<T, KIND>(f[j] * factor, w[min(c * T::N + j, (uint)(K - 1))]);
                FK_UNROLL for (uint j = 0; j < T::N; ++j) f[j] = c * T::N + j < K ? f[j] : 0.0f;
            }
            xs[(ulong)m * (SLOTS * C) + chunk_slot<C>(c)] = T::pack(f);
        }
    }
    FK_BARRIER();
}

// F format, K columns, N rows of the matrix, M most rows of x, NR matrix rows of a strip, U units in flight.
// STAGED: x in threadgroup memory (needed for a norm). EPI_ACT: NR is even, and every second row is of the
// second matrix. OUT: the rows are the step's outputs.
template <class T, class F, int K, int N, int M, int NR, int U, int STAGED, int KIND, int EPI, int ACT, int BIAS, int F32_OUT, int OUT, int NT>
FK_FN void matvec(DEVICE const int* step, THREAD const Planes& w1, THREAD const Planes& w2, DEVICE const typename T::S* x, DEVICE const float* norm_w,
                  DEVICE const float* bias1, DEVICE const float* bias2, DEVICE const typename T::S* residual, DEVICE typename T::S* y, DEVICE float* y32,
                  float eps, float global1, float global2, float softcap, THREADGROUP uint4* xs, THREADGROUP float* red, Ids id) {
    enum { C = F::E / T::N, SPAN = 32 * U, ITERS = (F::UNITS + SPAN - 1) / SPAN, SLOTS = (F::UNITS + 31) / 32 * 32,
           SG = NT / 32, RS = EPI == EPI_ACT ? NR / 2 : NR, STRIPS = (N + RS - 1) / RS, CS = F::SUMS > 0 ? F::SUMS : 1 };
    const uint stride = id.n_x * SG;
    uint q[U * NR * F::Q], a[U * NR * F::A];
    uint strip = id.tg_x * SG + id.sg;
    // The first weights do not depend on the launch before.
    FK_UNROLL for (uint u = 0; u < U; ++u)
        FK_UNROLL for (uint r = 0; r < NR; ++r) {
            const uint row = min(EPI == EPI_ACT ? strip * RS + r / 2 : strip * RS + r, (uint)(N - 1)), unit = id.lane + u * 32;
            if (strip < STRIPS && (F::UNITS % SPAN == 0 || unit < F::UNITS))
                F::load(EPI == EPI_ACT && (r & 1u) ? w2 : w1, row, unit, q + (u * NR + r) * F::Q, a + (u * NR + r) * F::A);
        }
    FK_WAIT_INPUTS();
    const uint rows = (uint)step[OUT ? STEP_OUTPUTS : STEP_ROWS];
    if (rows == 0u) return;
    if (STAGED) stage<T, K, M, C, SLOTS, KIND, NT>(x, norm_w, rows, eps, xs, red, id);
    for (; strip < STRIPS; strip += stride) {
        float acc[M * NR];
        FK_UNROLL for (uint i = 0; i < M * NR; ++i) acc[i] = 0.0f;
        FK_NO_UNROLL for (uint it = 0; it < ITERS; ++it) {
            FK_UNROLL for (uint u = 0; u < U; ++u) {
                const uint unit = id.lane + (it * U + u) * 32;
                if (F::UNITS % SPAN == 0 || unit < F::UNITS) {
                    FK_UNROLL for (uint m = 0; m < M; ++m) {
                        float f[F::E], c[CS];
                        FK_UNROLL for (uint k = 0; k < C; ++k) {
                            if (STAGED) T::unpack(xs[m * (SLOTS * C) + ((unit >> 5) * C + k) * 32 + (unit & 31u)], f + k * T::N);
                            else if (K % F::E == 0 || (unit * C + k) * T::N < K) load_chunk<T, K>(x + (ulong)min(m, rows - 1u) * K, unit * C + k, f + k * T::N);
                            else FK_UNROLL for (uint j = 0; j < T::N; ++j) f[k * T::N + j] = 0.0f;
                        }
                        F::sums(f, c);
                        FK_UNROLL for (uint r = 0; r < NR; ++r)
                            acc[m * NR + r] = F::dot(acc[m * NR + r], q + (u * NR + r) * F::Q, a + (u * NR + r) * F::A, unit, f, c);
                    }
                }
            }
            // The next group, of this strip or the next one.
            const bool last = it + 1 == ITERS;
            const uint next = last ? strip + stride : strip;
            FK_UNROLL for (uint u = 0; u < U; ++u)
                FK_UNROLL for (uint r = 0; r < NR; ++r) {
                    const uint row = min(EPI == EPI_ACT ? next * RS + r / 2 : next * RS + r, (uint)(N - 1));
                    const uint unit = id.lane + (last ? u : (it + 1) * U + u) * 32;
                    if (next < STRIPS && (F::UNITS % SPAN == 0 || unit < F::UNITS))
                        F::load(EPI == EPI_ACT && (r & 1u) ? w2 : w1, row, unit, q + (u * NR + r) * F::Q, a + (u * NR + r) * F::A);
                }
        }
        FK_UNROLL for (uint i = 0; i < M * NR; ++i) acc[i] = simd_sum(acc[i]);
        // Lane i writes result i.
        FK_UNROLL for (uint m = 0; m < M; ++m)
            FK_UNROLL for (uint r = 0; r < RS; ++r) {
                const uint n = strip * RS + r;
                if (id.lane != (m * RS + r) % 32 || n >= N || m >= rows) continue;
                const ulong at = (ulong)m * N + n;
                float v = (EPI == EPI_ACT ? acc[m * NR + (2 * r) % NR] : acc[m * NR + r]) * global1;
                if (BIAS) v += bias1[n];
                if (F32_OUT) {
                    y32[at] = softcap != 0.0f ? softcap * tanh(v / softcap) : v;
                } else {
                    if (EPI == EPI_ADD) v = T::get(residual[at]) + rounded<T>(v);
                    if (EPI == EPI_ACT) {
                        float up = acc[m * NR + (2 * r + 1) % NR] * global2;
                        if (BIAS) up += bias2[n];
                        v = rounded<T>(activate<ACT>(rounded<T>(v))) * rounded<T>(up);
                    }
                    y[at] = T::put(v);
                }
            }
    }
}

}  // namespace fk
