// Mixture of experts. A row's route is 2 * PER words: expert ids, then weights as floats. The experts' matrices lie
// one after the other in each plane.
namespace fk {

// The PER largest of E probabilities of row tg_y, the lower id of equals; 32 threads.
template <class T, int E, int PER, int NORMALISE, int ROUND, int SCALED>
FK_FN void route(DEVICE const int* step, DEVICE const typename T::S* logits, DEVICE const float* expert_scale, DEVICE uint* routes, float logit_scale, Ids id) {
    enum { OWN = (E + 31) / 32 };
    FK_WAIT_INPUTS();
    if ((int)id.tg_y >= step[STEP_ROWS]) return;
    float p[OWN], top = -INFINITY, sum = 0.0f;
    FK_UNROLL for (uint i = 0; i < OWN; ++i) {
        const uint e = i * 32 + id.lane;
        p[i] = e < E ? T::get(logits[(ulong)id.tg_y * E + e]) * logit_scale : -INFINITY;
        top = max(top, p[i]);
    }
    top = simd_max(top);
    FK_UNROLL for (uint i = 0; i < OWN; ++i) {
        p[i] = exp(p[i] - top);
        if (i * 32 + id.lane >= E) p[i] = 0.0f;
        sum += p[i];
        // A row that is not a number keeps ids inside the table; below 0: taken, or not there.
        if (!(p[i] >= 0.0f)) p[i] = 0.0f;
        if (i * 32 + id.lane >= E) p[i] = -1.0f;
    }
    sum = simd_sum(sum);
    uint chosen[PER];
    float weight[PER], of_chosen = 0.0f;
    FK_UNROLL for (uint k = 0; k < PER; ++k) {
        float best = -1.0f;
        uint at = 0;
        FK_UNROLL for (uint i = 0; i < OWN; ++i)
            if (p[i] > best) {
                best = p[i];
                at = i * 32 + id.lane;
            }
        const float most = simd_max(best);
        chosen[k] = (uint)E - simd_max(best == most ? (uint)E - at : 0u);   // the lowest of equals
        FK_UNROLL for (uint i = 0; i < OWN; ++i)
            if (i * 32 + id.lane == chosen[k]) p[i] = -1.0f;
        weight[k] = most / sum;
        of_chosen += weight[k];
    }
    if (id.lane > 0) return;
    DEVICE uint* out = routes + (ulong)id.tg_y * (2 * PER);
    FK_UNROLL for (uint k = 0; k < PER; ++k) {
        float w = weight[k];
        if (NORMALISE) w /= of_chosen;
        if (SCALED) w *= expert_scale[chosen[k]];
        out[k] = chosen[k];
        out[PER + k] = as_u32(ROUND ? rounded<T>(w) : w);
    }
}

// Choices (row * PER + which) sorted by expert, those of one in the order of rows:
//   [0 .. E] first place of every expert, then the choice at every place, then the place of every choice.
template <int E, int PAIRS> struct GroupTable {
    static FK_FN DEVICE const int* pair_of(DEVICE const int* t) { return t + E + 1; }
    static FK_FN DEVICE const int* place_of(DEVICE const int* t) { return t + E + 1 + PAIRS; }
};
// A simdgroup an expert, tg_x: it counts the choices of lower ones, and places its own. PAIRS: most there can be.
template <int E, int PER, int PAIRS> FK_FN void group(DEVICE const int* step, DEVICE const uint* routes, DEVICE int* table, Ids id) {
    FK_WAIT_INPUTS();
    const uint pairs = (uint)step[STEP_ROWS] * PER, e = id.tg_x;
    uint lower = 0, own = 0;
    for (uint i = id.lane; i < pairs; i += 32) {
        const uint chosen = routes[i / PER * (2 * PER) + i % PER];
        lower += chosen < e ? 1u : 0u;
        own += chosen == e ? 1u : 0u;
    }
    const uint start = simd_sum(lower);
    own = simd_sum(own);
    if (id.lane == 0) {
        table[e] = (int)start;
        if (e == E - 1) table[E] = (int)(start + own);
    }
    if (own == 0u) return;
    uint place = start;
    for (uint base = 0; base < pairs; base += 32) {   // all lanes go round together
        const uint i = base + id.lane;
        const bool mine = i < pairs && routes[min(i, pairs - 1u) / PER * (2 * PER) + min(i, pairs - 1u) % PER] == e;
        const uint all = simd_bits(mine, id.lane);
        if (mine) {
            const uint at = place + count_bits(all & ((1u << id.lane) - 1u));
            table[E + 1 + at] = (int)i;
            table[E + 1 + PAIRS + i] = (int)at;
        }
        place += count_bits(all);
    }
}

// The block-th block of BM choices, each expert beginning a new one: its expert and places [first, last); false past
// the last block. The same for all lanes.
template <int E, int BM> FK_FN bool expert_block(DEVICE const int* table, uint block, THREAD uint& expert, THREAD uint& first, THREAD uint& last, Ids id) {
    uint before = 0, found = 0, place = 0;
    for (uint base = 0; base < E && found == 0u; base += 32) {
        const uint e = base + id.lane;
        const uint own = e < E ? ((uint)(table[min(e + 1, (uint)E)] - table[min(e, (uint)E)]) + BM - 1) / BM : 0u;
        uint upto = own;
        FK_UNROLL for (uint d = 1; d < 32; d <<= 1) {
            const uint other = simd_shuffle(upto, (ushort)(id.lane >= d ? id.lane - d : id.lane));
            if (id.lane >= d) upto += other;
        }
        const uint from = before + upto - own;
        const bool here = block >= from && block < from + own;
        found = simd_max(here ? e + 1 : 0u);
        place = simd_max(here ? (block - from) * BM : 0u);
        before += simd_max(upto);
    }
    if (found == 0u) return false;
    expert = found - 1;
    first = (uint)table[expert] + place;
    last = min((uint)table[expert + 1], first + BM);
    return true;
}

// Bytes from an expert to the next in each plane.
template <ulong C, ulong H, ulong S, ulong O, ulong XS, ulong XM> struct ExpertStep {
    static FK_FN Planes of(THREAD const Planes& p, uint e) {
        Planes o = {p.codes + e * C, p.high + e * H, p.scales + e * S, p.offsets + e * O, p.super_scales + e * XS, p.super_mins + e * XM};
        return o;
    }
};

// Up to eight rows: threadgroup tg_y takes one choice and reads that expert alone. y: a row a choice. PER_CHOICE: so is x.
template <class T, class F, class STEP1, class STEP2, int K, int N, int PER, int PER_CHOICE, int SCALED, int NR, int U, int STAGED, int EPI, int ACT, int NT>
FK_FN void expert_matvec(DEVICE const int* step, DEVICE const uint* routes, THREAD const Planes& w1, THREAD const Planes& w2, DEVICE const float* globals1,
                         DEVICE const float* globals2, DEVICE const typename T::S* x, DEVICE typename T::S* y, float global1, float global2, THREADGROUP uint4* xs,
                         THREADGROUP float* red, Ids id) {
    FK_WAIT_INPUTS();
    const uint row = id.tg_y / PER;
    if ((int)row >= step[STEP_ROWS]) return;
    const uint e = routes[row * (2 * PER) + id.tg_y % PER];
    const Planes own1 = STEP1::of(w1, e), own2 = STEP2::of(w2, e);
    DEVICE const typename T::S* from = x + (ulong)(PER_CHOICE ? id.tg_y : row) * K;
    MatvecInputs<T> in = {step, from, (DEVICE const float*)step, from, (DEVICE const float*)step, (DEVICE const float*)step, from, (DEVICE const float*)step, y,
                          y + (ulong)id.tg_y * N, (DEVICE float*)(ulong)0, 0.0f, SCALED ? globals1[e] : global1, SCALED ? globals2[e] : global2, 0.0f};
    matvec<T, F, K, N, 1, NR, U, 1, 0, STAGED, PRO_NONE, 1, EPI, ACT, 1, 1, 0, 0, 0, 1, NT>(in, own1, own2, xs, red, id);
}

// More rows: threadgroup tg_y takes a block of 32 choices of one expert. y, and x if PER_CHOICE, in the table's order.
template <class T, class F, class STEP1, class STEP2, int K, int N, int E, int PER, int PAIRS, int PER_CHOICE, int SCALED, int EPI, int ACT>
FK_FN void expert_gemm(DEVICE const int* step, DEVICE const int* table, THREAD const Planes& w1, THREAD const Planes& w2, DEVICE const float* globals1,
                       DEVICE const float* globals2, DEVICE const typename T::S* x, DEVICE typename T::S* y, float global1, float global2, THREADGROUP float* xs,
                       THREADGROUP float* ws, THREADGROUP float* ws2, Ids id) {
    FK_WAIT_INPUTS();
    if (step[STEP_ROWS] == 0) return;
    uint e, first, last;
    if (!expert_block<E, 32>(table, id.tg_y, e, first, last, id)) return;
    const Planes own1 = STEP1::of(w1, e), own2 = STEP2::of(w2, e);
    gemm_tile<T, F, K, N, PER_CHOICE ? 0 : PER, EPI, ACT, 0, 0>(first, last, id.tg_x * 64, GroupTable<E, PAIRS>::pair_of(table), own1, own2, x, (DEVICE const float*)step,
                                                               (DEVICE const float*)step, x, y, (DEVICE float*)(ulong)0, SCALED ? globals1[e] : global1,
                                                               SCALED ? globals2[e] : global2, 0.0f, xs, ws, ws2, id);
}

// y = r(sum of r(choice * weight)), with a shared expert r(that + r(r(sigmoid(gate)) * shared)). A thread takes an
// element of row tg_y. PAIRS > 0: choices lie in a table's order. RESIDUAL: y = r(residual + r(that)).
template <class T, int PER, int K, int E, int PAIRS, int SHARED, int RESIDUAL, int NT>
FK_FN void combine(DEVICE const int* step, DEVICE const typename T::S* x, DEVICE const int* table, DEVICE const uint* routes, DEVICE const typename T::S* shared,
                   DEVICE const typename T::S* gate, DEVICE const typename T::S* residual, DEVICE typename T::S* y, Ids id) {
    FK_WAIT_INPUTS();
    const uint c = id.tg_x * NT + id.tid, row = id.tg_y;
    if (c >= K || (int)row >= step[STEP_ROWS]) return;
    DEVICE const uint* weights = routes + row * (2 * PER) + PER;
    float sum = 0.0f;
    FK_UNROLL for (uint k = 0; k < PER; ++k) {
        const uint pair = row * PER + k, at = PAIRS > 0 ? (uint)GroupTable<E, PAIRS>::place_of(table)[pair] : pair;
        sum += rounded<T>(T::get(x[(ulong)at * K + c]) * as_f32(weights[k]));
    }
    if (SHARED) sum = rounded<T>(sum) + rounded<T>(rounded<T>(sigmoid(T::get(gate[row]))) * T::get(shared[(ulong)row * K + c]));
    if (RESIDUAL) sum = T::get(residual[(ulong)row * K + c]) + rounded<T>(sum);
    y[(ulong)row * K + c] = T::put(sum);
}

}  // namespace fk
