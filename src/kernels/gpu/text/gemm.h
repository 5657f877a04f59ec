// Products of many rows: tiles of 32 rows of x and 64 of the matrix, 32 columns at a time, dequantised into
// threadgroup memory as floats. The order of a sum depends on the column alone. 128 threads.
namespace fk {

// Rows of x before a product: normed, rounded to T.
template <class T, int K, int KIND, int OUT, int NT>
FK_FN void pack_rows(DEVICE const int* step, DEVICE const typename T::S* x, DEVICE const float* w, DEVICE typename T::S* y, float eps, THREADGROUP float* red, Ids id) {
    norm<T, K, 1, KIND, 0, OUT, NT>(step, x, w, x, y, eps, red, id);
}

template <class F, int K, int N>
FK_FN void load_weight_tile(THREAD const Planes& p, uint n0, uint k0, float global, THREADGROUP float* tile, Ids id) {
    for (uint i = id.tid; i < 64 * (32 / F::E); i += 128) {
        const uint n = i / (32 / F::E), part = i % (32 / F::E), unit = k0 / F::E + part;
        float f[F::E];
        if (n0 + n < N && unit < F::UNITS) {
            uint q[F::Q], a[F::A];
            F::load(p, n0 + n, unit, q, a);
            F::values(p, n0 + n, unit, q, a, f);
        } else {
            FK_UNROLL for (uint j = 0; j < F::E; ++j) f[j] = 0.0f;
        }
        FK_UNROLL for (uint j = 0; j < F::E; ++j) tile[n * 33 + part * F::E + j] = f[j] * global;
    }
}

// Rows [m0, rows) of y, at most 32, and matrix rows n0 .. n0 + 63. PER > 0: row m of y is of row from[m] / PER of x.
// xs: 32 x 33 floats, ws and ws2: 64 x 33.
template <class T, class F, int K, int N, int PER, int EPI, int ACT, int BIAS, int F32_OUT>
FK_FN void gemm_tile(uint m0, uint rows, uint n0, DEVICE const int* from, THREAD const Planes& w1, THREAD const Planes& w2, DEVICE const typename T::S* x,
                     DEVICE const float* bias1, DEVICE const float* bias2, DEVICE const typename T::S* residual, DEVICE typename T::S* y, DEVICE float* y32, float global1,
                     float global2, float softcap, THREADGROUP float* xs, THREADGROUP float* ws, THREADGROUP float* ws2, Ids id) {
    const uint tm = id.tid / 16 * 4, tn = id.tid % 16;   // rows tm .. tm + 3, columns tn, tn + 16, ...
    float acc[16], acc2[EPI == EPI_ACT ? 16 : 1];
    FK_UNROLL for (uint i = 0; i < 16; ++i) acc[i] = 0.0f;
    if (EPI == EPI_ACT) { FK_UNROLL for (uint i = 0; i < 16; ++i) acc2[i % (EPI == EPI_ACT ? 16 : 1)] = 0.0f; }
    for (uint k0 = 0; k0 < K; k0 += 32) {
        for (uint i = id.tid; i < 32 * (32 / T::N); i += 128) {
            const uint m = i / (32 / T::N), c = i % (32 / T::N);
            float f[T::N];
            FK_UNROLL for (uint j = 0; j < T::N; ++j) f[j] = 0.0f;
            const uint row = min(m0 + m, rows - 1u);
            if (k0 + c * T::N < K) load_chunk<T, K>(x + (ulong)(PER > 0 ? (uint)from[row] / (uint)(PER > 0 ? PER : 1) : row) * K, k0 / T::N + c, f);
            FK_UNROLL for (uint j = 0; j < T::N; ++j) xs[m * 33 + c * T::N + j] = f[j];
        }
        load_weight_tile<F, K, N>(w1, n0, k0, global1, ws, id);
        if (EPI == EPI_ACT) load_weight_tile<F, K, N>(w2, n0, k0, global2, ws2, id);
        FK_BARRIER();
        FK_NO_UNROLL for (uint k = 0; k < 32; ++k) {
            float a[4], b[4];
            FK_UNROLL for (uint i = 0; i < 4; ++i) a[i] = xs[(tm + i) * 33 + k];
            FK_UNROLL for (uint i = 0; i < 4; ++i) b[i] = ws[(tn + 16 * i) * 33 + k];
            FK_UNROLL for (uint i = 0; i < 16; ++i) acc[i] = fma(a[i / 4], b[i % 4], acc[i]);
            if (EPI == EPI_ACT) {
                FK_UNROLL for (uint i = 0; i < 4; ++i) b[i] = ws2[(tn + 16 * i) * 33 + k];
                FK_UNROLL for (uint i = 0; i < 16; ++i) acc2[i % (EPI == EPI_ACT ? 16 : 1)] = fma(a[i / 4], b[i % 4], acc2[i % (EPI == EPI_ACT ? 16 : 1)]);
            }
        }
        FK_BARRIER();
    }
    FK_UNROLL for (uint i = 0; i < 16; ++i) {
        const uint m = m0 + tm + i / 4, n = n0 + tn + 16 * (i % 4);
        if (m >= rows || n >= N) continue;
        const ulong at = (ulong)m * N + n;
        const float v = finished<T, EPI, ACT, BIAS, F32_OUT>(acc[i], EPI == EPI_ACT ? acc2[i % (EPI == EPI_ACT ? 16 : 1)] : 0.0f,
                                                             EPI == EPI_ADD ? T::get(residual[at]) : 0.0f, bias1, bias2, n, softcap);
        if (F32_OUT) y32[at] = v;
        else y[at] = T::put(v);
    }
}

// Threadgroup tg_x takes 64 matrix rows, tg_y 32 rows of x.
template <class T, class F, int K, int N, int EPI, int ACT, int BIAS, int F32_OUT, int OUT>
FK_FN void gemm(DEVICE const int* step, THREAD const Planes& w1, THREAD const Planes& w2, DEVICE const typename T::S* x, DEVICE const float* bias1, DEVICE const float* bias2,
                DEVICE const typename T::S* residual, DEVICE typename T::S* y, DEVICE float* y32, float global1, float global2, float softcap,
                THREADGROUP float* xs, THREADGROUP float* ws, THREADGROUP float* ws2, Ids id) {
    FK_WAIT_INPUTS();
    const uint rows = (uint)step[OUT ? STEP_OUTPUTS : STEP_ROWS], m0 = id.tg_y * 32;
    if (m0 >= rows) return;
    gemm_tile<T, F, K, N, 0, EPI, ACT, BIAS, F32_OUT>(m0, rows, id.tg_x * 64, step, w1, w2, x, bias1, bias2, residual, y, y32, global1, global2, softcap, xs, ws, ws2, id);
}

}  // namespace fk
