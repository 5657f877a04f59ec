// Prompts' attention on the tensor cores of NVIDIA GPUs, for 16-bit activations and heads of whole 16s up to 256.
// CUDA only.
//
// A threadgroup of four simdgroups takes 64 rows of one head, 16 a simdgroup, and goes through the keys 64 at a time,
// at multiples of 64 positions, each block rescaling what came before. A block of which a row sees nothing changes
// nothing of it, so a row's bits depend on the row alone. Rows of one sequence that follow each other are a run; a
// tile that several runs share goes through the keys of each, and keeps the run's own rows.
namespace fk {

template <class T, int HD> struct FlashTile {
    enum { ROW = HD * 2 + 16, BYTES = 64 * ROW };   // an odd number of 16-byte chunks: eight rows lie in different banks
    // Rows begin .. begin + 63 of `from`; zeros outside [low, high).
    static FK_FN void copy(const typename T::S* from, uint begin, uint low, uint high, uint to, Ids id) {
        FK_UNROLL for (uint j = 0; j < (64 * (HD / 8) + 127) / 128; ++j) {
            const uint i = id.tid + j * 128, r = i / (HD / 8), c = i % (HD / 8), at = begin + r;
            if (64 * (HD / 8) % 128 != 0 && i >= 64 * (HD / 8)) break;
            const bool there = at >= low && at < high;
            copy16(to + r * ROW + c * 16, from + (ulong)(there ? at : low) * HD + c * 8, there);
        }
    }
};

template <class T, int HEADS, int KV, int HD, int WINDOW, int CAP, int R>
FK_FN void attention_flash(const int* step, const typename T::S* q, const typename T::S* keys, const typename T::S* values, typename T::S* y, float scale, float softcap,
                           uint4* memory, int* breaks, Ids id) {
    typedef FlashTile<T, HD> Tile;
    typedef typename TensorOf<T>::X X;
    enum { KS = HD / 16, KEPT = HD <= 128 };   // queries stay in registers where they fit
    const float unit = softcap != 0.0f ? 1.44269504088896341f : scale * 1.44269504088896341f;
    FK_WAIT_INPUTS();
    const uint rows = (uint)step[STEP_ROWS], m0 = (gridDim.y - 1 - id.tg_y) * 64, head = id.tg_x;   // long rows first
    if (m0 >= rows) return;
    const uint base = shared_address(memory), qs = base, ks = base + Tile::BYTES, vs = base + 2 * Tile::BYTES;
    // breaks[i]: row m0 + i does not follow the row before it.
    if (id.tid < 64) {
        const uint m = m0 + id.tid;
        breaks[id.tid] = m >= rows || (id.tid > 0 && (step_slot<R>(step, m) != step_slot<R>(step, m - 1) || step_position<R>(step, m) != step_position<R>(step, m - 1) + 1));
    }
    FK_UNROLL for (uint j = 0; j < (64 * (HD / 8) + 127) / 128; ++j) {
        const uint i = id.tid + j * 128, r = i / (HD / 8), c = i % (HD / 8);
        if (64 * (HD / 8) % 128 != 0 && i >= 64 * (HD / 8)) break;
        copy16(qs + r * Tile::ROW + c * 16, q + ((ulong)min(m0 + r, rows - 1u) * HEADS + head) * HD + c * 8, true);
    }
    copies_end();
    copies_wait<0>();
    FK_BARRIER();
    uint qf[KEPT ? KS * 4 : 4];
    const uint q_from = qs + (id.sg * 16 + id.lane % 16) * Tile::ROW + id.lane / 16 * 16;
    if (KEPT) { FK_UNROLL for (uint k = 0; k < KS; ++k) load_matrices(q_from + k * 32, qf + (KEPT ? k * 4 : 0)); }

    for (uint start = 0; start < 64 && m0 + start < rows;) {
        uint stop = start + 1;
        while (stop < 64 && !breaks[stop]) ++stop;
        const int slot = step_slot<R>(step, m0 + start), first_position = step_position<R>(step, m0 + start);
        const uint low = first_key<WINDOW>((uint)first_position), high = (uint)first_position + (stop - start);   // keys that the run sees
        const ulong cached = ((ulong)slot * KV + head / (HEADS / KV)) * ((ulong)CAP * HD);
        // Positions of this thread's two rows; rows of other runs get some that are never stored.
        const auto position_of = [&](uint r) { return (uint)max(first_position, min(first_position + (int)r - (int)start, (int)high - 1)); };
        const uint position[2] = {position_of(id.sg * 16 + id.lane / 4), position_of(id.sg * 16 + 8 + id.lane / 4)};
        const uint lowest = position_of(id.sg * 16), highest = position_of(id.sg * 16 + 15);
        float o[HD / 2], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
        FK_UNROLL for (uint i = 0; i < HD / 2; ++i) o[i] = 0.0f;
        FK_BARRIER();   // the run before has used its tiles
        Tile::copy(keys + cached, low / 64 * 64, low, high, ks, id);
        copies_end();
        FK_NO_UNROLL for (uint begin = low / 64 * 64; begin < high; begin += 64) {
            Tile::copy(values + cached, begin, low, high, vs, id);
            copies_end();
            copies_wait<1>();
            FK_BARRIER();   // keys are there
            float s[32];
            FK_UNROLL for (uint i = 0; i < 32; ++i) s[i] = 0.0f;
            FK_UNROLL for (uint k = 0; k < KS; ++k) {
                if (!KEPT) load_matrices(q_from + k * 32, qf);
                FK_UNROLL for (uint n = 0; n < 8; n += 2) {
                    uint b[4];
                    load_matrices(ks + (n * 8 + id.lane / 16 * 8 + id.lane % 8) * Tile::ROW + k * 32 + id.lane / 8 % 2 * 16, b);
                    X::mma(s + n * 4, qf + (KEPT ? k * 4 : 0), b);
                    X::mma(s + n * 4 + 4, qf + (KEPT ? k * 4 : 0), b + 2);
                }
            }
            FK_BARRIER();   // keys have been used
            if (begin + 64 < high) Tile::copy(keys + cached, begin + 64, low, high, ks, id);
            copies_end();
            if (softcap != 0.0f) { FK_UNROLL for (uint i = 0; i < 32; ++i) s[i] = softcap * tanh(s[i] * scale / softcap); }
            // Most blocks are seen whole by all rows of the simdgroup.
            if (begin + 63 > lowest || (WINDOW > 0 && begin + WINDOW <= highest)) {
                FK_UNROLL for (uint i = 0; i < 32; ++i) {
                    const uint h = i / 2 % 2, key = begin + i / 4 * 8 + id.lane % 4 * 2 + i % 2;
                    s[i] = key <= position[h] && (WINDOW == 0 || key + WINDOW > position[h]) ? s[i] : -INFINITY;
                }
            }
            FK_UNROLL for (uint h = 0; h < 2; ++h) {
                float most = top[h];
                FK_UNROLL for (uint i = 0; i < 8; ++i) most = max(most, max(s[i * 4 + h * 2], s[i * 4 + h * 2 + 1]));
                most = max(most, simd_shuffle_xor(most, (ushort)1));
                most = max(most, simd_shuffle_xor(most, (ushort)2));
                // An unchanged maximum keeps the sums as they are. Powers of two of scaled differences: unit is log2(e) and what the scores still have to be scaled by.
                const float from = most == -INFINITY ? 0.0f : most * unit, kept = most == top[h] ? 1.0f : exp2_fast(fma(top[h], unit, -from));
                top[h] = most;
                sum[h] *= kept;
                FK_UNROLL for (uint i = 0; i < HD / 8; ++i) {
                    o[i * 4 + h * 2] *= kept;
                    o[i * 4 + h * 2 + 1] *= kept;
                }
                FK_UNROLL for (uint i = 0; i < 8; ++i) {
                    s[i * 4 + h * 2] = exp2_fast(fma(s[i * 4 + h * 2], unit, -from));
                    s[i * 4 + h * 2 + 1] = exp2_fast(fma(s[i * 4 + h * 2 + 1], unit, -from));
                    sum[h] += s[i * 4 + h * 2] + s[i * 4 + h * 2 + 1];
                }
            }
            copies_wait<1>();
            FK_BARRIER();   // values are there
            FK_UNROLL for (uint k = 0; k < 4; ++k) {
                const uint p[4] = {X::two(s[k * 8], s[k * 8 + 1]), X::two(s[k * 8 + 2], s[k * 8 + 3]), X::two(s[k * 8 + 4], s[k * 8 + 5]), X::two(s[k * 8 + 6], s[k * 8 + 7])};
                FK_UNROLL for (uint n = 0; n < HD / 8; n += 2) {
                    uint b[4];
                    load_matrices_turned(vs + (k * 16 + id.lane % 16) * Tile::ROW + n * 16 + id.lane / 16 * 16, b);
                    X::mma(o + n * 4, p, b);
                    X::mma(o + n * 4 + 4, p, b + 2);
                }
            }
            FK_BARRIER();   // values have been used
        }
        FK_UNROLL for (uint h = 0; h < 2; ++h) {
            sum[h] += simd_shuffle_xor(sum[h], (ushort)1);
            sum[h] += simd_shuffle_xor(sum[h], (ushort)2);
            const uint r = id.sg * 16 + h * 8 + id.lane / 4;
            if (r < start || r >= stop) continue;
            typename T::S* out = y + ((ulong)(m0 + r) * HEADS + head) * HD + id.lane % 4 * 2;
            FK_UNROLL for (uint n = 0; n < HD / 8; ++n) *(uint*)(out + n * 8) = X::two(o[n * 4 + h * 2] / sum[h], o[n * 4 + h * 2 + 1] / sum[h]);
        }
        start = stop;
    }
}

}  // namespace fk
