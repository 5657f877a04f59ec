// Products of many rows on Apple's 8x8 matrices (simdgroup_matrix), for 16-bit activations. Metal only.
//
// A threadgroup of four simdgroups takes BM rows of x and BN of the matrix, BK columns at a time: both tiles go to
// threadgroup memory, weights decoded and rounded to X once, and every simdgroup multiplies its quarter, summing in
// floats. Where elements lie in a simdgroup's lanes differs between chips and is never looked at: sums leave through
// simdgroup_store. The order of a sum depends on the column alone, so every tile gives the same bits.
namespace fk {

// What tiles are made of: X's elements as the matrix units take them.
template <class X> struct UnitsOf;
template <> struct UnitsOf<F16> { typedef half E; };
template <> struct UnitsOf<Bf16> { typedef bfloat E; };
template <> struct UnitsOf<F32> { typedef float E; };

// From a tile's row to the next: 16 bytes more than the elements, so that eight rows lie in different banks.
template <class X, int COLUMNS> struct TileRow { enum { LD = COLUMNS + 16 / X::BYTES }; };

// Eight values to a tile, rounded to X.
template <class X> FK_FN void tile_put(THREADGROUP typename UnitsOf<X>::E* at, THREAD const float* f) {
    FK_UNROLL for (uint p = 0; p < 8 / X::N; ++p) ((THREADGROUP uint4*)at)[p] = X::pack(f + p * X::N);
}

// BM rows of x, BK columns of each; a thread has OWN chunks of eight, in registers between load and store. PER > 0:
// row m of the product is of row from[m] / PER of x.
template <class T, class X, int K, int BM, int BK, int PER, int NT> struct RowTile {
    enum { PARTS = BK / 8, CHUNKS = BM * PARTS, OWN = (CHUNKS + NT - 1) / NT, LD = TileRow<X, BK>::LD };
    typedef typename UnitsOf<X>::E E;
    static FK_FN void rows_of(uint m0, uint rows, DEVICE const int* from, THREAD uint* row, Ids id) {
        FK_UNROLL for (uint j = 0; j < OWN; ++j) {
            const uint m = min(m0 + (id.tid + j * NT) / PARTS, rows - 1u);
            row[j] = PER > 0 ? (uint)from[m] / (uint)(PER > 0 ? PER : 1) : m;
        }
    }
    static FK_FN void load(DEVICE const typename T::S* x, THREAD const uint* row, uint k0, THREAD uint4* v, Ids id) {
        FK_UNROLL for (uint j = 0; j < OWN; ++j) {
            const uint k = k0 + (id.tid + j * NT) % PARTS * 8;
            v[j] = make_u4(0u, 0u, 0u, 0u);
            if (K % BK != 0 && k >= K) continue;
            DEVICE const typename T::S* at = x + (ulong)row[j] * K;
            if (K % 8 == 0) {
                v[j] = ((DEVICE const uint4*)at)[k / 8];
            } else {
                float f[8];
                load_chunk<T, K>(at, k / 8, f);
                v[j] = T::pack(f);
            }
        }
    }
    static FK_FN void store(THREADGROUP E* tile, THREAD const uint4* v, Ids id) {
        FK_UNROLL for (uint j = 0; j < OWN; ++j) {
            const uint i = id.tid + j * NT;
            if (CHUNKS % NT != 0 && i >= CHUNKS) break;
            THREADGROUP E* at = tile + i / PARTS * LD + i % PARTS * 8;
            if (X::BYTES == T::BYTES) {
                *(THREADGROUP uint4*)at = v[j];
            } else {
                float f[8];
                T::unpack(v[j], f);
                tile_put<X>(at, f);
            }
        }
    }
};

// Whether a unit of F is loaded as it lies in a tile.
template <class X, class F> struct LiesAsTile { enum { YES = 0 }; };
template <class X, int K, int STRIDE, int ALIGNED> struct LiesAsTile<X, Dense<X, K, STRIDE, ALIGNED>> { enum { YES = 1 }; };

// BN rows of a matrix. H > 0: of two matrices, H rows of the one and H of the other in turns.
template <class X, class F, int K, int N, int BN, int BK, int H, int NT> struct MatrixTile {
    enum { PARTS = BK / F::E, COUNT = BN * PARTS, OWN = (COUNT + NT - 1) / NT, LD = TileRow<X, BK>::LD, H1 = H > 0 ? H : 1 };
    typedef typename UnitsOf<X>::E E;
    static FK_FN void load(THREAD const Planes& w1, THREAD const Planes& w2, uint n0, uint k0, THREAD uint* q, THREAD uint* a, Ids id) {
        FK_UNROLL for (uint j = 0; j < OWN; ++j) {
            const uint i = id.tid + j * NT, n = i / PARTS, unit = min(k0 / F::E + i % PARTS, (uint)(F::UNITS - 1));
            if (COUNT % NT != 0 && i >= COUNT) break;
            const uint row = min(n0 + (H > 0 ? n / (2 * H1) * H1 + n % H1 : n), (uint)(N - 1));
            if (H > 0 && n % (2 * H1) >= H1) F::load(w2, row, unit, q + j * F::Q, a + j * F::A);
            else F::load(w1, row, unit, q + j * F::Q, a + j * F::A);
        }
    }
    static FK_FN void store(THREAD const Planes& w, uint k0, THREADGROUP E* tile, THREAD const uint* q, THREAD const uint* a, Ids id) {
        FK_UNROLL for (uint j = 0; j < OWN; ++j) {
            const uint i = id.tid + j * NT, unit = k0 / F::E + i % PARTS;
            if (COUNT % NT != 0 && i >= COUNT) break;
            THREADGROUP E* at = tile + i / PARTS * LD + i % PARTS * F::E;
            const bool there = K % BK == 0 || unit < F::UNITS;
            if (LiesAsTile<X, F>::YES) {
                FK_UNROLL for (uint p = 0; p < F::Q / 4; ++p) {
                    THREAD const uint* v = q + j * F::Q + 4 * p;
                    ((THREADGROUP uint4*)at)[p] = there ? make_u4(v[0], v[1], v[2], v[3]) : make_u4(0u, 0u, 0u, 0u);
                }
            } else {
                float f[F::E];
                F::values(w, 0u, unit, q + j * F::Q, a + j * F::A, f);
                if (!there) { FK_UNROLL for (uint e = 0; e < F::E; ++e) f[e] = 0.0f; }
                FK_UNROLL for (uint c = 0; c < F::E / 8; ++c) tile_put<X>(at + c * 8, f + c * 8);
            }
        }
    }
};

// What sums go through on their way out: the matrix's own scale, bias, epilogue, a rounding to T.
template <class T, int N, int EPI, int ACT, int BIAS, int F32_OUT> struct SumsOut {
    DEVICE const float* bias1;
    DEVICE const float* bias2;
    DEVICE const typename T::S* residual;
    DEVICE typename T::S* y;
    DEVICE float* y32;
    float global1, global2, softcap;
    FK_FN float one(ulong at, uint n, float sum, float sum2) const {
        return finished<T, EPI, ACT, BIAS, F32_OUT>(sum * global1, EPI == EPI_ACT ? sum2 * global2 : 0.0f, EPI == EPI_ADD ? T::get(residual[at]) : 0.0f,
                                                    bias1, bias2, n, softcap);
    }
    // Columns n .. n + 3 of row m; n is a multiple of 4.
    FK_FN void four(uint m, uint n, THREADGROUP const float* s, THREADGROUP const float* s2) const {
        const ulong at = (ulong)m * N + n;
        if (N % 4 == 0 && !F32_OUT) {
            if (n >= N) return;
            float v[4];
            FK_UNROLL for (uint j = 0; j < 4; ++j) v[j] = one(at + j, n + j, s[j], s2[j]);
            *(DEVICE uint2*)(y + at) = uint2(T::two(v[0], v[1]), T::two(v[2], v[3]));
            return;
        }
        FK_UNROLL for (uint j = 0; j < 4; ++j) {
            if (n + j >= N) return;
            const float v = one(at + j, n + j, s[j], s2[j]);
            if (F32_OUT) y32[at + j] = v;
            else y[at + j] = T::put(v);
        }
    }
};

// Rows [m0, rows) of the product, at most BM, and its columns from n0 on: BN, or BN / 2 of two matrices (EPI_ACT).
// AHEAD: what the next tile is made of is loaded beside the products. `memory`: the larger of the two tiles,
// (BM + BN) * LD elements, and of 4 * 8 * (SN + 4) floats for the sums.
template <class T, class X, class F, int K, int N, int BM, int BN, int BK, int AHEAD, int EPI, int PER, class Out>
FK_FN void simd_tile(uint m0, uint rows, uint n0, DEVICE const int* from, THREAD const Planes& w1, THREAD const Planes& w2, DEVICE const typename T::S* x,
                     THREAD const Out& out, THREADGROUP uint4* memory, Ids id) {
    enum { NT = 128, ACROSS = BM >= 32 ? 2 : 4,                       // simdgroups side by side
           SM = BM / (4 / ACROSS), SN = BN / ACROSS, MI = SM / 8, NI = SN / 8,   // a simdgroup's share, in elements and matrices
           H = EPI == EPI_ACT ? SN / 2 : 0, W = EPI == EPI_ACT ? SN / 2 : SN, LD = TileRow<X, BK>::LD, SUMS_LD = SN + 4, KT = (K + BK - 1) / BK };
    typedef typename UnitsOf<X>::E E;
    typedef RowTile<T, X, K, BM, BK, PER, NT> Xs;
    typedef MatrixTile<X, F, K, N, BN, BK, H, NT> Ws;
    THREADGROUP E* xs = (THREADGROUP E*)memory;
    THREADGROUP E* ws = xs + BM * LD;
    const uint sm = id.sg / ACROSS * SM, sn = id.sg % ACROSS * SN;
    uint row[Xs::OWN], q[Ws::OWN * F::Q], a[Ws::OWN * F::A];
    uint4 v[Xs::OWN];
    simdgroup_matrix<float, 8, 8> sums[MI * NI];
    FK_UNROLL for (uint i = 0; i < MI * NI; ++i) sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    Xs::rows_of(m0, rows, from, row, id);
    Xs::load(x, row, 0u, v, id);
    Ws::load(w1, w2, n0, 0u, q, a, id);
    FK_NO_UNROLL for (uint k0 = 0; k0 < KT * BK; k0 += BK) {
        FK_BARRIER();   // the tiles before have been used
        Xs::store(xs, v, id);
        Ws::store(w1, k0, ws, q, a, id);
        FK_BARRIER();
        const bool more = k0 + BK < KT * BK;
        if (AHEAD && more) {
            Xs::load(x, row, k0 + BK, v, id);
            Ws::load(w1, w2, n0, k0 + BK, q, a, id);
        }
        for (uint k = 0; k < BK; k += 8) {
            simdgroup_matrix<E, 8, 8> xm[MI], wm[NI];
            FK_UNROLL for (uint i = 0; i < MI; ++i) simdgroup_load(xm[i], xs + (sm + i * 8) * LD + k, (ulong)LD);
            FK_UNROLL for (uint j = 0; j < NI; ++j) simdgroup_load(wm[j], ws + (sn + j * 8) * LD + k, (ulong)LD, ulong2(0, 0), true);
            FK_UNROLL for (uint i = 0; i < MI; ++i)
                FK_UNROLL for (uint j = 0; j < NI; ++j) simdgroup_multiply_accumulate(sums[i * NI + j], xm[i], wm[j], sums[i * NI + j]);
        }
        if (!AHEAD && more) {
            Xs::load(x, row, k0 + BK, v, id);
            Ws::load(w1, w2, n0, k0 + BK, q, a, id);
        }
    }
    FK_BARRIER();   // sums take the place of the tiles, eight rows of every simdgroup at a time
    THREADGROUP float* own = (THREADGROUP float*)memory + id.sg * (8 * SUMS_LD);
    FK_UNROLL for (uint i = 0; i < MI; ++i) {
        FK_UNROLL for (uint j = 0; j < NI; ++j) simdgroup_store(sums[i * NI + j], own + j * 8, (ulong)SUMS_LD);
        FK_SG_BARRIER();
        for (uint p = id.lane; p < 2 * W; p += 32) {
            const uint r = p / (W / 4), c = p % (W / 4) * 4, m = m0 + sm + i * 8 + r;
            if (m < rows) out.four(m, n0 + id.sg % ACROSS * W + c, own + r * SUMS_LD + c, own + r * SUMS_LD + H + c);
        }
        FK_SG_BARRIER();
    }
}

// Neighbouring threadgroups take the same weights and different rows, so that those that run together read few weights.
template <class T, class X, class F, int K, int N, int BM, int BN, int BK, int AHEAD, int EPI, int ACT, int BIAS, int F32_OUT, int OUT>
FK_FN void gemm_simd(DEVICE const int* step, THREAD const Planes& w1, THREAD const Planes& w2, DEVICE const typename T::S* x, DEVICE const float* bias1,
                     DEVICE const float* bias2, DEVICE const typename T::S* residual, DEVICE typename T::S* y, DEVICE float* y32, float global1, float global2,
                     float softcap, THREADGROUP uint4* memory, Ids id) {
    const uint rows = (uint)step[OUT ? STEP_OUTPUTS : STEP_ROWS], blocks = max((rows + BM - 1) / BM, 1u), linear = id.tg_y * id.n_x + id.tg_x;
    const uint m0 = linear % blocks * BM, n0 = linear / blocks * (EPI == EPI_ACT ? BN / 2 : BN);
    if (m0 >= rows || n0 >= N) return;
    const SumsOut<T, N, EPI, ACT, BIAS, F32_OUT> out = {bias1, bias2, residual, y, y32, global1, global2, softcap};
    simd_tile<T, X, F, K, N, BM, BN, BK, AHEAD, EPI, 0>(m0, rows, n0, step, w1, w2, x, out, memory, id);
}

// Experts: a block of BM choices of one expert; y, and x if PER_CHOICE, in the table's order.
template <class T, class X, class F, class STEP1, class STEP2, int K, int N, int E, int PER, int PAIRS, int PER_CHOICE, int SCALED, int BM, int BN, int BK, int AHEAD, int EPI,
          int ACT>
FK_FN void expert_gemm_simd(DEVICE const int* step, DEVICE const int* table, THREAD const Planes& w1, THREAD const Planes& w2, DEVICE const float* globals1,
                            DEVICE const float* globals2, DEVICE const typename T::S* x, DEVICE typename T::S* y, float global1, float global2, THREADGROUP uint4* memory,
                            Ids id) {
    if (step[STEP_ROWS] == 0) return;
    uint e, first, last;
    if (!expert_block<E, BM>(table, id.tg_y, e, first, last, id)) return;
    const Planes own1 = STEP1::of(w1, e), own2 = STEP2::of(w2, e);
    const SumsOut<T, N, EPI, ACT, 0, 0> out = {(DEVICE const float*)step, (DEVICE const float*)step, x, y, (DEVICE float*)(ulong)0, SCALED ? globals1[e] : global1,
                                               SCALED ? globals2[e] : global2, 0.0f};
    simd_tile<T, X, F, K, N, BM, BN, BK, AHEAD, EPI, PER_CHOICE ? 0 : PER>(first, last, id.tg_x * (EPI == EPI_ACT ? BN / 2 : BN), GroupTable<E, PAIRS>::pair_of(table), own1, own2, x,
                                                                           out, memory, id);
}

}  // namespace fk
