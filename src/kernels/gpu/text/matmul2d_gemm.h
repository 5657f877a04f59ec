// Products of many rows by Metal 4's matmul2d, for 16-bit activations; in sources for devices that have it only.
//
// Tiles as in simd_gemm.h: BM rows of x and BN of the matrix, BK columns at a time, in threadgroup memory; four
// simdgroups multiply them together. Where a thread's sums lie is never looked at: they leave through store. The order
// of a sum is the device's, so a weight has one tile, whatever the rows.
namespace fk {

// Rows [m0, m0 + BM) of x, as far as there are, and the matrix's columns from n0 on: BN, or BN / 2 of two (EPI_ACT).
// memory: the larger of (BM + BN) * LD elements and BM * (BN + 4) floats.
template <class T, class X, class F, int K, int N, int BM, int BN, int BK, int EPI, class Out>
FK_FN void matmul2d_tile(uint m0, uint rows, uint n0, DEVICE const int* step, THREAD const Planes& w1, THREAD const Planes& w2, DEVICE const typename T::S* x, THREAD const Out& out,
                         THREADGROUP uint4* memory, Ids id) {
    enum { NT = 128, H = EPI == EPI_ACT ? BN / 2 : 0, W = EPI == EPI_ACT ? BN / 2 : BN, LD = TileRow<X, BK>::LD, SUMS_LD = BN + 4, KT = (K + BK - 1) / BK };
    typedef typename UnitsOf<X>::E E;
    typedef RowTile<T, X, K, BM, BK, 0, NT> Xs;
    typedef MatrixTile<X, F, K, N, BN, BK, H, NT> Ws;
    typedef extents<int, BK, BM> LeftExtents;
    typedef extents<int, BK, BN> RightExtents;
    typedef extents<int, BN, BM> SumExtents;
    THREADGROUP E* xs = (THREADGROUP E*)memory;
    THREADGROUP E* ws = xs + BM * LD;
    const array<int, 2> tile_strides = {1, LD}, sum_strides = {1, SUMS_LD};
    auto left = tensor<THREADGROUP E, LeftExtents, tensor_inline>(xs, LeftExtents(), tile_strides);
    auto right = tensor<THREADGROUP E, RightExtents, tensor_inline>(ws, RightExtents(), tile_strides);
    auto target = tensor<THREADGROUP float, SumExtents, tensor_inline>((THREADGROUP float*)memory, SumExtents(), sum_strides);
    constexpr auto shape = mpp::tensor_ops::matmul2d_descriptor(BM, BN, BK, false, true, false, mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate);
    mpp::tensor_ops::matmul2d<shape, execution_simdgroups<4>> product;
    auto sums = product.template get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
    for (ushort i = 0; i < sums.get_capacity(); ++i) sums[i] = 0.0f;
    uint row[Xs::OWN], q[Ws::OWN * F::Q], a[Ws::OWN * F::A];
    uint4 v[Xs::OWN];
    Xs::rows_of(m0, rows, step, row, id);
    Xs::load(x, row, 0u, v, id);
    Ws::load(w1, w2, n0, 0u, q, a, id);
    FK_NO_UNROLL for (uint k0 = 0; k0 < KT * BK; k0 += BK) {
        FK_BARRIER();   // the tiles before have been used
        Xs::store(xs, v, id);
        Ws::store(w1, k0, ws, q, a, id);
        FK_BARRIER();
        if (k0 + BK < KT * BK) {   // what the next tiles are made of, beside the product
            Xs::load(x, row, k0 + BK, v, id);
            Ws::load(w1, w2, n0, k0 + BK, q, a, id);
        }
        product.run(left, right, sums);
    }
    FK_BARRIER();   // sums take the place of the tiles
    sums.store(target);
    FK_BARRIER();
    THREADGROUP const float* all = (THREADGROUP const float*)memory;
    for (uint p = id.tid; p < BM * (W / 4); p += NT) {
        const uint r = p / (W / 4), c = p % (W / 4) * 4;
        if (m0 + r < rows) out.four(m0 + r, n0 + c, all + r * SUMS_LD + c, all + r * SUMS_LD + H + c);
    }
}

// Neighbouring threadgroups take the same weights and different rows.
template <class T, class X, class F, int K, int N, int BM, int BN, int BK, int EPI, int ACT, int BIAS, int F32_OUT, int OUT>
FK_FN void gemm_matmul2d(DEVICE const int* step, THREAD const Planes& w1, THREAD const Planes& w2, DEVICE const typename T::S* x, DEVICE const float* bias1,
                         DEVICE const float* bias2, DEVICE const typename T::S* residual, DEVICE typename T::S* y, DEVICE float* y32, float global1, float global2,
                         float softcap, THREADGROUP uint4* memory, Ids id) {
    const uint rows = (uint)step[OUT ? STEP_OUTPUTS : STEP_ROWS], blocks = max((rows + BM - 1) / BM, 1u), linear = id.tg_y * id.n_x + id.tg_x;
    const uint m0 = linear % blocks * BM, n0 = linear / blocks * (EPI == EPI_ACT ? BN / 2 : BN);
    if (m0 >= rows || n0 >= N) return;
    const SumsOut<T, N, EPI, ACT, BIAS, F32_OUT> out = {bias1, bias2, residual, y, y32, global1, global2, softcap};
    matmul2d_tile<T, X, F, K, N, BM, BN, BK, EPI>(m0, rows, n0, step, w1, w2, x, out, memory, id);
}

}  // namespace fk
