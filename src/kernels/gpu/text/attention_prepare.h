// Query and key preparation: in a launch of its own, or where decode attention reads what it prepares. The cache of a layer
// is [slot][kv head][position][HD] of T, for keys and for values.
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

}  // namespace fk
