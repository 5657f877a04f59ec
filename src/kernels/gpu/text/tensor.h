// Products of many rows on the tensor cores of NVIDIA GPUs, for 16-bit activations. CUDA only: by mma.sync from
// compute capability 8.0, by wgmma on 9.0.
//
// A tile of BM rows of x and BN of the matrix goes through shared memory 64 columns at a time, STAGES tiles in
// flight. Weights of T are copied as they lie; all others are decoded in registers, exactly, and rounded to T once.
// An output's sum runs over the columns in order, 16 at a time, whatever the tile: its bits depend on its row alone.
namespace fk {

// ---- instructions
FK_FN uint shared_address(const void* p) { return (uint)__cvta_generic_to_shared(p); }
// 16 bytes to shared memory without registers; zeros where there is nothing.
FK_FN void copy16(uint to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
FK_FN void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> FK_FN void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
// A barrier in shared memory: a phase of it ends when so many threads have arrived, and what the copy engine was to bring is there.
FK_FN void barrier_begins(uint bar, uint arrivals = 1u) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory"); }
FK_FN void barrier_arrive(uint bar) { asm volatile("{.reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0];}" ::"r"(bar) : "memory"); }
// Until the phase with this parity has ended.
FK_FN void barrier_wait(uint bar, uint parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again;}" ::"r"(bar), "r"(parity) : "memory");
#else
    asm volatile("{.reg .pred p; again: mbarrier.test_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again;}" ::"r"(bar), "r"(parity) : "memory");
#endif
}
// From compute capability 9.0 on: bytes that the copy engine brings, a multiple of 16, and the barrier that counts them; one thread
// tells it what to expect.
FK_FN void barriers_began() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
FK_FN void barrier_expects(uint bar, uint bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory"); }
FK_FN void copy_bulk(uint to, const void* from, uint bytes, uint bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(bar) : "memory");
}
FK_FN void store16(uint to, uint a, uint b, uint c, uint d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
FK_FN void load_matrices(uint from, uint* r) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
FK_FN void load_matrices_turned(uint from, uint* r) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
// An 8x8 matrix of 16-bit values turned: of a register that has row lane / 4, columns lane % 4 * 2 and + 1.
FK_FN uint turn_matrix(uint a) {
    uint r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(a));
    return r;
}
// A barrier for some of a threadgroup's simdgroups, by its number (not 0, which is FK_BARRIER()).
template <int WHICH, int THREADS> FK_FN void barrier_among() { asm volatile("bar.sync %0, %1;" ::"n"(WHICH), "n"(THREADS) : "memory"); }

FK_FN float exp2_fast(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

#define FK_TEN(t) "%" t "0, %" t "1, %" t "2, %" t "3, %" t "4, %" t "5, %" t "6, %" t "7, %" t "8, %" t "9"
#define FK_SUMS8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FK_SUMS32(i) FK_SUMS8(i), FK_SUMS8(i + 8), FK_SUMS8(i + 16), FK_SUMS8(i + 24)
#define FK_TENSOR(TYPE, NAME)                                                                                                              \
    struct TYPE##Tensor {                                                                                                                  \
        /* d[16][8] += a[16][16] * b[8][16]: rows lane / 4 and + 8, columns lane % 4 * 2 and + 1 */                                        \
        static FK_FN void mma(float* d, const uint* a, const uint* b) {                                                                    \
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                                  \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                              \
        }                                                                                                                                  \
        /* Two floats rounded to nearest, the first in the low half. */                                                                    \
        static FK_FN uint two(float a, float b) {                                                                                          \
            uint r;                                                                                                                        \
            asm("cvt.rn." NAME "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));                                                           \
            return r;                                                                                                                      \
        }                                                                                                                                  \
        /* The same, with the largest number in place of infinity. */                                                                      \
        static FK_FN uint two_finite(float a, float b) {                                                                                   \
            uint r;                                                                                                                        \
            asm("cvt.rn.satfinite." NAME "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));                                                 \
            return r;                                                                                                                      \
        }                                                                                                                                  \
        FK_WGMMA(NAME)                                                                                                                     \
    };
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define FK_WGMMA(NAME)                                                                                                                     \
    static FK_FN void group_mma(float (&d)[32], ulong a, ulong b) {                                                                        \
        asm volatile("{.reg .pred p; setp.eq.u32 p, 1, 1; wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " {" FK_TEN("") ", " FK_TEN("1") ", " \
                     FK_TEN("2") ", %30, %31}, %32, %33, p, 1, 1, 0, 0;}" : FK_SUMS32(0) : "l"(a), "l"(b));                                \
    }                                                                                                                                      \
    static FK_FN void group_mma(float (&d)[64], ulong a, ulong b) {                                                                        \
        asm volatile("{.reg .pred p; setp.eq.u32 p, 1, 1; wgmma.mma_async.sync.aligned.m64n128k16.f32." NAME "." NAME " {" FK_TEN("") ", " FK_TEN("1") ", " \
                     FK_TEN("2") ", " FK_TEN("3") ", " FK_TEN("4") ", " FK_TEN("5") ", %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0;}"     \
                     : FK_SUMS32(0), FK_SUMS32(32) : "l"(a), "l"(b));                                                                      \
    }                                                                                                                                      \
    static FK_FN void group_mma(float (&d)[128], ulong a, ulong b) {                                                                       \
        asm volatile("{.reg .pred p; setp.eq.u32 p, 1, 1; wgmma.mma_async.sync.aligned.m64n256k16.f32." NAME "." NAME " {" FK_TEN("") ", " FK_TEN("1") ", " \
                     FK_TEN("2") ", " FK_TEN("3") ", " FK_TEN("4") ", " FK_TEN("5") ", " FK_TEN("6") ", " FK_TEN("7") ", " FK_TEN("8") ", " FK_TEN("9") ", "   \
                     FK_TEN("10") ", " FK_TEN("11") ", %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, p, 1, 1, 0, 0;}"       \
                     : FK_SUMS32(0), FK_SUMS32(32), FK_SUMS32(64), FK_SUMS32(96) : "l"(a), "l"(b));                                        \
    }                                                                                                                                      \
    /* d = a * b, or with `add` added to it. */                                                                                            \
    static FK_FN void group_mma(float (&d)[32], ulong a, ulong b, bool add) {                                                              \
        asm volatile("{.reg .pred p; setp.ne.s32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " {" FK_TEN("") ", " FK_TEN("1") ", " \
                     FK_TEN("2") ", %30, %31}, %32, %33, p, 1, 1, 0, 0;}" : FK_SUMS32(0) : "l"(a), "l"(b), "r"((int)add));                 \
    }                                                                                                                                      \
    /* The same with rows of a in registers, as mma() has them. TURNED: columns of b are neighbours in memory. */                          \
    template <int TURNED> static FK_FN void group_mma(float (&d)[32], const uint* a, ulong b, bool add) {                                  \
        asm volatile("{.reg .pred p; setp.ne.s32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " {"                \
                     FK_TEN("") ", " FK_TEN("1") ", " FK_TEN("2") ", %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;}"              \
                     : FK_SUMS32(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(TURNED));                     \
    }                                                                                                                                      \
    template <int TURNED> static FK_FN void group_mma(float (&d)[64], const uint* a, ulong b, bool add) {                                  \
        asm volatile("{.reg .pred p; setp.ne.s32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." NAME "." NAME " {"               \
                     FK_TEN("") ", " FK_TEN("1") ", " FK_TEN("2") ", " FK_TEN("3") ", " FK_TEN("4") ", " FK_TEN("5") ", %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;}" \
                     : FK_SUMS32(0), FK_SUMS32(32) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(TURNED));      \
    }                                                                                                                                      \
    template <int TURNED> static FK_FN void group_mma(float (&d)[128], const uint* a, ulong b, bool add) {                                 \
        asm volatile("{.reg .pred p; setp.ne.s32 p, %133, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32." NAME "." NAME " {"              \
                     FK_TEN("") ", " FK_TEN("1") ", " FK_TEN("2") ", " FK_TEN("3") ", " FK_TEN("4") ", " FK_TEN("5") ", " FK_TEN("6") ", " FK_TEN("7") ", " FK_TEN("8") ", " FK_TEN("9") ", " FK_TEN("10") ", " FK_TEN("11") ", %120, %121, %122, %123, %124, %125, %126, %127}, {%128, %129, %130, %131}, %132, p, 1, 1, %134;}" \
                     : FK_SUMS32(0), FK_SUMS32(32), FK_SUMS32(64), FK_SUMS32(96) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(TURNED)); \
    }
#else
#define FK_WGMMA(NAME)
#endif
FK_TENSOR(Bf16, "bf16")
FK_TENSOR(F16, "f16")
template <class T> struct TensorOf;
template <> struct TensorOf<Bf16> { typedef Bf16Tensor X; };
template <> struct TensorOf<F16> { typedef F16Tensor X; };

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Around products of a group of four simdgroups: before them, when registers of theirs have been written; after them; and until
// all but the last N of such ends have come true.
FK_FN void group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FK_FN void group_ends() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> FK_FN void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
#endif

// ---- tiles
// 64 columns of 16 bits are a row of eight 16-byte chunks, exchanged so that eight rows of one chunk lie in different
// banks; it is also the arrangement that wgmma reads ("128-byte swizzle").
FK_FN uint tile_at(uint row, uint chunk) { return row * 128u + ((chunk ^ (row & 7u)) << 4); }
// What wgmma takes for a tile of such rows: the address, 1024 bytes from eight rows to the next eight, the swizzle.
FK_FN ulong tile_descriptor(uint address) { return (ulong)((address & 0x3ffffu) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62); }

template <class T, class F> struct Copied { enum { YES = 0, STRIDE = 0 }; };
template <class T, int K, int S> struct Copied<T, Dense<T, K, S, 1> > { enum { YES = 1, STRIDE = S }; };

// The matrix rows of a tile. H > 0: H rows of the first matrix and H of the second in turn.
template <int BN, int H> struct TileRows {
    static FK_FN bool second(uint r) { return H > 0 && r % (2 * H) >= H; }
    static FK_FN uint row(uint r, uint n0) { return H > 0 ? n0 + r / (2 * H) * H + r % H : n0 + r; }
};
template <int BN> struct TileRows<BN, 0> {
    static FK_FN bool second(uint) { return false; }
    static FK_FN uint row(uint r, uint n0) { return n0 + r; }
};

// By value, so that a choice that differs between threads stays in registers.
FK_FN Planes either(bool second, const Planes& a, const Planes& b) {
    const Planes p = {second ? b.codes : a.codes, second ? b.high : a.high, second ? b.scales : a.scales, second ? b.offsets : a.offsets,
                      second ? b.super_scales : a.super_scales, second ? b.super_mins : a.super_mins};
    return p;
}

// The weights of a tile, by NT threads.
template <class T, class F, int K, int N, int BN, int H, int NT> struct WeightTile {
    typedef typename TensorOf<T>::X X;
    typedef TileRows<BN, H> Rows;
    enum { DIRECT = Copied<T, F>::YES, PARTS = 64 / F::E, UNITS = DIRECT ? 1 : BN * PARTS / NT };
    uint q[UNITS * F::Q], a[UNITS * F::A];

    // Copied weights: into shared memory, to be waited for.
    FK_FN void copy(const Planes& w1, const Planes& w2, uint n0, uint kt, uint to, Ids id) const {
        FK_UNROLL for (uint j = 0; j < BN * 8 / NT; ++j) {
            const uint r = id.tid / 8 + j * (NT / 8), c = id.tid % 8, n = Rows::row(r, n0), k = kt * 64 + c * 8;
            const bool there = (N % BN == 0 || n < N) && (K % 64 == 0 || k < K);
            copy16(to + tile_at(r, c), (Rows::second(r) ? w2.codes : w1.codes) + (ulong)(there ? n : 0u) * Copied<T, F>::STRIDE + (there ? k : 0u) * 2, there);
        }
    }
    // All others: loaded into registers, and decoded into shared memory later.
    FK_FN void load(const Planes& w1, const Planes& w2, uint n0, uint kt, Ids id) {
        FK_UNROLL for (uint j = 0; j < UNITS; ++j) {
            const uint i = id.tid + j * NT, r = i / PARTS, n = min(Rows::row(r, n0), (uint)(N - 1)), unit = min(kt * PARTS + i % PARTS, (uint)(F::UNITS - 1));
            F::load(either(Rows::second(r), w1, w2), n, unit, q + j * F::Q, a + j * F::A);
        }
    }
    FK_FN void store(const Planes& w1, const Planes& w2, uint n0, uint kt, uint to, Ids id) const {
        FK_UNROLL for (uint j = 0; j < UNITS; ++j) {
            const uint i = id.tid + j * NT, r = i / PARTS, unit = kt * PARTS + i % PARTS, n = min(Rows::row(r, n0), (uint)(N - 1));
            float f[F::E];
            F::values(either(Rows::second(r), w1, w2), n, min(unit, (uint)(F::UNITS - 1)), q + j * F::Q, a + j * F::A, f);
            if (K % 64 != 0 && unit >= F::UNITS) { FK_UNROLL for (uint e = 0; e < F::E; ++e) f[e] = 0.0f; }
            FK_UNROLL for (uint c = 0; c < F::E / 8; ++c)
                store16(to + tile_at(r, i % PARTS * (F::E / 8) + c), X::two(f[8 * c], f[8 * c + 1]), X::two(f[8 * c + 2], f[8 * c + 3]), X::two(f[8 * c + 4], f[8 * c + 5]),
                        X::two(f[8 * c + 6], f[8 * c + 7]));
        }
    }
};

// The sums of a tile: BM * BN of them in 2 * BM threads, 64 rows to four simdgroups.
//   mma.sync: a simdgroup has all 64 rows and BN / 4 columns; wgmma: 16 rows and all columns.
template <class T, int BM, int BN, int WGMMA> struct TileSums {
    typedef typename TensorOf<T>::X X;
    enum { MT = WGMMA ? 1 : 4, COLUMNS = WGMMA ? BN : BN / 4, NTL = COLUMNS / 8 };
    float d[MT * NTL * 4];

    static FK_FN uint row0(Ids id) { return WGMMA ? id.sg * 16 : id.sg / 4 * 64; }
    static FK_FN uint column0(Ids id) { return WGMMA ? 0u : id.sg % 4 * COLUMNS; }
    FK_FN void clear() { FK_UNROLL for (uint i = 0; i < MT * NTL * 4; ++i) d[i] = 0.0f; }
    FK_FN void add(uint xs, uint ws, Ids id) {
        if (WGMMA) add_wide(xs + id.sg / 4 * (64 * 128), ws);
        else add_narrow(xs, ws, id);
    }
    FK_FN void add_narrow(uint xs, uint ws, Ids id) {
        FK_UNROLL for (uint ks = 0; ks < 4; ++ks) {
            uint a[MT * 4];
            FK_UNROLL for (uint mt = 0; mt < MT; ++mt) load_matrices(xs + tile_at(row0(id) + mt * 16 + id.lane % 16, ks * 2 + id.lane / 16), a + mt * 4);
            FK_UNROLL for (uint nt = 0; nt < NTL; nt += 2) {
                uint b[4];
                load_matrices(ws + tile_at(column0(id) + nt * 8 + id.lane / 16 * 8 + id.lane % 8, ks * 2 + id.lane / 8 % 2), b);
                FK_UNROLL for (uint mt = 0; mt < MT; ++mt) {
                    X::mma(d + (mt * NTL + nt) * 4, a + mt * 4, b);
                    X::mma(d + (mt * NTL + nt + 1) * 4, a + mt * 4, b + 2);
                }
            }
        }
    }
    FK_FN void add_wide(uint xs, uint ws) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        group_fence();
        FK_UNROLL for (uint ks = 0; ks < 4; ++ks) X::group_mma(d, tile_descriptor(xs) + ks * 2, tile_descriptor(ws) + ks * 2);
        group_ends();
#endif
    }
    template <int LEFT> static FK_FN void wait() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if (WGMMA) group_wait<LEFT>();
#endif
    }
};

// What a product's result goes through; a thread has columns n and n + 1 of row m.
template <class T, int N, int EPI, int ACT, int BIAS, int F32_OUT> struct Finish {
    const float *bias1, *bias2;
    const typename T::S* residual;
    typename T::S* y;
    float* y32;
    float global1, global2, softcap;
    FK_FN float one(ulong at, uint n, float sum, float up) const {
        return finished<T, EPI, ACT, BIAS, F32_OUT>(sum * global1, EPI == EPI_ACT ? up * global2 : 0.0f, EPI == EPI_ADD ? T::get(residual[at]) : 0.0f,
                                                    bias1, bias2, n, softcap);
    }
    FK_FN void two(uint m, uint n, float s0, float s1, float up0, float up1) const {
        const ulong at = (ulong)m * N + n;
        if (n >= N) return;
        if (!F32_OUT && N % 2 == 0) {
            *(uint*)(y + at) = TensorOf<T>::X::two(one(at, n, s0, up0), one(at + 1, n + 1, s1, up1));
            return;
        }
        const float v0 = one(at, n, s0, up0);
        if (F32_OUT) y32[at] = v0;
        else y[at] = T::put(v0);
        if (n + 1 >= N) return;
        const float v1 = one(at + 1, n + 1, s1, up1);
        if (F32_OUT) y32[at + 1] = v1;
        else y[at + 1] = T::put(v1);
    }
};

// One tile: rows m0 .. of `rows`, row m of x being from[m] / K_CHOICES of `x` when there is such a list, matrix rows
// from n0 on. `memory`: STAGES * (BM + BN) * 128 bytes and 1024 to align them.
template <class T, class F, int K, int N, int BM, int BN, int STAGES, int WGMMA, int EPI, int PER, class Done>
FK_FN void tensor_tile(const Planes& w1, const Planes& w2, const typename T::S* x, const int* from, uint m0, uint rows, uint n0, const Done& done, uint4* memory, Ids id) {
    enum { NT = 2 * BM, KT = (K + 63) / 64, AHEAD = WGMMA ? STAGES - 2 : STAGES - 1, H = EPI == EPI_ACT ? (WGMMA ? BN / 2 : BN / 8) : 0,
           STAGE = (BM + BN) * 128 };
    typedef TileSums<T, BM, BN, WGMMA> Sums;
    const uint base = (shared_address(memory) + 1023u) & ~1023u;
    WeightTile<T, F, K, N, BN, H, NT> weights;
    const typename T::S* row[4];
    FK_UNROLL for (uint j = 0; j < 4; ++j) {
        const uint m = min(m0 + id.tid / 8 + j * (NT / 8), rows - 1u);
        row[j] = x + (ulong)(from ? (uint)from[m] / PER : m) * K;
    }
    const auto load_x = [&](uint kt) {
        const uint to = base + kt % STAGES * STAGE, c = id.tid % 8, k = kt * 64 + c * 8;
        const bool there = K % 64 == 0 || k < K;
        FK_UNROLL for (uint j = 0; j < 4; ++j) copy16(to + tile_at(id.tid / 8 + j * (NT / 8), c), row[j] + (there ? k : 0u), there);
    };
    const auto weights_to = [&](uint kt) { return base + kt % STAGES * STAGE + BM * 128u; };
    FK_UNROLL for (uint s = 0; s < AHEAD; ++s) {
        if (s < KT) {
            load_x(s);
            if (weights.DIRECT) {
                weights.copy(w1, w2, n0, s, weights_to(s), id);
            } else {
                weights.load(w1, w2, n0, s, id);
                weights.store(w1, w2, n0, s, weights_to(s), id);
            }
        }
        copies_end();
    }
    if (!weights.DIRECT && AHEAD < KT) weights.load(w1, w2, n0, AHEAD, id);
    Sums sums;
    sums.clear();
    FK_NO_UNROLL for (uint kt = 0; kt < KT; ++kt) {
        copies_wait<AHEAD - 1>();
        if (WGMMA) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        FK_BARRIER();   // this tile is there, and the one that the next copies replace has been used
        const uint next = kt + AHEAD, xs = base + kt % STAGES * STAGE;
        if (WGMMA) sums.add(xs, xs + BM * 128u, id);
        if (next < KT) {
            load_x(next);
            if (weights.DIRECT) {
                weights.copy(w1, w2, n0, next, weights_to(next), id);
            } else {
                weights.store(w1, w2, n0, next, weights_to(next), id);
                if (next + 1 < KT) weights.load(w1, w2, n0, next + 1, id);
            }
        }
        copies_end();
        if (!WGMMA) sums.add(xs, xs + BM * 128u, id);
        Sums::template wait<1>();
    }
    Sums::template wait<0>();
    enum { PAIRS = EPI == EPI_ACT ? Sums::NTL / 2 : Sums::NTL };
    const uint column = EPI == EPI_ACT ? Sums::column0(id) / 2 : Sums::column0(id);
    FK_UNROLL for (uint mt = 0; mt < Sums::MT; ++mt)
        FK_UNROLL for (uint half = 0; half < 2; ++half) {
            const uint m = m0 + Sums::row0(id) + mt * 16 + half * 8 + id.lane / 4;
            if (m >= rows) continue;
            FK_UNROLL for (uint nt = 0; nt < PAIRS; ++nt) {
                const float* s = sums.d + (mt * Sums::NTL + nt) * 4 + half * 2;
                const float* up = EPI == EPI_ACT ? s + PAIRS * 4 : s;
                done.two(m, n0 + column + nt * 8 + id.lane % 4 * 2, s[0], s[1], up[0], up[1]);
            }
        }
}

// Neighbouring threadgroups take the same weights and different rows, so that a wave reads few weights.
template <class T, class F, int K, int N, int BM, int BN, int STAGES, int WGMMA, int EPI, int ACT, int BIAS, int F32_OUT, int OUT>
FK_FN void gemm_tensor(const int* step, const Planes& w1, const Planes& w2, const typename T::S* x, const float* bias1, const float* bias2,
                       const typename T::S* residual, typename T::S* y, float* y32, float global1, float global2, float softcap, uint4* memory, Ids id) {
    FK_WAIT_INPUTS();
    const uint rows = (uint)step[OUT ? STEP_OUTPUTS : STEP_ROWS], linear = id.tg_y * id.n_x + id.tg_x, m0 = linear % gridDim.y * BM;
    const uint n0 = linear / gridDim.y * (EPI == EPI_ACT ? BN / 2 : BN);
    if (m0 >= rows) return;
    const Finish<T, N, EPI, ACT, BIAS, F32_OUT> done = {bias1, bias2, residual, y, y32, global1, global2, softcap};
    tensor_tile<T, F, K, N, BM, BN, STAGES, WGMMA, EPI, 1>(w1, w2, x, (const int*)0, m0, rows, n0, done, memory, id);
}

// Experts: a block of BM choices of one expert; y, and x if PER_CHOICE, in the table's order.
template <class T, class F, class STEP1, class STEP2, int K, int N, int E, int PER, int PAIRS, int PER_CHOICE, int SCALED, int BM, int BN, int STAGES, int WGMMA, int EPI, int ACT>
FK_FN void expert_gemm_tensor(const int* step, const int* table, const Planes& w1, const Planes& w2, const float* globals1, const float* globals2, const typename T::S* x,
                              typename T::S* y, float global1, float global2, uint4* memory, Ids id) {
    FK_WAIT_INPUTS();
    if (step[STEP_ROWS] == 0) return;
    uint e, first, last;
    if (!expert_block<E, BM>(table, id.tg_y, e, first, last, id)) return;
    const Finish<T, N, EPI, ACT, 0, 0> done = {(const float*)step, (const float*)step, x, y, (float*)0, SCALED ? globals1[e] : global1, SCALED ? globals2[e] : global2, 0.0f};
    tensor_tile<T, F, K, N, BM, BN, STAGES, WGMMA, EPI, PER>(STEP1::of(w1, e), STEP2::of(w2, e), x, PER_CHOICE ? (const int*)0 : GroupTable<E, PAIRS>::pair_of(table), first, last,
                                                             id.tg_x * (EPI == EPI_ACT ? BN / 2 : BN), done, memory, id);
}

}  // namespace fk
