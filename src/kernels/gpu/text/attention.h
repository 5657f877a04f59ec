// Query and key preparation, and attention over the cache. The cache of a layer is [slot][kv head][position][HD] of
// T, for keys and for values.
namespace fk {

// A head before attention: norm(in) turned by its position's angles, by one simdgroup. KIND 3: no norm. The weights and
// angles do not depend on the launch before: lane i has those of dimensions i, i + 32, ...
template <class T, int HD, int HALF> struct HeadTurn {
    enum { OWN = (HD + 31) / 32 };
    float c[OWN], s[OWN];
    FK_FN void load(DEVICE const float* angles, Ids id) {
        FK_UNROLL for (uint j = 0; j < OWN; ++j) {
            const uint d = id.lane + 32 * j, i = d < HALF ? d : d - HALF;
            c[j] = d < 2 * HALF ? angles[i] : 0.0f;
            s[j] = d < 2 * HALF ? angles[HALF + i] : 0.0f;
        }
    }
    static FK_FN void weights(DEVICE const float* w, THREAD float* own, Ids id) {
        FK_UNROLL for (uint j = 0; j < OWN; ++j) own[j] = id.lane + 32 * j < HD ? w[id.lane + 32 * j] : 0.0f;
    }
    // Into x; 1 / sqrt(mean of squares + eps) comes back.
    static FK_FN float read(DEVICE const typename T::S* in, float eps, THREAD float* x, Ids id) {
        float squares = 0.0f;
        FK_UNROLL for (uint j = 0; j < OWN; ++j) x[j] = id.lane + 32 * j < HD ? T::get(in[id.lane + 32 * j]) : 0.0f;
        FK_UNROLL for (uint j = 0; j < OWN; ++j)
            if (id.lane + 32 * j < HD) squares = fma(x[j], x[j], squares);
        return 1.0f / sqrt(simd_sum(squares) / (float)HD + eps);
    }
    // x: what read() gave, and then the result, unrounded. h: HD floats of the simdgroup's own.
    template <int KIND> FK_FN void turn(THREAD const float* w, float factor, THREADGROUP float* h, THREAD float* x, Ids id) const {
        FK_UNROLL for (uint j = 0; j < OWN; ++j)
            if (id.lane + 32 * j < HD) h[id.lane + 32 * j] = KIND < 3 ? normed<T, KIND>(x[j] * factor, w[j]) : x[j];
        FK_SG_BARRIER();
        FK_UNROLL for (uint j = 0; j < OWN; ++j) {
            const uint d = id.lane + 32 * j;
            if (d >= HD) continue;
            x[j] = h[d];
            if (d < 2 * HALF) {
                const uint i = d < HALF ? d : d - HALF;
                const float a = h[i], b = h[i + HALF];
                x[j] = d < HALF ? rounded<T>(a * c[j]) - rounded<T>(b * s[j]) : rounded<T>(b * c[j]) + rounded<T>(a * s[j]);
            }
        }
        FK_SG_BARRIER();
    }
};

// A simdgroup takes one head of one row (tg_y): first the query heads, then the key heads, then the value heads.
// q = rope(norm(q)); keys[slot][position] = rope(norm(k)); values = v (normed without a weight: V_NORM).
// rope: [positions][2 * HALF], cosines then sines. KIND 3: no norm. buf: HD floats a simdgroup.
template <class T, int HEADS, int KV, int HD, int HALF, int CAP, int R, int Q_KIND, int K_KIND, int GATED, int V_NORM, int V_FROM_K, int WRITES, int NT>
FK_FN void qk_prepare(DEVICE const int* step, DEVICE const typename T::S* q, DEVICE const typename T::S* k, DEVICE const typename T::S* v,
                      DEVICE const float* q_norm, DEVICE const float* k_norm, DEVICE const float* rope, DEVICE typename T::S* q_out,
                      DEVICE typename T::S* keys, DEVICE typename T::S* values, float eps, THREADGROUP float* buf, Ids id) {
    typedef HeadTurn<T, HD, HALF> Turn;
    const uint item = id.tg_x * (NT / 32) + id.sg, row = id.tg_y;
    const bool there = (int)row < step[STEP_ROWS] && item < HEADS + (WRITES ? 2 * KV : 0);   // the same for a whole simdgroup
    const bool is_q = item < HEADS, is_v = item >= HEADS + KV;
    const uint kv = is_v ? item - HEADS - KV : item - HEADS;
    const int slot = there ? step_slot<R>(step, row) : 0, position = there ? step_position<R>(step, row) : 0;
    Turn turn;
    float w[Turn::OWN], x[Turn::OWN];
    turn.load(rope + (ulong)position * (2 * HALF), id);
    FK_UNROLL for (uint j = 0; j < Turn::OWN; ++j) w[j] = 0.0f;
    if (is_q && Q_KIND < 3) Turn::weights(q_norm, w, id);
    if (!is_q && !is_v && K_KIND < 3) Turn::weights(k_norm, w, id);
    FK_WAIT_INPUTS();
    if (!there) return;
    THREADGROUP float* h = buf + id.sg * HD;
    const float factor = Turn::read(is_q ? q + ((ulong)row * HEADS + item) * (GATED ? 2 * HD : HD) : is_v && !V_FROM_K ? v + ((ulong)row * KV + kv) * HD : k + ((ulong)row * KV + kv) * HD, eps, x, id);
    const ulong cached = (((ulong)slot * KV + kv) * CAP + (ulong)position) * HD;
    if (is_v) {
        FK_UNROLL for (uint j = 0; j < Turn::OWN; ++j)
            if (id.lane + 32 * j < HD) values[cached + id.lane + 32 * j] = T::put(V_NORM ? x[j] * factor : x[j]);
        return;
    }
    if (is_q) turn.template turn<Q_KIND>(w, factor, h, x, id);
    else turn.template turn<K_KIND>(w, factor, h, x, id);
    FK_UNROLL for (uint j = 0; j < Turn::OWN; ++j) {
        const uint d = id.lane + 32 * j;
        if (d >= HD) continue;
        if (is_q) q_out[((ulong)row * HEADS + item) * HD + d] = T::put(x[j]);
        else keys[cached + d] = T::put(x[j]);
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
        KG = NT / CH,                                                                     // key groups of the value pass
        AT_ONCE = NT / LPK,                                                               // keys of the score pass that are read together
        RAW = 8 / T::N,                                                                   // 16 bytes that make a chunk
        // Steps whose loads are in flight together: up to 128 bytes a lane, which is a part of 64 positions of 128 dimensions.
        FLIGHT = 8 / (CPL * RAW) < 1 ? 1 : 8 / (CPL * RAW) > (PART + AT_ONCE - 1) / AT_ONCE ? (PART + AT_ONCE - 1) / AT_ONCE : 8 / (CPL * RAW),
        KR = FLIGHT * CPL * RAW,
        V_FLIGHT = 8 / RAW > (PART + KG - 1) / KG ? (PART + KG - 1) / KG : 8 / RAW,
        VR = V_FLIGHT * RAW
    };
    static FK_FN void load8(DEVICE const typename T::S* row, uint c, THREAD float* f) {
        FK_UNROLL for (uint p = 0; p < 8 / T::N; ++p) {
            if ((c * 8 + p * T::N) < HD) load_chunk<T, HD>(row, c * (8 / T::N) + p, f + p * T::N);
            else FK_UNROLL for (uint j = 0; j < T::N; ++j) f[p * T::N + j] = 0.0f;
        }
    }
    static FK_FN void load_raw(DEVICE const typename T::S* row, uint c, THREAD uint4* raw) {
        FK_UNROLL for (uint p = 0; p < RAW; ++p) {
            if (HD % 8 == 0) {
                raw[p] = ((DEVICE const uint4*)row)[c * RAW + p];
            } else {
                float f[T::N];
                if (c * 8 + p * T::N < HD) load_chunk<T, HD>(row, c * RAW + p, f);
                else FK_UNROLL for (uint j = 0; j < T::N; ++j) f[j] = 0.0f;
                raw[p] = T::pack(f);
            }
        }
    }
    static FK_FN void own_raw(THREADGROUP const float* row, uint c, THREAD uint4* raw) {
        FK_UNROLL for (uint p = 0; p < RAW; ++p) {
            float f[T::N];
            FK_UNROLL for (uint j = 0; j < T::N; ++j) f[j] = c * 8 + p * T::N + j < HD ? row[c * 8 + p * T::N + j] : 0.0f;
            raw[p] = T::pack(f);
        }
    }
    // A lane's share of one key in [from, to).
    static FK_FN void load_key(DEVICE const typename T::S* keys, uint key, uint from, uint to, THREAD uint4* raw, Ids id) {
        if (key >= from && key < to) {
            FK_UNROLL for (uint c = 0; c < CPL; ++c)
                if (id.lane % LPK + c * LPK < CH) load_raw(keys + (ulong)key * HD, id.lane % LPK + c * LPK, raw + c * RAW);
        }
    }
    // What FLIGHT steps from `base` on need.
    static FK_FN void load_keys(DEVICE const typename T::S* keys, uint base, uint from, uint to, THREAD uint4* raw, Ids id) {
        FK_UNROLL for (uint s = 0; s < FLIGHT; ++s) load_key(keys, base + s * AT_ONCE + id.tid / LPK, from, to, raw + s * CPL * RAW, id);
    }
    static FK_FN void load_value(DEVICE const typename T::S* values, uint key, uint from, uint to, THREAD uint4* raw, Ids id) {
        if (key >= from && key < to) load_raw(values + (ulong)key * HD, id.tid % CH, raw);
    }
    static FK_FN void load_values(DEVICE const typename T::S* values, uint base, uint from, uint to, THREAD uint4* raw, Ids id) {
        if (id.tid / CH >= KG) return;
        FK_UNROLL for (uint s = 0; s < V_FLIGHT; ++s) load_value(values, base + s * KG + id.tid / CH, from, to, raw + s * RAW, id);
    }
    // The vectors of position `at` from threadgroup memory, where the launch makes them.
    static FK_FN void own_key(THREADGROUP const float* row, uint key, uint at, THREAD uint4* raw, Ids id) {
        if (key == at) {
            FK_UNROLL for (uint c = 0; c < CPL; ++c)
                if (id.lane % LPK + c * LPK < CH) own_raw(row, id.lane % LPK + c * LPK, raw + c * RAW);
        }
    }
    static FK_FN void own_keys(THREADGROUP const float* row, uint base, uint at, THREAD uint4* raw, Ids id) {
        FK_UNROLL for (uint s = 0; s < FLIGHT; ++s) own_key(row, base + s * AT_ONCE + id.tid / LPK, at, raw + s * CPL * RAW, id);
    }
    static FK_FN void own_value(THREADGROUP const float* row, uint key, uint at, THREAD uint4* raw, Ids id) {
        if (key == at) own_raw(row, id.tid % CH, raw);
    }
    static FK_FN void own_values(THREADGROUP const float* row, uint base, uint at, THREAD uint4* raw, Ids id) {
        if (id.tid / CH >= KG) return;
        FK_UNROLL for (uint s = 0; s < V_FLIGHT; ++s) own_value(row, base + s * KG + id.tid / CH, at, raw + s * RAW, id);
    }
    static FK_FN void load_query(DEVICE const typename T::S* q, THREAD float* qf, Ids id) {
        FK_UNROLL for (uint g = 0; g < GP; ++g)
            FK_UNROLL for (uint c = 0; c < CPL; ++c) {
                if (id.lane % LPK + c * LPK < CH) load8(q + g * HD, id.lane % LPK + c * LPK, qf + (g * CPL + c) * 8);
                else FK_UNROLL for (uint j = 0; j < 8; ++j) qf[(g * CPL + c) * 8 + j] = 0.0f;
            }
    }
    static FK_FN void own_query(THREADGROUP const float* q, THREAD float* qf, Ids id) {
        FK_UNROLL for (uint g = 0; g < GP; ++g)
            FK_UNROLL for (uint c = 0; c < CPL; ++c)
                FK_UNROLL for (uint j = 0; j < 8; ++j) {
                    const uint d = (id.lane % LPK + c * LPK) * 8 + j;
                    qf[(g * CPL + c) * 8 + j] = d < HD ? q[g * HD + d] : 0.0f;
                }
    }
    // A step of the score pass: what raw holds of `key` with every query, and the score.
    static FK_FN void score(THREAD const float* qf, uint key, uint begin, uint end, float scale, float softcap, THREAD const uint4* raw, THREADGROUP float* w, Ids id) {
        float s[GP];
        FK_UNROLL for (uint g = 0; g < GP; ++g) s[g] = 0.0f;
        if (key < end) {
            FK_UNROLL for (uint c = 0; c < CPL; ++c) {
                if (id.lane % LPK + c * LPK < CH) {
                    float kf[8];
                    FK_UNROLL for (uint p = 0; p < RAW; ++p) T::unpack(raw[c * RAW + p], kf + p * T::N);
                    FK_UNROLL for (uint g = 0; g < GP; ++g)
                        FK_UNROLL for (uint j = 0; j < 8; ++j) s[g] = fma(qf[(g * CPL + c) * 8 + j], kf[j], s[g]);
                }
            }
        }
        FK_UNROLL for (uint g = 0; g < GP; ++g) {
            FK_UNROLL for (uint d = LPK / 2; d > 0; d >>= 1) s[g] += simd_shuffle_xor(s[g], (ushort)d);
            if (id.lane % LPK == 0 && key < end) {
                const float v = s[g] * scale;
                w[g * PART + key - begin] = softcap != 0.0f ? softcap * tanh(v / softcap) : v;
            }
        }
    }
    // raw: the first FLIGHT steps' keys. own: the vector of position `at` (0xffffffff: none).
    static FK_FN void scores(THREAD const float* qf, DEVICE const typename T::S* keys, THREADGROUP const float* own, uint at, uint begin, uint end, float scale, float softcap,
                             THREAD uint4* raw, THREADGROUP float* w, Ids id) {
        for (uint base = begin; base < end; base += FLIGHT * AT_ONCE) {   // all lanes go round together
            if (base > begin) {
                load_keys(keys, base, begin, min(end, at), raw, id);
                if (at < end) own_keys(own, base, at, raw, id);
            }
            FK_UNROLL for (uint step = 0; step < FLIGHT; ++step) {
                if (base + step * AT_ONCE >= end) break;
                score(qf, base + step * AT_ONCE + id.tid / LPK, begin, end, scale, softcap, raw + step * CPL * RAW, w, id);
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
    static FK_FN void add_value(THREAD const uint4* raw, uint key, uint begin, THREADGROUP const float* w, THREAD float* acc) {
        float v[8];
        FK_UNROLL for (uint p = 0; p < RAW; ++p) T::unpack(raw[p], v + p * T::N);
        FK_UNROLL for (uint g = 0; g < GP; ++g) {
            const float p = w[g * PART + key - begin];
            FK_UNROLL for (uint j = 0; j < 8; ++j) acc[g * 8 + j] = fma(p, v[j], acc[g * 8 + j]);
        }
    }
    // raw: the first V_FLIGHT steps' values; own and at as in scores().
    static FK_FN void add_values(DEVICE const typename T::S* values, THREADGROUP const float* own, uint at, uint begin, uint end, THREADGROUP const float* w, THREAD uint4* raw,
                                 THREAD float* acc, Ids id) {
        const uint kg = id.tid / CH;
        if (kg >= KG) return;
        for (uint base = begin; base < end; base += V_FLIGHT * KG) {
            if (base > begin) {
                load_values(values, base, begin, min(end, at), raw, id);
                if (at < end) own_values(own, base, at, raw, id);
            }
            FK_UNROLL for (uint s = 0; s < V_FLIGHT; ++s) {
                const uint key = base + s * KG + kg;
                if (key >= end) break;
                add_value(raw + s * RAW, key, begin, w, acc);
            }
        }
    }
    // The sum over key groups for head g, dimension d, once red has been filled by gather(): with HG heads from g on.
    // `used`: red may still be read.
    template <int HG> static FK_FN void gather(uint g, bool used, THREAD const float* acc, THREADGROUP float* red, Ids id) {
        const uint ch = id.tid % CH, kg = id.tid / CH;
        if (used) FK_BARRIER();
        if (kg < KG) {
            FK_UNROLL for (uint h = 0; h < GP; ++h)
                if (h >= g && h < g + HG) {
                    FK_UNROLL for (uint j = 0; j < 8; ++j) red[((h - g) * (KG * CH) + kg * CH + ch) * 8 + j] = acc[h * 8 + j];
                }
        }
        FK_BARRIER();
    }
    static FK_FN float total(uint h, uint d, THREADGROUP const float* red) {
        float t = 0.0f;
        FK_UNROLL for (uint k = 0; k < KG; ++k) t += red[(h * KG + k) * (CH * 8) + d];
        return t;
    }
};

// First key that a row at `position` sees; WINDOW 0: all.
template <int WINDOW> FK_FN uint first_key(uint position) { return WINDOW > 0 && position + 1 > WINDOW ? position + 1 - WINDOW : 0u; }

// The parts in which decode attention goes through the keys of a row, cut at multiples of their length: PART, or with
// MOST > 0 (and no WINDOW) for rows from position NEAR on what makes MOST of them.
struct KeyParts { uint first, length, count; };
template <int WINDOW, int PART, int MOST, int NEAR> FK_FN KeyParts key_parts(uint position) {
    KeyParts p;
    p.first = first_key<WINDOW>(position);
    p.length = MOST > 0 && position >= (uint)NEAR ? (position / (MOST > 0 ? MOST * 16 : 1) + 1) * 16 : PART;
    p.count = position / p.length - p.first / p.length + 1;
    return p;
}

// What the launch of a decode step's attention reads and writes; q, k and v as the projections left them where it
// prepares them itself (FUSED), else q as qk_prepare left it.
template <class T> struct AttentionInputs {
    DEVICE const int* step;
    DEVICE const typename T::S* q;
    DEVICE const typename T::S* k;        // FUSED, as what follows
    DEVICE const typename T::S* v;
    DEVICE const float* q_norm;
    DEVICE const float* k_norm;
    DEVICE const float* rope;
    DEVICE typename T::S* keys;
    DEVICE typename T::S* values;
    SHARED_DEVICE float* partial;
    float scale, softcap, eps;
};

// Norms and turns as in qk_prepare.
template <int HALF, int Q_KIND, int K_KIND, int GATED, int V_NORM, int V_FROM_K, int WRITES> struct PrepareForm {
    enum { half = HALF, q_kind = Q_KIND, k_kind = K_KIND, gated = GATED, v_norm = V_NORM, v_from_k = V_FROM_K, writes = WRITES };
};

// The part that a threadgroup of decode attention takes: tg_x heads / GP, tg_y row, tg_z part, counted from the first that
// the row sees.
struct DecodePart {
    uint head, row, kv, position;
    bool there;               // such a row
    uint begin, end, old;     // keys [begin, end); those before `old` do not depend on the launch before
    ulong cached;             // where the head's keys and values begin
};
template <int FUSED, int HEADS, int KV, int HD, int GP, int PART, int MOST, int NEAR, int WINDOW, int CAP, int R> FK_FN DecodePart decode_part(DEVICE const int* step, Ids id) {
    DecodePart p;
    p.head = id.tg_x * GP;
    p.row = id.tg_y;
    p.kv = p.head / (HEADS / KV);
    const uint rows = FUSED ? 1u : (uint)step[STEP_ROWS];
    p.there = p.row < rows;
    p.position = p.there ? (uint)step_position<R>(step, p.row) : 0u;
    const KeyParts all = key_parts<WINDOW, PART, MOST, NEAR>(p.position);
    const uint part = all.first / all.length + id.tg_z;
    p.begin = max(part * all.length, all.first);
    p.end = min((part + 1) * all.length, p.position + 1);
    p.old = rows == 1u ? min(p.end, p.position) : 0u;
    p.cached = ((ulong)(p.there ? step_slot<R>(step, p.row) : 0) * KV + p.kv) * ((ulong)CAP * HD);
    return p;
}

// What queries and keys are turned and normed with, loaded before the launch before has ended.
template <class T, class P, int HD> struct OwnTurn {
    typedef HeadTurn<T, HD, P::half> Turn;
    Turn turn;
    float qw[Turn::OWN], kw[Turn::OWN];
    FK_FN void load(THREAD const AttentionInputs<T>& in, uint position, Ids id) {
        FK_UNROLL for (uint j = 0; j < Turn::OWN; ++j) qw[j] = kw[j] = 0.0f;
        turn.load(in.rope + (ulong)position * (2 * P::half), id);
        if (P::q_kind < 3) Turn::weights(in.q_norm, qw, id);
        if (P::k_kind < 3 && P::writes) Turn::weights(in.k_norm, kw, id);
    }
};

// A threadgroup's query heads as P says, into own[head of GP][HD], and where `makes` the row's key and value, into
// own[GP] and own[GP + 1], and by the first threadgroup of a kv head into the cache, at `cached`. GROUP: query heads of a
// kv head. After these come HD floats for each simdgroup.
template <class T, class P, int GROUP, int HD, int GP, int NT>
FK_FN void prepare_own(THREAD const AttentionInputs<T>& in, uint head, uint kv, bool makes, ulong cached, THREAD const OwnTurn<T, P, HD>& with, THREADGROUP float* own, Ids id) {
    typedef HeadTurn<T, HD, P::half> Turn;
    THREADGROUP float* h = own + (GP + 2 + id.sg) * HD;
    for (uint item = id.sg; item < GP + (makes ? 2u : 0u); item += NT / 32) {   // the same for a simdgroup
        float x[Turn::OWN];
        const bool is_q = item < GP, is_v = item == GP + 1;
        const float factor = Turn::read(is_q ? in.q + (ulong)(head + item) * (P::gated ? 2 * HD : HD) : is_v && !P::v_from_k ? in.v + (ulong)kv * HD : in.k + (ulong)kv * HD, in.eps, x, id);
        if (is_q) with.turn.template turn<P::q_kind>(with.qw, factor, h, x, id);
        else if (!is_v) with.turn.template turn<P::k_kind>(with.kw, factor, h, x, id);
        FK_UNROLL for (uint j = 0; j < Turn::OWN; ++j) {
            const uint d = id.lane + 32 * j;
            if (d >= HD) continue;
            const float y = is_v && P::v_norm ? x[j] * factor : x[j];
            own[item * HD + d] = rounded<T>(y);
            if (!is_q && head % GROUP == 0) (is_v ? in.values : in.keys)[cached + d] = T::put(y);
        }
    }
}

// A part of PART positions (DecodePart) for GP query heads that share a kv head. A row's bits depend on the row alone.
// partial: [row][head][parts][HEADER + HD]: maximum, sum, then the sums of values.
// FUSED (steps of one row): every threadgroup prepares its query heads as P says, and the one that has the row's own
// position its key and value. own: (GP + 2 + NT / 32) * HD floats. In a step of one row the cache before
// its position does not depend on the launch before. HG: heads whose sums are gathered at a time.
enum { PART_HEADER = 4 };
template <class T, class P, int FUSED, int HEADS, int KV, int HD, int GP, int HG, int PART, int PARTS, int WINDOW, int CAP, int R, int NT>
FK_FN void attention_decode(THREAD const AttentionInputs<T>& in, THREADGROUP float* w, THREADGROUP float* red, THREADGROUP float* stats, THREADGROUP float* own, Ids id) {
    typedef Attend<T, HD, GP, PART, NT> At;
    const DecodePart part = decode_part<FUSED, HEADS, KV, HD, GP, PART, 0, 0, WINDOW, CAP, R>(in.step, id);
    const uint head = part.head, row = part.row, position = part.position, begin = part.begin, end = part.end, old = part.old;
    const ulong cached = part.cached;
    uint4 kr[At::KR], vr[At::VR];
    At::load_keys(in.keys + cached, begin, begin, old, kr, id);
    At::load_values(in.values + cached, begin, begin, old, vr, id);
    OwnTurn<T, P, HD> turn;
    if (FUSED) turn.load(in, position, id);
    FK_WAIT_INPUTS();
    if (!part.there || begin >= end) return;
    const uint from = max(begin, old), at = FUSED && P::writes && end == position + 1 ? position : 0xffffffffu;   // `at`: made here
    At::load_keys(in.keys + cached, begin, from, min(end, at), kr, id);
    At::load_values(in.values + cached, begin, from, min(end, at), vr, id);
    if (id.tid < GP) {
        stats[id.tid] = -INFINITY;
        stats[GP + id.tid] = 0.0f;
    }
    float qf[GP * At::CPL * 8];
    THREADGROUP float* own_k = own + GP * HD;
    THREADGROUP float* own_v = own_k + HD;
    if (FUSED) {
        prepare_own<T, P, HEADS / KV, HD, GP, NT>(in, head, part.kv, at == position, cached + (ulong)position * HD, turn, own, id);
        FK_BARRIER();
        At::own_query(own, qf, id);
        if (at == position) {
            At::own_keys(own_k, begin, at, kr, id);
            At::own_values(own_v, begin, at, vr, id);
        }
    } else {
        At::load_query(in.q + ((ulong)row * HEADS + head) * HD, qf, id);
    }
    At::scores(qf, in.keys + cached, own_k, at, begin, end, in.scale, in.softcap, kr, w, id);
    FK_BARRIER();
    At::softmax(end - begin, w, stats, stats + GP, stats + 2 * GP, id);
    FK_BARRIER();
    float acc[GP * 8];
    FK_UNROLL for (uint i = 0; i < GP * 8; ++i) acc[i] = 0.0f;
    At::add_values(in.values + cached, own_v, at, begin, end, w, vr, acc, id);
    SHARED_DEVICE float* out = in.partial + (((ulong)row * HEADS + head) * PARTS + id.tg_z) * (PART_HEADER + HD);
    if (id.tid < GP) {
        out[(ulong)id.tid * (PARTS * (PART_HEADER + HD))] = stats[id.tid];
        out[(ulong)id.tid * (PARTS * (PART_HEADER + HD)) + 1] = stats[GP + id.tid];
    }
    for (uint g = 0; g < GP; g += HG) {
        At::template gather<HG>(g, g > 0u, acc, red, id);
        for (uint i = id.tid; i < HG * HD; i += NT) out[(ulong)(g + i / HD) * (PARTS * (PART_HEADER + HD)) + PART_HEADER + i % HD] = At::total(i / HD, i % HD, red);
    }
}

// Parts of a head merged: tg_x head and 32 of its dimensions, tg_y row. Simdgroups take parts in turn, lanes a dimension.
// GATED: then times sigmoid(gate), as head_gate does; the gate of head h follows its query in q. red: NT floats.
template <class T, int HEADS, int HD, int PART, int MOST, int NEAR, int PARTS, int WINDOW, int R, int GATED, int NT>
FK_FN void attention_combine(DEVICE const int* step, DEVICE const float* partial, DEVICE const typename T::S* q, DEVICE typename T::S* y, THREADGROUP float* red, Ids id) {
    enum { SLICES = (HD + 31) / 32, TURNS = NT / 32, OWN = 32 / TURNS, STRIDE = PART_HEADER + HD };   // of 32 parts a simdgroup takes OWN
    const uint row = id.tg_y, head = id.tg_x / SLICES, d = id.tg_x % SLICES * 32 + id.lane;
    const bool there = (int)row < step[STEP_ROWS], live = d < HD;
    const uint position = there ? (uint)step_position<R>(step, row) : 0u, parts = key_parts<WINDOW, PART, MOST, NEAR>(position).count;
    FK_WAIT_INPUTS();
    if (!there) return;
    DEVICE const float* in = partial + ((ulong)row * HEADS + head) * ((ulong)PARTS * STRIDE);
    // Lane i has the maximum and the sum of part i of 32; the first ones and their values are read together.
    float v[OWN], m = -INFINITY, l = 0.0f;
    if (id.lane < parts) {
        m = in[(ulong)id.lane * STRIDE];
        l = in[(ulong)id.lane * STRIDE + 1];
    }
    FK_UNROLL for (uint k = 0; k < OWN; ++k) {
        const uint p = id.sg + TURNS * k;
        v[k] = p < parts && live ? in[(ulong)p * STRIDE + PART_HEADER + d] : 0.0f;
    }
    const float gate = GATED && live ? sigmoid(T::get(q[((ulong)row * HEADS + head) * (2 * HD) + HD + d])) : 0.0f;
    float top = m, total = 0.0f, sum = 0.0f;
    FK_UNROLL4 for (uint p = id.lane + 32; p < parts; p += 32) top = max(top, in[(ulong)p * STRIDE]);
    top = simd_max(top);
    FK_UNROLL2 for (uint base = 0; base < parts; base += 32) {   // the same for all
        if (base > 0u) {
            const uint p = base + id.lane;
            m = p < parts ? in[(ulong)p * STRIDE] : -INFINITY;
            l = p < parts ? in[(ulong)p * STRIDE + 1] : 0.0f;
            FK_UNROLL for (uint k = 0; k < OWN; ++k) {
                const uint at = base + id.sg + TURNS * k;
                v[k] = at < parts && live ? in[(ulong)at * STRIDE + PART_HEADER + d] : 0.0f;
            }
        }
        const float e = exp(m - top);
        total += e * l;
        FK_UNROLL for (uint k = 0; k < OWN; ++k) sum = fma(simd_shuffle(e, (ushort)(id.sg + TURNS * k)), v[k], sum);
    }
    total = simd_sum(total);
    red[id.tid] = sum;
    FK_BARRIER();
    if (id.sg > 0u || !live) return;
    sum = 0.0f;
    FK_UNROLL for (uint t = 0; t < TURNS; ++t) sum += red[t * 32 + id.lane];
    float value = sum / total;
    if (GATED) value = rounded<T>(value) * rounded<T>(gate);
    y[((ulong)row * HEADS + head) * HD + d] = T::put(value);
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
    float acc[GP * 8], qf[GP * At::CPL * 8];
    FK_UNROLL for (uint i = 0; i < GP * 8; ++i) acc[i] = 0.0f;
    At::load_query(q + ((ulong)row * HEADS + head) * HD, qf, id);
    for (uint begin = first_key<WINDOW>(position); begin <= position;) {
        const uint end = min(position + 1, (begin / PART + 1) * PART);
        uint4 kr[At::KR], vr[At::VR];
        At::load_keys(keys + cached, begin, begin, end, kr, id);
        At::load_values(values + cached, begin, begin, end, vr, id);
        FK_BARRIER();   // weights of the part before have been used
        At::scores(qf, keys + cached, w, 0xffffffffu, begin, end, scale, softcap, kr, w, id);
        FK_BARRIER();
        At::softmax(end - begin, w, stats, stats + GP, stats + 2 * GP, id);
        FK_BARRIER();
        FK_UNROLL for (uint g = 0; g < GP; ++g) {
            const float k = stats[2 * GP + g];
            FK_UNROLL for (uint j = 0; j < 8; ++j) acc[g * 8 + j] *= k;
        }
        At::add_values(values + cached, w, 0xffffffffu, begin, end, w, vr, acc, id);
        begin = end;
    }
    for (uint g = 0; g < GP; ++g) {
        At::template gather<1>(g, g > 0u, acc, red, id);
        for (uint d = id.tid; d < HD; d += NT) y[((ulong)row * HEADS + head + g) * HD + d] = T::put(At::total(0, d, red) / stats[GP + g]);
    }
}

}  // namespace fk
