// Gated DeltaNet: causal convolution, the delta rule, gated norm. Rows of one sequence are neighbours; a row at
// position 0 starts from zero, any other continues the slot's state, and the step leaves the new state there.
namespace fk {

// Where the rows of a threadgroup begin that ends or starts at row `at`: rows that still see their slot's state belong to where
// their sequence begins. So one thread reads a channel's state of a slot, and writes it.
template <int TAPS, int R> FK_FN uint conv_begin(DEVICE const int* step, uint at, uint rows) {
    if (at == 0u || at >= rows) return min(at, rows);
    const int slot = step_slot<R>(step, at - 1u);
    uint seen = 1;   // rows of that sequence before `at`, as far as they matter
    while (seen < TAPS - 1 && seen < at && step_slot<R>(step, at - 1u - seen) == slot) ++seen;
    for (; at < rows && seen < TAPS - 1 && step_slot<R>(step, at) == slot; ++at) ++seen;
    return at;
}

// The end of the sequence that begins at row `first`: its rows are neighbours.
template <int R> FK_FN uint sequence_end(DEVICE const int* step, uint first, uint rows) {
    const int slot = step_slot<R>(step, first);
    uint in = first, out = first + 1u;   // a row of it; then one that is not
    while (out < rows && step_slot<R>(step, out) == slot) {
        const uint next = out + 2u * (out - first);
        in = out;
        out = next;
    }
    out = min(out, rows);
    while (out - in > 1u) {
        const uint middle = in + (out - in) / 2u;
        if (step_slot<R>(step, middle) == slot) in = middle;
        else out = middle;
    }
    return out;
}

// A channel through rows of a step. state: [slot][TAPS - 1][CH], the inputs before the next row, oldest first.
template <class T, int CH, int TAPS, int R> struct ConvChannel {
    float before[TAPS], w[TAPS];   // before[TAPS - 1] is the row's own input
    int slot;
    FK_FN void begin(DEVICE const float* weight, uint c) {
        FK_UNROLL for (uint j = 0; j < TAPS; ++j) {
            w[j] = weight[c * TAPS + j];
            before[j] = 0.0f;
        }
        slot = -1;
    }
    FK_FN bool enters(DEVICE const int* step, uint r) const { return step_slot<R>(step, r) != slot; }
    FK_FN void read(DEVICE const int* step, DEVICE const typename T::S* state, uint r, uint c) {
        slot = step_slot<R>(step, r);
        const bool fresh = step_position<R>(step, r) == 0;
        FK_UNROLL for (uint j = 0; j + 1 < TAPS; ++j) before[j] = fresh ? 0.0f : T::get(state[((ulong)slot * (TAPS - 1) + j) * CH + c]);
    }
    // Row r comes next.
    FK_FN void enter(DEVICE const int* step, DEVICE typename T::S* state, uint r, uint c) {
        if (!enters(step, r)) return;
        end(state, c);
        read(step, state, r, c);
    }
    // The same where the inputs of all rows are in u: what a sequence leaves is written as it begins.
    FK_FN void enter_first(DEVICE const int* step, DEVICE const typename T::S* u, DEVICE typename T::S* state, uint r, uint rows, uint c) {
        if (!enters(step, r)) return;
        read(step, state, r, c);
        const uint count = sequence_end<R>(step, r, rows) - r;
        FK_UNROLL for (uint j = 0; j + 1 < TAPS; ++j) {
            float v = 0.0f;
            FK_UNROLL for (uint i = j + 1; i + 1 < TAPS; ++i)
                if (i == count + j) v = before[i];
            if (count + j >= TAPS - 1) v = T::get(u[(ulong)(r + count + j - (TAPS - 1)) * CH + c]);
            state[((ulong)slot * (TAPS - 1) + j) * CH + c] = T::put(v);
        }
    }
    FK_FN typename T::S push(float u) {
        before[TAPS - 1] = u;
        float sum = 0.0f;
        FK_UNROLL for (uint j = 0; j < TAPS; ++j) sum += w[j] * before[j];
        sum = rounded<T>(sum);
        FK_UNROLL for (uint j = 0; j + 1 < TAPS; ++j) before[j] = before[j + 1];
        return T::put(sum * sigmoid(sum));
    }
    FK_FN void end(DEVICE typename T::S* state, uint c) {
        if (slot < 0) return;
        FK_UNROLL for (uint j = 0; j + 1 < TAPS; ++j) state[((ulong)slot * (TAPS - 1) + j) * CH + c] = T::put(before[j]);
    }
};

// A thread takes a channel through BLOCK rows, or a few more or less (conv_begin()).
template <class T, int CH, int TAPS, int R, int BLOCK, int NT>
FK_FN void conv(DEVICE const int* step, DEVICE const typename T::S* u, DEVICE const float* weight, DEVICE typename T::S* state, DEVICE typename T::S* y, Ids id) {
    static_assert(BLOCK >= TAPS, "a block's rows begin before the next block does");
    FK_WAIT_INPUTS();
    const uint c = id.tg_x * NT + id.tid;
    if (c >= CH) return;
    enum { AHEAD = 16 };   // rows whose inputs are read together
    const uint rows = (uint)step[STEP_ROWS], begin = conv_begin<TAPS, R>(step, id.tg_y * BLOCK, rows), end = conv_begin<TAPS, R>(step, (id.tg_y + 1u) * BLOCK, rows);
    if (begin >= end) return;
    ConvChannel<T, CH, TAPS, R> channel;
    channel.begin(weight, c);
    if (begin > 0u && step_slot<R>(step, begin - 1u) == step_slot<R>(step, begin)) {
        channel.slot = step_slot<R>(step, begin);
        FK_UNROLL for (uint j = 0; j + 1 < TAPS; ++j) channel.before[j] = T::get(u[(ulong)(begin + j - (TAPS - 1)) * CH + c]);
    }
    for (uint first = begin; first < end; first += AHEAD) {
        float x[AHEAD];
        FK_UNROLL for (uint j = 0; j < AHEAD; ++j) x[j] = first + j < end ? T::get(u[(ulong)(first + j) * CH + c]) : 0.0f;
        if (first + AHEAD <= end && step_slot<R>(step, first) == step_slot<R>(step, first + AHEAD - 1)) {   // of one sequence: side by side
            channel.enter_first(step, u, state, first, rows, c);
            FK_UNROLL for (uint j = 0; j < AHEAD; ++j) y[(ulong)(first + j) * CH + c] = channel.push(x[j]);
            continue;
        }
        FK_UNROLL for (uint j = 0; j < AHEAD; ++j) {
            if (first + j >= end) break;
            channel.enter_first(step, u, state, first + j, rows, c);
            y[(ulong)(first + j) * CH + c] = channel.push(x[j]);
        }
    }
}

// log(1 + e^a) without losing small results.
FK_FN float softplus(float a) {
    if (a > 20.0f) return a;
    const float e = exp(a);
    return e < 1e-3f ? e - e * e * (0.5f - e * 0.333333343f) : log(1.0f + e);
}

// Sums over a simdgroup of COLS values (a power of two up to 32): lane i gets that of value i / (32 / COLS). In each step a
// lane keeps half of its values and gives the others away. (By recursion: a loop over W is not always unrolled, and then v
// lies in memory.)
template <int COLS, int W> struct Halved {
    static FK_FN void run(THREAD float* v, uint lane) {
        enum { BIT = 32 / COLS * W };
        const bool upper = (lane & BIT) != 0u;
        FK_UNROLL for (uint j = 0; j < W; ++j) {
            const float low = v[j], high = v[j + W];
            v[j] = (upper ? high : low) + simd_shuffle_xor(upper ? low : high, (ushort)BIT);
        }
        Halved<COLS, W / 2>::run(v, lane);
    }
};
template <int COLS> struct Halved<COLS, 0> {
    static FK_FN void run(THREAD float*, uint) {}
};
template <int COLS> FK_FN float sums_of(THREAD float* v, uint lane) {
    Halved<COLS, COLS / 2>::run(v, lane);
    float sum = v[0];
    FK_UNROLL for (uint bit = 16; bit > 0; bit /= 2)
        if (bit < 32 / COLS) sum += simd_shuffle_xor(sum, (ushort)bit);
    return sum;
}

// What the delta rule takes of one row for COLS columns of a value head: lane i has dimensions i + 32 * n of q and k. As
// it lies in memory, and read without a branch: so nobody waits for it before it is used.
template <class T, int KH, int VH, int KD, int VD, int COLS> struct DeltaRow {
    enum { NK = (KD + 31) / 32 };
    typename T::S q[NK], k[NK], v[COLS];
    FK_FN void load(DEVICE const typename T::S* row, uint h, uint kh, uint first, Ids id) {
        FK_UNROLL for (uint n = 0; n < NK; ++n) {
            const uint i = min(id.lane + 32 * n, (uint)(KD - 1));
            q[n] = row[kh * KD + i];
            k[n] = row[KH * KD + kh * KD + i];
        }
        FK_UNROLL for (uint j = 0; j < COLS; ++j) v[j] = row[2 * KH * KD + h * VD + min(first + j, (uint)(VD - 1))];
    }
};

// The state's rows lane + 32 * n, COLS columns from `first`: [KD][VD] f32 in memory.
template <int KD, int VD, int COLS> struct DeltaColumns {
    enum { NK = (KD + 31) / 32, WHOLE = VD % 4 == 0 && COLS % 4 == 0, TIMES = WHOLE ? COLS / 4 : COLS };
    static FK_FN void load(DEVICE const float* state, uint first, THREAD float* s, Ids id) {
        FK_UNROLL for (uint n = 0; n < NK; ++n)
            FK_UNROLL for (uint j = 0; j < TIMES; ++j) {
                const uint i = id.lane + 32 * n, column = first + j * (COLS / TIMES);
                if (i >= KD || column >= VD) continue;
                if (WHOLE) F32::unpack(*(DEVICE const uint4*)(state + i * VD + column), s + n * COLS + j * 4);
                else s[n * COLS + j] = state[i * VD + column];
            }
    }
    static FK_FN void store(DEVICE float* state, uint first, THREAD const float* s, Ids id) {
        FK_UNROLL for (uint n = 0; n < NK; ++n)
            FK_UNROLL for (uint j = 0; j < TIMES; ++j) {
                const uint i = id.lane + 32 * n, column = first + j * (COLS / TIMES);
                if (i >= KD || column >= VD) continue;
                if (WHOLE) *(DEVICE uint4*)(state + i * VD + column) = F32::pack(s + n * COLS + j * 4);
                else state[i * VD + column] = s[n * COLS + j];
            }
    }
};

// The delta rule: a simdgroup takes COLS columns of a value head, whose state stays in registers from the first row to
// the last; lane i has rows i + 32 * n of it. Simdgroups do not wait for each other. What does not depend on the state
// (decays, gates, and from AHEAD 2 on the lengths of q and k) is computed for 32 rows side by side, lane i row i; the next two rows are on
// their way while one is computed, and what a row reads from the state is added up with what the next row sees of it.
// state: [slot][value head][KD][VD] f32.
template <class T, int KH, int VH, int KD, int VD, int TILED, int NEGATIVE_EXP, int COLS, int AHEAD, int R, int NT>
FK_FN void delta(DEVICE const int* step, DEVICE const typename T::S* c, DEVICE const typename T::S* b, DEVICE const typename T::S* a, DEVICE const float* a_log, DEVICE const float* dt_bias,
                 DEVICE float* state, DEVICE typename T::S* y, Ids id) {
    typedef DeltaRow<T, KH, VH, KD, VD, COLS> Row;
    typedef DeltaColumns<KD, VD, COLS> Columns;
    enum { SHARE = COLS * (NT / 32), BLOCKS = (VD + SHARE - 1) / SHARE, NK = Row::NK, CH = 2 * KH * KD + VH * VD, PER = 32 / (2 * COLS) };   // PER: lanes of a sum
    const uint h = id.tg_x / BLOCKS, first = id.tg_x % BLOCKS * SHARE + id.sg * COLS, kh = TILED ? h % KH : h / (VH / KH);
    const float rate = NEGATIVE_EXP ? a_log[h] : -exp(a_log[h]), bias = dt_bias[h];
    const uint rows = (uint)step[STEP_ROWS];
    float s[NK * COLS];
    FK_UNROLL for (uint i = 0; i < NK * COLS; ++i) s[i] = 0.0f;
    int slot = -1;
    if (rows > 0u) {   // the first row's state: nobody else writes it
        slot = step_slot<R>(step, 0);
        if (step_position<R>(step, 0) != 0) Columns::load(state + ((ulong)slot * VH + h) * (KD * VD), first, s, id);
    }
    FK_WAIT_INPUTS();
    float sums[2 * COLS];   // of the state with k, then what the row before reads with q
    FK_UNROLL for (uint j = 0; j < 2 * COLS; ++j) sums[j] = 0.0f;
    // The result of `row`, from the lanes that have a sum of its columns.
    const uint column = first + (id.lane / PER) % COLS;
    const bool writes = id.lane >= 16u && id.lane % PER == 0u && column < VD;
    if (rows == 0u) return;
    Row next, after;
    next.load(c, h, kh, first, id);
    after = next;
    if (AHEAD > 1 || rows > 1u) after.load(c + (ulong)min(1u, rows - 1u) * CH, h, kh, first, id);
    FK_NO_UNROLL for (uint from = 0; from < rows; from += 32) {
        // Lane i: row from + i.
        const uint own = min(from + id.lane, rows - 1u);
        float q_squares = 0.0f, k_squares = 0.0f;
        FK_NO_UNROLL for (uint j = 0; AHEAD > 1 && j < 32 && from + j < rows; j += AHEAD) {
            float squares[2 * AHEAD];
            FK_UNROLL for (uint i = 0; i < AHEAD; ++i) {
                DEVICE const typename T::S* row = c + (ulong)min(from + j + i, rows - 1u) * CH + kh * KD;
                squares[2 * i] = squares[2 * i + 1] = 0.0f;
                FK_UNROLL for (uint n = 0; n < NK; ++n) {
                    const uint d = id.lane + 32 * n;
                    const float q = d < KD ? T::get(row[d]) : 0.0f, k = d < KD ? T::get(row[KH * KD + d]) : 0.0f;
                    squares[2 * i] = fma(q, q, squares[2 * i]);
                    squares[2 * i + 1] = fma(k, k, squares[2 * i + 1]);
                }
            }
            const float all = sums_of<2 * AHEAD>(squares, id.lane);
            const uint at = id.lane % AHEAD * (32 / AHEAD);
            const float q = simd_shuffle(all, (ushort)at), k = simd_shuffle(all, (ushort)(at + 16 / AHEAD));
            if (id.lane / AHEAD == j / AHEAD) {
                q_squares = q;
                k_squares = k;
            }
        }
        // q and k to unit length; q also by 1 / sqrt(KD).
        const float scale = 1.0f / sqrt((float)KD), q_factor = scale / sqrt(q_squares + 1e-6f), k_factor = 1.0f / sqrt(k_squares + 1e-6f);
        const float decay = exp(rate * softplus(T::get(a[(ulong)own * VH + h]) + bias)), beta = rounded<T>(sigmoid(T::get(b[(ulong)own * VH + h])));
        const int own_slot = step_slot<R>(step, own), own_position = step_position<R>(step, own);
        FK_NO_UNROLL for (uint j = 0; j < 32 && from + j < rows; ++j) {
            const uint r = from + j;
            const Row x = next;
            next = after;
            if (AHEAD > 1 || r + 2u < rows) after.load(c + (ulong)min(r + 2u, rows - 1u) * CH, h, kh, first, id);
            const int now = simd_shuffle(own_slot, (ushort)j);
            if (now != slot) {
                if (slot >= 0) Columns::store(state + ((ulong)slot * VH + h) * (KD * VD), first, s, id);
                FK_UNROLL for (uint i = 0; i < NK * COLS; ++i) s[i] = 0.0f;
                if (simd_shuffle(own_position, (ushort)j) != 0) Columns::load(state + ((ulong)now * VH + h) * (KD * VD), first, s, id);
                slot = now;
            }
            float qf, kf;
            if (AHEAD > 1) {
                qf = simd_shuffle(q_factor, (ushort)j);
                kf = simd_shuffle(k_factor, (ushort)j);
            } else {   // few rows: from what is there already
                float squares[2] = {0.0f, 0.0f};
                FK_UNROLL for (uint n = 0; n < NK; ++n) {
                    const bool there = KD % 32 == 0 || id.lane + 32 * n < KD;
                    const float xq = there ? T::get(x.q[n]) : 0.0f, xk = there ? T::get(x.k[n]) : 0.0f;
                    squares[0] = fma(xq, xq, squares[0]);
                    squares[1] = fma(xk, xk, squares[1]);
                }
                const float all = sums_of<2>(squares, id.lane);
                qf = scale / sqrt(simd_shuffle(all, (ushort)0) + 1e-6f);
                kf = 1.0f / sqrt(simd_shuffle(all, (ushort)16) + 1e-6f);
            }
            const float d = simd_shuffle(decay, (ushort)j), gate = simd_shuffle(beta, (ushort)j);
            float q[NK], k[NK];
            FK_UNROLL for (uint n = 0; n < NK; ++n) {
                const bool there = KD % 32 == 0 || id.lane + 32 * n < KD;
                q[n] = there ? T::get(x.q[n]) * qf : 0.0f;
                k[n] = there ? T::get(x.k[n]) * kf : 0.0f;
                FK_UNROLL for (uint i = 0; i < COLS; ++i) {
                    s[n * COLS + i] *= d;
                    sums[i] = fma(s[n * COLS + i], k[n], sums[i]);
                }
            }
            const float both = sums_of<2 * COLS>(sums, id.lane);
            if (r > 0u && writes) y[((ulong)(r - 1u) * VH + h) * VD + column] = T::put(both);
            float change[COLS];
            FK_UNROLL for (uint i = 0; i < COLS; ++i) change[i] = gate * (T::get(x.v[i]) - simd_shuffle(both, (ushort)(PER * i)));
            FK_UNROLL for (uint i = 0; i < 2 * COLS; ++i) sums[i] = 0.0f;
            FK_UNROLL for (uint n = 0; n < NK; ++n)
                FK_UNROLL for (uint i = 0; i < COLS; ++i) {
                    s[n * COLS + i] = fma(k[n], change[i], s[n * COLS + i]);
                    sums[COLS + i] = fma(s[n * COLS + i], q[n], sums[COLS + i]);
                }
        }
    }
    const float last = sums_of<2 * COLS>(sums, id.lane);
    if (writes) y[((ulong)(rows - 1u) * VH + h) * VD + column] = T::put(last);
    Columns::store(state + ((ulong)slot * VH + h) * (KD * VD), first, s, id);
}

// y = norm(x) * w, times silu(z), head by head: a simdgroup takes a head of row tg_y.
template <class T, int HEADS, int W, int NT>
FK_FN void gated_norm(DEVICE const int* step, DEVICE const typename T::S* x, DEVICE const typename T::S* z, DEVICE const float* weight, DEVICE typename T::S* y, float eps, Ids id) {
    FK_WAIT_INPUTS();
    enum { OWN = (W + 31) / 32 };   // of a lane
    const uint head = id.tg_x * (NT / 32) + id.sg;
    if (head >= HEADS || (int)id.tg_y >= step[STEP_ROWS]) return;
    const ulong at = ((ulong)id.tg_y * HEADS + head) * W;
    float v[OWN], g[OWN], squares = 0.0f;
    FK_UNROLL for (uint j = 0; j < OWN; ++j) {
        const uint i = id.lane + 32 * j;
        v[j] = i < W ? T::get(x[at + i]) : 0.0f;
        g[j] = i < W ? T::get(z[at + i]) : 0.0f;
    }
    FK_UNROLL for (uint j = 0; j < OWN; ++j)
        if (id.lane + 32 * j < W) squares = fma(v[j], v[j], squares);
    const float factor = 1.0f / sqrt(simd_sum(squares) / (float)W + eps);
    FK_UNROLL for (uint j = 0; j < OWN; ++j) {
        const uint i = id.lane + 32 * j;
        if (i < W) y[at + i] = T::put(rounded<T>(weight[i] * rounded<T>(v[j] * factor)) * (g[j] * sigmoid(g[j])));
    }
}

}  // namespace fk
