// Query and key preparation, and attention over the cache. The cache of a layer is [slot][kv head][position][HD] of
// T, for keys and for values.
namespace fk {

// A simdgroup takes one head of one row (tg_y): first the query heads, then the key heads, then the value heads.
// q = rope(norm(q)); keys[slot][position] = rope(norm(k)); values = v (normed without a weight: V_NORM).
// rope: [positions][2 * HALF], cosines then sines. KIND 3: no norm. buf: HD floats a simdgroup.
template <class T, int HEADS, int KV, int HD, int HALF, int CAP, int R, int Q_KIND, int K_KIND, int GATED, int V_NORM, int V_FROM_K, int WRITES, int NT>
FK_FN void qk_prepare(DEVICE const int* step, DEVICE const typename T::S* q, DEVICE const typename T::S* k, DEVICE const typename T::S* v,
                      DEVICE const float* q_norm, DEVICE const float* k_norm, DEVICE const float* rope, DEVICE typename T::S* q_out,
                      DEVICE typename T::S* keys, DEVICE typename T::S* values, float eps, THREADGROUP float* buf, Ids id) {
    FK_WAIT_INPUTS();
    const uint item = id.tg_x * (NT / 32) + id.sg, row = id.tg_y;
    if ((int)row >= step[STEP_ROWS] || item >= HEADS + (WRITES ? 2 * KV : 0)) return;   // the same for a whole simdgroup
    const int slot = step_slot<R>(step, row), position = step_position<R>(step, row);
    const bool is_q = item < HEADS, is_v = item >= HEADS + KV;
    const uint kv = is_v ? item - HEADS - KV : item - HEADS;
    THREADGROUP float* h = buf + id.sg * HD;
    DEVICE const typename T::S* in = is_q ? q + ((ulong)row * HEADS + item) * (GATED ? 2 * HD : HD)
                                   : is_v && !V_FROM_K ? v + ((ulong)row * KV + kv) * HD : k + ((ulong)row * KV + kv) * HD;
    float squares = 0.0f;
    for (uint d = id.lane; d < HD; d += 32) {
        const float x = T::get(in[d]);
        squares = fma(x, x, squares);
        h[d] = x;
    }
    squares = simd_sum(squares);
    const float factor = 1.0f / sqrt(squares / (float)HD + eps);
    const ulong cached = (((ulong)slot * KV + kv) * CAP + (ulong)position) * HD;
    if (is_v) {
        for (uint d = id.lane; d < HD; d += 32) values[cached + d] = T::put(V_NORM ? h[d] * factor : h[d]);
        return;
    }
    if (is_q ? Q_KIND < 3 : K_KIND < 3) {
        for (uint d = id.lane; d < HD; d += 32) h[d] = is_q ? normed<T, Q_KIND>(h[d] * factor, q_norm[d]) : normed<T, K_KIND>(h[d] * factor, k_norm[d]);
    }
    FK_SG_BARRIER();
    DEVICE const float* angles = rope + (ulong)position * (2 * HALF);
    for (uint d = id.lane; d < HD; d += 32) {
        float y = h[d];
        if (d < 2 * HALF) {
            const uint i = d < HALF ? d : d - HALF;
            const float a = h[i], b = h[i + HALF], c = angles[i], s = angles[HALF + i];
            y = d < HALF ? rounded<T>(a * c) - rounded<T>(b * s) : rounded<T>(b * c) + rounded<T>(a * s);
        }
        if (is_q) q_out[((ulong)row * HEADS + item) * HD + d] = T::put(y);
        else keys[cached + d] = T::put(y);
    }
}

// Scores of GP query heads against keys [begin, end), end - begin <= PART, and with them the sums of values, in the
// threadgroup's memory:
//   w [GP][PART] scores, then weights exp(s - max) rounded to T;  m, l, kept [GP] running maximum, sum, rescaling.
// The accumulators of values stay in registers: thread (kg, ch) has chunk ch of 8 dimensions over every KG-th key.
template <class T, int HD, int GP, int PART, int NT> struct Attend {
    enum {
        CH = (HD + 7) / 8,
        LPK = CH > 16 ? 32 : CH > 8 ? 16 : CH > 4 ? 8 : CH > 2 ? 4 : CH > 1 ? 2 : 1,   // lanes a key
        CPL = (CH + LPK - 1) / LPK,                                                       // chunks a lane
        KG = NT / CH                                                                      // key groups of the value pass
    };
    static FK_FN void load8(DEVICE const typename T::S* row, uint c, THREAD float* f) {
        FK_UNROLL for (uint p = 0; p < 8 / T::N; ++p) {
            if ((c * 8 + p * T::N) < HD) load_chunk<T, HD>(row, c * (8 / T::N) + p, f + p * T::N);
            else FK_UNROLL for (uint j = 0; j < T::N; ++j) f[p * T::N + j] = 0.0f;
        }
    }
    static FK_FN void scores(DEVICE const typename T::S* q, DEVICE const typename T::S* keys, uint begin, uint end, float scale, float softcap, THREADGROUP float* w, Ids id) {
        const uint part = id.lane % LPK, which = id.lane / LPK;
        float qf[GP * CPL * 8];
        FK_UNROLL for (uint g = 0; g < GP; ++g)
            FK_UNROLL for (uint c = 0; c < CPL; ++c) {
                if (part + c * LPK < CH) load8(q + g * HD, part + c * LPK, qf + (g * CPL + c) * 8);
                else FK_UNROLL for (uint j = 0; j < 8; ++j) qf[(g * CPL + c) * 8 + j] = 0.0f;
            }
        const uint at_once = (NT / 32) * (32 / LPK);
        for (uint base = begin; base < end; base += at_once) {   // all lanes go round together
            const uint key = base + id.sg * (32 / LPK) + which;
            float s[GP];
            FK_UNROLL for (uint g = 0; g < GP; ++g) s[g] = 0.0f;
            if (key < end) {
                FK_UNROLL for (uint c = 0; c < CPL; ++c) {
                    if (part + c * LPK < CH) {
                        float kf[8];
                        load8(keys + (ulong)key * HD, part + c * LPK, kf);
                        FK_UNROLL for (uint g = 0; g < GP; ++g)
                            FK_UNROLL for (uint j = 0; j < 8; ++j) s[g] = fma(qf[(g * CPL + c) * 8 + j], kf[j], s[g]);
                    }
                }
            }
            FK_UNROLL for (uint g = 0; g < GP; ++g) {
                FK_UNROLL for (uint d = LPK / 2; d > 0; d >>= 1) s[g] += simd_shuffle_xor(s[g], (ushort)d);
                if (part == 0 && key < end) {
                    const float v = s[g] * scale;
                    w[g * PART + key - begin] = softcap != 0.0f ? softcap * tanh(v / softcap) : v;
                }
            }
        }
    }
    static FK_FN void softmax(uint n, THREADGROUP float* w, THREADGROUP float* m, THREADGROUP float* l, THREADGROUP float* kept, Ids id) {
        for (uint g = id.sg; g < GP; g += NT / 32) {
            float top = m[g];
            for (uint i = id.lane; i < n; i += 32) top = max(top, w[g * PART + i]);
            top = simd_max(top);
            float sum = 0.0f;
            for (uint i = id.lane; i < n; i += 32) {
                const float e = exp(w[g * PART + i] - top);
                sum += e;
                w[g * PART + i] = rounded<T>(e);
            }
            sum = simd_sum(sum);
            const float k = exp(m[g] - top);
            FK_SG_BARRIER();   // every lane has read m[g]
            if (id.lane == 0) {
                kept[g] = k;
                l[g] = l[g] * k + sum;
                m[g] = top;
            }
        }
    }
    static FK_FN void add_values(DEVICE const typename T::S* values, uint begin, uint end, THREADGROUP const float* w, THREAD float* acc, Ids id) {
        const uint ch = id.tid % CH, kg = id.tid / CH;
        if (kg >= KG) return;
        for (uint key = begin + kg; key < end; key += KG) {
            float v[8];
            load8(values + (ulong)key * HD, ch, v);
            FK_UNROLL for (uint g = 0; g < GP; ++g) {
                const float p = w[g * PART + key - begin];
                FK_UNROLL for (uint j = 0; j < 8; ++j) acc[g * 8 + j] = fma(p, v[j], acc[g * 8 + j]);
            }
        }
    }
    // The sum over key groups for head g, dimension d, once red has been filled by gather().
    static FK_FN void gather(uint g, THREAD const float* acc, THREADGROUP float* red, Ids id) {
        const uint ch = id.tid % CH, kg = id.tid / CH;
        FK_BARRIER();
        if (kg < KG) {
            FK_UNROLL for (uint h = 0; h < GP; ++h)
                if (h == g) {
                    FK_UNROLL for (uint j = 0; j < 8; ++j) red[(kg * CH + ch) * 8 + j] = acc[h * 8 + j];
                }
        }
        FK_BARRIER();
    }
    static FK_FN float total(uint d, THREADGROUP const float* red) {
        float t = 0.0f;
        FK_UNROLL for (uint k = 0; k < KG; ++k) t += red[k * (CH * 8) + d];
        return t;
    }
};

// First key that a row at `position` sees; WINDOW 0: all.
template <int WINDOW> FK_FN uint first_key(uint position) { return WINDOW > 0 && position + 1 > WINDOW ? position + 1 - WINDOW : 0u; }

// A part of PART positions for GP query heads that share a kv head: tg_x heads / GP, tg_y row, tg_z part (counted
// from the first that the row sees). Parts are cut at multiples of PART, so a row's bits depend on the row alone.
// partial: [row][head][parts][HEADER + HD]: maximum, sum, then the sums of values.
enum { PART_HEADER = 4 };
template <class T, int HEADS, int KV, int HD, int GP, int PART, int PARTS, int WINDOW, int CAP, int R, int NT>
FK_FN void attention_decode(DEVICE const int* step, DEVICE const typename T::S* q, DEVICE const typename T::S* keys, DEVICE const typename T::S* values, DEVICE float* partial,
                            float scale, float softcap, THREADGROUP float* w, THREADGROUP float* red, THREADGROUP float* stats, Ids id) {
    typedef Attend<T, HD, GP, PART, NT> At;
    FK_WAIT_INPUTS();
    const uint head = id.tg_x * GP, row = id.tg_y;
    if ((int)row >= step[STEP_ROWS]) return;
    const uint position = (uint)step_position<R>(step, row), first = first_key<WINDOW>(position);
    const uint part = first / PART + id.tg_z;
    const uint begin = max(part * PART, first), end = min((part + 1) * PART, position + 1);
    if (begin >= end) return;
    const ulong cached = ((ulong)step_slot<R>(step, row) * KV + head / (HEADS / KV)) * ((ulong)CAP * HD);
    if (id.tid < GP) {
        stats[id.tid] = -INFINITY;
        stats[GP + id.tid] = 0.0f;
    }
    At::scores(q + ((ulong)row * HEADS + head) * HD, keys + cached, begin, end, scale, softcap, w, id);
    FK_BARRIER();
    At::softmax(end - begin, w, stats, stats + GP, stats + 2 * GP, id);
    FK_BARRIER();
    float acc[GP * 8];
    FK_UNROLL for (uint i = 0; i < GP * 8; ++i) acc[i] = 0.0f;
    At::add_values(values + cached, begin, end, w, acc, id);
    for (uint g = 0; g < GP; ++g) {
        At::gather(g, acc, red, id);
        DEVICE float* out = partial + (((ulong)row * HEADS + head + g) * PARTS + id.tg_z) * (PART_HEADER + HD);
        for (uint d = id.tid; d < HD; d += NT) out[PART_HEADER + d] = At::total(d, red);
        if (id.tid == 0) {
            out[0] = stats[g];
            out[1] = stats[GP + g];
        }
    }
}

// Parts of a head merged in order: tg_x head, tg_y row.
template <class T, int HEADS, int HD, int PART, int PARTS, int WINDOW, int R, int NT>
FK_FN void attention_combine(DEVICE const int* step, DEVICE const float* partial, DEVICE typename T::S* y, Ids id) {
    FK_WAIT_INPUTS();
    const uint row = id.tg_y;
    if ((int)row >= step[STEP_ROWS]) return;
    const uint position = (uint)step_position<R>(step, row), parts = position / PART - first_key<WINDOW>(position) / PART + 1;
    DEVICE const float* in = partial + ((ulong)row * HEADS + id.tg_x) * ((ulong)PARTS * (PART_HEADER + HD));
    float top = -INFINITY, total = 0.0f;
    for (uint p = 0; p < parts; ++p) top = max(top, in[(ulong)p * (PART_HEADER + HD)]);
    for (uint p = 0; p < parts; ++p) total += exp(in[(ulong)p * (PART_HEADER + HD)] - top) * in[(ulong)p * (PART_HEADER + HD) + 1];
    for (uint d = id.tid; d < HD; d += NT) {
        float sum = 0.0f;
        for (uint p = 0; p < parts; ++p) {
            DEVICE const float* one = in + (ulong)p * (PART_HEADER + HD);
            sum += exp(one[0] - top) * one[PART_HEADER + d];
        }
        y[((ulong)row * HEADS + id.tg_x) * HD + d] = T::put(sum / total);
    }
}

// Prompts: tg_x heads / GP, tg_y row; one row's heads go through all their keys, PART at a time.
template <class T, int HEADS, int KV, int HD, int GP, int PART, int WINDOW, int CAP, int R, int NT>
FK_FN void attention_prefill(DEVICE const int* step, DEVICE const typename T::S* q, DEVICE const typename T::S* keys, DEVICE const typename T::S* values, DEVICE typename T::S* y,
                             float scale, float softcap, THREADGROUP float* w, THREADGROUP float* red, THREADGROUP float* stats, Ids id) {
    typedef Attend<T, HD, GP, PART, NT> At;
    FK_WAIT_INPUTS();
    const uint head = id.tg_x * GP, row = id.tg_y;
    if ((int)row >= step[STEP_ROWS]) return;
    const uint position = (uint)step_position<R>(step, row);
    const ulong cached = ((ulong)step_slot<R>(step, row) * KV + head / (HEADS / KV)) * ((ulong)CAP * HD);
    if (id.tid < GP) {
        stats[id.tid] = -INFINITY;
        stats[GP + id.tid] = 0.0f;
    }
    float acc[GP * 8];
    FK_UNROLL for (uint i = 0; i < GP * 8; ++i) acc[i] = 0.0f;
    for (uint begin = first_key<WINDOW>(position); begin <= position;) {
        const uint end = min(position + 1, (begin / PART + 1) * PART);
        FK_BARRIER();   // weights of the part before have been used
        At::scores(q + ((ulong)row * HEADS + head) * HD, keys + cached, begin, end, scale, softcap, w, id);
        FK_BARRIER();
        At::softmax(end - begin, w, stats, stats + GP, stats + 2 * GP, id);
        FK_BARRIER();
        FK_UNROLL for (uint g = 0; g < GP; ++g) {
            const float k = stats[2 * GP + g];
            FK_UNROLL for (uint j = 0; j < 8; ++j) acc[g * 8 + j] *= k;
        }
        At::add_values(values + cached, begin, end, w, acc, id);
        begin = end;
    }
    for (uint g = 0; g < GP; ++g) {
        At::gather(g, acc, red, id);
        for (uint d = id.tid; d < HD; d += NT) y[((ulong)row * HEADS + head + g) * HD + d] = T::put(At::total(d, red) / stats[GP + g]);
    }
}

}  // namespace fk
