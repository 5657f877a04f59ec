// Gated DeltaNet: causal convolution, the delta rule, gated norm. Rows of one sequence are neighbours; a row at
// position 0 starts from zero, any other continues the slot's state, and the step leaves the new state there.
namespace fk {

// A channel through the rows of a step. state: [slot][TAPS - 1][CH], the inputs before the next row, oldest first.
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
    // Row r comes next.
    FK_FN void enter(DEVICE const int* step, DEVICE typename T::S* state, uint r, uint c) {
        const int s = step_slot<R>(step, r);
        if (s == slot) return;
        end(state, c);
        slot = s;
        const bool fresh = step_position<R>(step, r) == 0;
        FK_UNROLL for (uint j = 0; j + 1 < TAPS; ++j) before[j] = fresh ? 0.0f : T::get(state[((ulong)slot * (TAPS - 1) + j) * CH + c]);
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

// A thread takes a channel through all rows.
template <class T, int CH, int TAPS, int R, int NT>
FK_FN void conv(DEVICE const int* step, DEVICE const typename T::S* u, DEVICE const float* weight, DEVICE typename T::S* state, DEVICE typename T::S* y, Ids id) {
    FK_WAIT_INPUTS();
    const uint c = id.tg_x * NT + id.tid;
    if (c >= CH) return;
    ConvChannel<T, CH, TAPS, R> channel;
    channel.begin(weight, c);
    const uint rows = (uint)step[STEP_ROWS];
    for (uint r = 0; r < rows; ++r) {
        channel.enter(step, state, r, c);
        y[(ulong)r * CH + c] = channel.push(T::get(u[(ulong)r * CH + c]));
    }
    channel.end(state, c);
}

// log(1 + e^a) without losing small results.
FK_FN float softplus(float a) {
    if (a > 20.0f) return a;
    const float e = exp(a);
    return e < 1e-3f ? e - e * e * (0.5f - e * 0.333333343f) : log(1.0f + e);
}

// The delta rule for 32 columns of a value head (tg_x): the state stays in registers from the first row to the last,
// thread (g, column) has the rows i = g + KG * n of it. state: [slot][value head][KD][VD] f32.
// qk: 2 * KD floats, red: KG * 32 and 32 floats.
template <class T, int KH, int VH, int KD, int VD, int TILED, int NEGATIVE_EXP, int KG, int R>
FK_FN void delta(DEVICE const int* step, DEVICE const typename T::S* c, DEVICE const typename T::S* b, DEVICE const typename T::S* a, DEVICE const float* a_log, DEVICE const float* dt_bias,
                 DEVICE float* state, DEVICE typename T::S* y, THREADGROUP float* qk, THREADGROUP float* parts, THREADGROUP float* red, Ids id) {
    enum { BLOCKS = (VD + 31) / 32, NK = (KD + KG - 1) / KG, NT = KG * 32, CH = 2 * KH * KD + VH * VD };
    const uint h = id.tg_x / BLOCKS, column = id.tg_x % BLOCKS * 32 + id.lane, g = id.sg, kh = TILED ? h % KH : h / (VH / KH);
    const bool live = column < VD;
    const float rate = NEGATIVE_EXP ? a_log[h] : -exp(a_log[h]), bias = dt_bias[h];
    const int rows = step[STEP_ROWS];
    float s[NK];
    FK_UNROLL for (uint n = 0; n < NK; ++n) s[n] = 0.0f;
    int slot = -1;
    if (rows > 0) {   // the first row's state: nobody else writes it
        slot = step_slot<R>(step, 0);
        DEVICE const float* fresh = state + ((ulong)slot * VH + h) * (KD * VD);
        const bool zero = step_position<R>(step, 0) == 0;
        FK_UNROLL for (uint n = 0; n < NK; ++n)
            if (g + KG * n < KD && live) s[n] = zero ? 0.0f : fresh[(g + KG * n) * VD + column];
    }
    FK_WAIT_INPUTS();
    for (int r = 0; r < rows; ++r) {
        const int now = step_slot<R>(step, (uint)r);
        if (now != slot) {
            DEVICE float* old = state + ((ulong)(slot < 0 ? 0 : slot) * VH + h) * (KD * VD);
            DEVICE const float* fresh = state + ((ulong)now * VH + h) * (KD * VD);
            const bool zero = step_position<R>(step, (uint)r) == 0;
            FK_UNROLL for (uint n = 0; n < NK; ++n) {
                const uint i = g + KG * n;
                if (i < KD && live) {
                    if (slot >= 0) old[i * VD + column] = s[n];
                    s[n] = zero ? 0.0f : fresh[i * VD + column];
                }
            }
            slot = now;
        }
        DEVICE const typename T::S* row = c + (ulong)r * CH;
        // q and k to unit length; q also by 1 / sqrt(KD).
        FK_UNROLL for (uint which = 0; which < 2; ++which) {
            DEVICE const typename T::S* x = row + (which ? KH * KD + kh * KD : kh * KD);
            float squares = 0.0f;
            for (uint i = id.tid; i < KD; i += NT) {
                const float v = T::get(x[i]);
                squares = fma(v, v, squares);
            }
            squares = group_sum<NT>(squares, red, id);
            const float factor = (which ? 1.0f : 1.0f / sqrt((float)KD)) / sqrt(squares + 1e-6f);
            for (uint i = id.tid; i < KD; i += NT) qk[which * KD + i] = T::get(x[i]) * factor;
        }
        FK_BARRIER();
        const float decay = exp(rate * softplus(T::get(a[(ulong)r * VH + h]) + bias)), beta = rounded<T>(sigmoid(T::get(b[(ulong)r * VH + h])));
        float seen = 0.0f, out = 0.0f;
        FK_UNROLL for (uint n = 0; n < NK; ++n) {
            const uint i = g + KG * n;
            if (i < KD) {
                s[n] *= decay;
                seen = fma(s[n], qk[KD + i], seen);
            }
        }
        parts[g * 32 + id.lane] = seen;
        FK_BARRIER();
        seen = 0.0f;
        FK_UNROLL for (uint k = 0; k < KG; ++k) seen += parts[k * 32 + id.lane];
        const float v = live ? T::get(row[2 * KH * KD + h * VD + column]) : 0.0f, d = beta * (v - seen);
        FK_UNROLL for (uint n = 0; n < NK; ++n) {
            const uint i = g + KG * n;
            if (i < KD) {
                s[n] = fma(qk[KD + i], d, s[n]);
                out = fma(s[n], qk[i], out);
            }
        }
        FK_BARRIER();
        parts[g * 32 + id.lane] = out;
        FK_BARRIER();
        if (g == 0 && live) {
            out = 0.0f;
            FK_UNROLL for (uint k = 0; k < KG; ++k) out += parts[k * 32 + id.lane];
            y[((ulong)r * VH + h) * VD + column] = T::put(out);
        }
        FK_BARRIER();
    }
    if (slot >= 0 && live) {
        DEVICE float* last = state + ((ulong)slot * VH + h) * (KD * VD);
        FK_UNROLL for (uint n = 0; n < NK; ++n)
            if (g + KG * n < KD) last[(g + KG * n) * VD + column] = s[n];
    }
}

// y = norm(x) * w, times silu(z), head by head: a simdgroup takes head tg_x of row tg_y.
template <class T, int HEADS, int W>
FK_FN void gated_norm(DEVICE const int* step, DEVICE const typename T::S* x, DEVICE const typename T::S* z, DEVICE const float* weight, DEVICE typename T::S* y, float eps, Ids id) {
    FK_WAIT_INPUTS();
    if ((int)id.tg_y >= step[STEP_ROWS]) return;
    const ulong at = ((ulong)id.tg_y * HEADS + id.tg_x) * W;
    float squares = 0.0f;
    for (uint i = id.lane; i < W; i += 32) {
        const float v = T::get(x[at + i]);
        squares = fma(v, v, squares);
    }
    const float factor = 1.0f / sqrt(simd_sum(squares) / (float)W + eps);
    for (uint i = id.lane; i < W; i += 32) {
        const float t = rounded<T>(weight[i] * rounded<T>(T::get(x[at + i]) * factor)), g = T::get(z[at + i]);
        y[at + i] = T::put(t * (g * sigmoid(g)));
    }
}

}  // namespace fk
