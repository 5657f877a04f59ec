// Attention over the cache (its layout: attention_prepare.h).
namespace fk {

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
