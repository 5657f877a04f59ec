// Prompts' attention on Apple's 8x8 matrices, for 16-bit activations and heads of whole 8s up to 256. Metal only.
//
// A threadgroup of SG simdgroups takes SG * 8 * MQ rows of one head, 8 * MQ a simdgroup, whose queries and sums stay in
// registers, and goes through the keys KEYS at a time, at multiples of KEYS positions. Scores leave a simdgroup's
// matrices through threadgroup memory of its own, where four lanes take a row through the online softmax; a block that
// raises a row's maximum rescales the sums by a diagonal matrix. A block of which a row sees nothing changes nothing of
// it, so a row's bits depend on the row alone. Rows of one sequence that follow each other are a run; a tile that
// several runs share goes through the keys of each, and keeps the run's own rows.
namespace fk {

// Positions begin .. begin + KEYS - 1 of a head's keys or values; zeros outside [low, high).
template <class T, int HD, int KEYS, int NT>
FK_FN void cache_tile(DEVICE const typename T::S* from, uint begin, uint low, uint high, THREADGROUP typename UnitsOf<T>::E* tile, Ids id) {
    enum { PARTS = HD / 8, LD = TileRow<T, HD>::LD };
    for (uint i = id.tid; i < KEYS * PARTS; i += NT) {
        const uint r = i / PARTS, c = i % PARTS, at = begin + r;
        uint4 v = make_u4(0u, 0u, 0u, 0u);
        if (at >= low && at < high) v = ((DEVICE const uint4*)(from + (ulong)at * HD))[c];
        *(THREADGROUP uint4*)(tile + r * LD + c * 8) = v;
    }
}

// The lanes' memory of a simdgroup: rows of LD floats that hold scores, then weights as T and behind them a diagonal;
// also 64 elements of queries on their way in and 32 of results on their way out.
template <int KEYS> struct ScoreRow { enum { LD = (KEYS > 32 ? KEYS : 32) + 4, DIAGONAL = KEYS / 2 }; };

// SHARED: keys and values take turns in one tile. memory: the tiles, then SG * 8 * MQ rows of scores.
template <class T, int HEADS, int KV, int HD, int WINDOW, int CAP, int R, int SG, int MQ, int KEYS, int SHARED>
FK_FN void attention_simd(DEVICE const int* step, DEVICE const typename T::S* q, DEVICE const typename T::S* keys, DEVICE const typename T::S* values, DEVICE typename T::S* y,
                          float scale, float softcap, THREADGROUP uint4* memory, THREADGROUP int* breaks, Ids id) {
    enum { NT = 32 * SG, OWN = 8 * MQ, BQ = SG * OWN, D = HD / 8, NK = KEYS / 8, KL = KEYS / 4, LD = TileRow<T, HD>::LD, SLD = ScoreRow<KEYS>::LD, PLD = 2 * SLD };
    typedef typename UnitsOf<T>::E E;
    const float log2e = 1.44269504088896341f;
    const uint rows = (uint)step[STEP_ROWS], blocks = (rows + BQ - 1) / BQ, head = id.tg_x;
    if (id.tg_y >= blocks) return;
    const uint m0 = (blocks - 1 - id.tg_y) * BQ;   // long rows first
    THREADGROUP E* ks = (THREADGROUP E*)memory;
    THREADGROUP E* vs = SHARED ? ks : ks + KEYS * LD;
    THREADGROUP float* own = (THREADGROUP float*)(vs + KEYS * LD) + id.sg * (OWN * SLD);
    THREADGROUP E* own_units = (THREADGROUP E*)own;
    const uint quad = id.lane / 4, part = id.lane % 4;   // the row of eight that this lane works on, and its share of it
    // breaks[i]: row m0 + i does not follow the row before it.
    if (id.tid < BQ) {
        const uint m = m0 + id.tid;
        breaks[id.tid] = m >= rows || (id.tid > 0 && (step_slot<R>(step, m) != step_slot<R>(step, m - 1) || step_position<R>(step, m) != step_position<R>(step, m - 1) + 1));
    }
    simdgroup_matrix<E, 8, 8> qm[MQ * D];
    FK_UNROLL for (uint i = 0; i < MQ; ++i)
        FK_UNROLL for (uint d0 = 0; d0 < D; d0 += 8) {
            const uint count = D - d0 < 8 ? D - d0 : 8;   // matrices, and chunks of a row
            for (uint c = id.lane; c < 8 * count; c += 32) {
                const uint m = min(m0 + id.sg * OWN + i * 8 + c / count, rows - 1u);
                *(THREADGROUP uint4*)(own_units + c / count * PLD + c % count * 8) = ((DEVICE const uint4*)(q + ((ulong)m * HEADS + head) * HD))[d0 + c % count];
            }
            FK_SG_BARRIER();
            FK_UNROLL for (uint d = 0; d < 8; ++d)
                if (d < count) simdgroup_load(qm[i * D + (d0 + d < D ? d0 + d : 0)], own_units + d * 8, (ulong)PLD);
            FK_SG_BARRIER();
        }
    FK_BARRIER();   // breaks are there

    for (uint start = 0; start < BQ && m0 + start < rows;) {
        uint stop = start + 1;
        while (stop < BQ && !breaks[stop]) ++stop;
        const int slot = step_slot<R>(step, m0 + start);
        const uint first_position = (uint)step_position<R>(step, m0 + start);
        const uint low = first_key<WINDOW>(first_position), high = first_position + (stop - start);   // keys that the run sees
        const ulong cached = ((ulong)slot * KV + head / (HEADS / KV)) * ((ulong)CAP * HD);
        // The run's rows in this simdgroup, and their positions.
        const uint from = max(start, id.sg * OWN), upto = min(stop, (id.sg + 1) * OWN);
        const bool any = from < upto;
        const uint lowest = first_position + (any ? from - start : 0u), highest = first_position + (any ? upto - start - 1 : 0u);
        float top[MQ], sum[MQ];
        simdgroup_matrix<float, 8, 8> o[MQ * D];
        FK_UNROLL for (uint i = 0; i < MQ; ++i) {
            top[i] = -INFINITY;
            sum[i] = 0.0f;
        }
        FK_UNROLL for (uint i = 0; i < MQ * D; ++i) o[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        FK_NO_UNROLL for (uint begin = low / KEYS * KEYS; begin < high; begin += KEYS) {
            const bool sees = any && begin <= highest && (WINDOW == 0 || begin + KEYS - 1 + WINDOW > lowest);   // the same for a simdgroup
            FK_BARRIER();   // the tiles before have been used
            cache_tile<T, HD, KEYS, NT>(keys + cached, begin, low, high, ks, id);
            if (!SHARED) cache_tile<T, HD, KEYS, NT>(values + cached, begin, low, high, vs, id);
            FK_BARRIER();
            if (sees) {
                simdgroup_matrix<float, 8, 8> s[MQ * NK];
                FK_UNROLL for (uint i = 0; i < MQ * NK; ++i) s[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
                FK_UNROLL for (uint d = 0; d < D; ++d)
                    FK_UNROLL for (uint n = 0; n < NK; ++n) {
                        simdgroup_matrix<E, 8, 8> km;
                        simdgroup_load(km, ks + n * 8 * LD + d * 8, (ulong)LD, ulong2(0, 0), true);
                        FK_UNROLL for (uint i = 0; i < MQ; ++i) simdgroup_multiply_accumulate(s[i * NK + n], qm[i * D + d], km, s[i * NK + n]);
                    }
                FK_UNROLL for (uint i = 0; i < MQ; ++i)
                    FK_UNROLL for (uint n = 0; n < NK; ++n) simdgroup_store(s[i * NK + n], own + i * 8 * SLD + n * 8, (ulong)SLD);
                FK_SG_BARRIER();
                float kept[MQ];
                // Most blocks are seen whole by all rows of the simdgroup.
                const bool whole = upto - from == OWN && begin + KEYS - 1 <= lowest && (WINDOW == 0 || begin + WINDOW > highest);
                FK_UNROLL for (uint i = 0; i < MQ; ++i) {
                    const uint r = id.sg * OWN + i * 8 + quad, position = first_position + r - start;   // of a row of the run
                    const bool mine = r >= start && r < stop;
                    float v[KL], most = top[i];
                    FK_UNROLL for (uint j = 0; j < KL; ++j) {
                        const uint key = begin + 4 * j + part;
                        v[j] = own[(i * 8 + quad) * SLD + 4 * j + part];
                        v[j] = softcap != 0.0f ? softcap * tanh(v[j] * scale / softcap) * log2e : v[j] * (scale * log2e);
                        if (!whole && !(mine && key <= position && (WINDOW == 0 || key + WINDOW > position))) v[j] = -INFINITY;
                        most = max(most, v[j]);
                    }
                    most = max(most, simd_shuffle_xor(most, (ushort)1));
                    most = max(most, simd_shuffle_xor(most, (ushort)2));
                    const float base = most == -INFINITY ? 0.0f : most;
                    kept[i] = top[i] == most ? 1.0f : exp2(top[i] - base);
                    top[i] = most;
                    sum[i] *= kept[i];
                    FK_UNROLL for (uint j = 0; j < KL; ++j) {
                        v[j] = exp2(v[j] - base);
                        sum[i] += v[j];
                    }
                    FK_SG_BARRIER();   // scores have been read: weights take their place
                    FK_UNROLL for (uint j = 0; j < KL; ++j) ((THREADGROUP typename T::S*)own)[(i * 8 + quad) * PLD + 4 * j + part] = T::put(v[j]);
                }
                bool rescale = false;
                FK_UNROLL for (uint i = 0; i < MQ; ++i) rescale = rescale || kept[i] != 1.0f;
                rescale = simd_max(rescale ? 1u : 0u) != 0u;
                if (rescale) {
                    FK_UNROLL for (uint i = 0; i < MQ; ++i)
                        FK_UNROLL for (uint c = 0; c < 2; ++c)
                            own[(i * 8 + quad) * SLD + ScoreRow<KEYS>::DIAGONAL + part * 2 + c] = part * 2 + c == quad ? kept[i] : 0.0f;
                }
                FK_SG_BARRIER();
                if (rescale) {
                    FK_UNROLL for (uint i = 0; i < MQ; ++i) {
                        simdgroup_matrix<float, 8, 8> diagonal;
                        simdgroup_load(diagonal, own + i * 8 * SLD + ScoreRow<KEYS>::DIAGONAL, (ulong)SLD);
                        FK_UNROLL for (uint d = 0; d < D; ++d) simdgroup_multiply(o[i * D + d], diagonal, o[i * D + d]);
                    }
                }
            }
            if (SHARED) {
                FK_BARRIER();   // keys have been used
                cache_tile<T, HD, KEYS, NT>(values + cached, begin, low, high, vs, id);
                FK_BARRIER();
            }
            if (sees) {
                FK_UNROLL for (uint n = 0; n < NK; ++n) {
                    simdgroup_matrix<E, 8, 8> pm[MQ];
                    FK_UNROLL for (uint i = 0; i < MQ; ++i) simdgroup_load(pm[i], own_units + i * 8 * PLD + n * 8, (ulong)PLD);
                    FK_UNROLL for (uint d = 0; d < D; ++d) {
                        simdgroup_matrix<E, 8, 8> vm;
                        simdgroup_load(vm, vs + n * 8 * LD + d * 8, (ulong)LD);
                        FK_UNROLL for (uint i = 0; i < MQ; ++i) simdgroup_multiply_accumulate(o[i * D + d], pm[i], vm, o[i * D + d]);
                    }
                }
            }
        }
        FK_UNROLL for (uint i = 0; i < MQ; ++i) {
            sum[i] += simd_shuffle_xor(sum[i], (ushort)1);
            sum[i] += simd_shuffle_xor(sum[i], (ushort)2);
            const uint r = id.sg * OWN + i * 8 + quad;
            const bool mine = r >= start && r < stop;
            DEVICE uint4* out = (DEVICE uint4*)(y + ((ulong)(m0 + r) * HEADS + head) * HD);
            FK_UNROLL for (uint d0 = 0; d0 < D; d0 += 4) {
                FK_SG_BARRIER();   // what was in this memory has been read
                FK_UNROLL for (uint d = 0; d < 4; ++d)
                    if (d0 + d < D) simdgroup_store(o[i * D + (d0 + d < D ? d0 + d : 0)], own + d * 8, (ulong)SLD);
                FK_SG_BARRIER();
                if (mine && d0 + part < D) {
                    float f[8];
                    FK_UNROLL for (uint j = 0; j < 8; ++j) f[j] = own[quad * SLD + part * 8 + j] / sum[i];
                    out[d0 + part] = T::pack(f);
                }
            }
        }
        start = stop;
    }
}

}  // namespace fk
