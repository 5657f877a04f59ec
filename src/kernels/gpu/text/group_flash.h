// Prompts' attention by wgmma, for 16-bit activations and heads of 64, 128 and 256. CUDA only, compute capability 9.0.
//
// What attention_flash() in flash.h does, block by block of 64 keys. A threadgroup takes 128 rows of one head, 64 for each
// of two groups of four simdgroups; a third group brings keys and values, in turn, into a ring of tiles. A group makes
// the scores of a block while the values of the block before are added, and turns scores into weights meanwhile; blocks
// of which none of its rows sees anything it lets pass. Rows of one sequence that follow each other are a run; rows of
// several runs go through the keys of each, and keep what is of their own.
namespace fk {

template <class T, int HEADS, int KV, int HD, int WINDOW, int CAP, int R, int STAGES> struct GroupFlash {
    typedef typename TensorOf<T>::X X;
    typedef typename T::S S;
    // TILE: bytes of 64 rows, as squares of 64 columns; LAG: tiles that are on their way when the first of them is waited
    // for (at most STAGES - 2: a group has used all but one of those before the one that it waits for).
    enum { SQUARE = 64 * 128, SQUARES = HD / 64, TILE = SQUARES * SQUARE, STEPS = HD / 16, KEPT = HD <= 128, LAG = STAGES / 2, BARRIERS = 2 * TILE + STAGES * TILE };

    // Rows start .. stop - 1 of the threadgroup's, the first of them at `position`, see keys low .. high - 1, each up to its own.
    struct Run { uint start, stop, position, low, high; ulong cached; };
    static FK_FN Run run_at(const int* step, const int* breaks, uint m0, uint start, uint head) {
        Run run = {start, start + 1u, (uint)step_position<R>(step, m0 + start), 0u, 0u, ((ulong)step_slot<R>(step, m0 + start) * KV + head / (HEADS / KV)) * ((ulong)CAP * HD)};
        while (run.stop < 128u && !breaks[run.stop]) ++run.stop;
        run.low = first_key<WINDOW>(run.position);
        run.high = run.position + (run.stop - start);
        return run;
    }

    // ---- the ring: tile t is the keys (t even) or values of a block; its barriers say that it is there, and that both groups have used it
    static FK_FN uint tile(uint base, uint t) { return base + 2 * TILE + t % STAGES * TILE; }
    static FK_FN uint filled(uint base, uint t) { return base + BARRIERS + t % STAGES * 16; }
    static FK_FN uint used(uint base, uint t) { return filled(base, t) + 8; }
    static FK_FN void begin_barriers(uint base) {
        FK_UNROLL for (uint t = 0; t < STAGES; ++t) {
            barrier_begins(filled(base, t), 128);
            barrier_begins(used(base, t), 8);
        }
    }
    // 64 rows from `begin` on, of those in [low, high), by a group; zeros for others, which are not read.
    static FK_FN void copy(const S* from, uint begin, uint low, uint high, uint to, uint thread) {
        enum { CHUNKS = HD / 8, AT_ONCE = 128 / CHUNKS };   // of a row; and rows
        const uint c = thread % CHUNKS, first = thread / CHUNKS;
        from += (ulong)(begin + first) * HD + c * 8;
        FK_UNROLL for (uint r = 0; r < 64; r += AT_ONCE) {
            const uint at = begin + first + r;
            copy16(to + c / 8 * SQUARE + tile_at(first + r, c % 8), from + r * HD, at >= low && at < high);
        }
    }
    // What this thread has written by copies that it waited for is there for wgmma.
    static FK_FN void written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

    static FK_FN void bring(const int* step, const S* keys, const S* values, const int* breaks, uint base, uint m0, uint rows, uint head, Ids id) {
        uint t = 0;
        for (uint start = 0; start < 128u && m0 + start < rows;) {
            const Run run = run_at(step, breaks, m0, start, head);
            FK_NO_UNROLL for (uint begin = run.low / 64 * 64; begin < run.high; begin += 64)
                FK_NO_UNROLL for (uint i = 0; i < 2; ++i, ++t) {
                    if (t >= STAGES) barrier_wait(used(base, t), (t / STAGES - 1u) & 1u);
                    copy((i == 0u ? keys : values) + run.cached, begin, run.low, run.high, tile(base, t), id.tid % 128);
                    copies_end();
                    if (t < LAG) continue;
                    copies_wait<LAG>();
                    written();
                    barrier_arrive(filled(base, t - LAG));
                }
            start = run.stop;
        }
        copies_wait<0>();
        written();
        for (uint i = t < LAG ? 0u : t - LAG; i < t; ++i) barrier_arrive(filled(base, i));
    }

    // ---- a group's part
    static FK_FN void wait_tile(uint base, uint t) { barrier_wait(filled(base, t), t / STAGES & 1u); }
    static FK_FN void release(uint base, uint t, Ids id) {
        __syncwarp();
        if (id.lane == 0) barrier_arrive(used(base, t));
    }
    // Tiles that have nothing for this group. (Waited for: else it could be a whole ring ahead of the other one.)
    static FK_FN void pass(uint base, uint& t, uint count, Ids id) {
        for (uint i = 0; i < count; ++i, ++t) {
            wait_tile(base, t);
            release(base, t, id);
        }
    }
    // The products of one block begin. q: in registers, or where they lie.
    static FK_FN void begin_scores(float (&s)[32], const uint* q, uint queries, uint keys) {
        group_fence();
        FK_UNROLL for (uint k = 0; k < STEPS; ++k) {
            const ulong b = tile_descriptor(keys + k / 4 * SQUARE) + k % 4 * 2;
            if (KEPT) X::template group_mma<0>(s, q + (KEPT ? k * 4 : 0), b, k > 0u);
            else X::group_mma(s, tile_descriptor(queries + k / 4 * SQUARE) + k % 4 * 2, b, k > 0u);
        }
        group_ends();
    }
    static FK_FN void begin_values(float (&o)[HD / 2], const uint* p, uint values) {
        // Columns of the operand are neighbours in memory: from 64 of them to the next 64, from eight rows to the next eight.
        const ulong b = (ulong)((values & 0x3ffffu) >> 4) | ((ulong)(SQUARE >> 4) << 16) | (64ull << 32) | (1ull << 62);
        group_fence();
        FK_UNROLL for (uint k = 0; k < 4; ++k) X::template group_mma<1>(o, p + k * 4, b + k * 128, true);
        group_ends();
    }
    // What the products have: nobody may look at it before.
    template <int N> static FK_FN void there(float (&d)[N]) { FK_UNROLL for (uint i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory"); }

    struct Sums { float top[2], sum[2], kept[2]; };
    // Scores of the block at `begin` become weights. position: of this thread's rows.
    static FK_FN void weigh(float (&s)[32], uint begin, const uint* position, uint lowest, uint highest, float scale, float softcap, float unit, Sums& sums, Ids id) {
        if (softcap != 0.0f) { FK_UNROLL for (uint i = 0; i < 32; ++i) s[i] = softcap * tanh(s[i] * scale / softcap); }
        if (begin + 63 > lowest || (WINDOW > 0 && begin + WINDOW <= highest)) {   // most blocks are seen whole
            FK_UNROLL for (uint i = 0; i < 32; ++i) {
                const uint h = i / 2 % 2, key = begin + i / 4 * 8 + id.lane % 4 * 2 + i % 2;
                s[i] = key <= position[h] && (WINDOW == 0 || key + WINDOW > position[h]) ? s[i] : -INFINITY;
            }
        }
        FK_UNROLL for (uint h = 0; h < 2; ++h) {
            float most = sums.top[h];
            FK_UNROLL for (uint i = 0; i < 8; ++i) most = max(most, max(s[i * 4 + h * 2], s[i * 4 + h * 2 + 1]));
            most = max(most, simd_shuffle_xor(most, (ushort)1));
            most = max(most, simd_shuffle_xor(most, (ushort)2));
            const float from = most == -INFINITY ? 0.0f : most * unit;
            sums.kept[h] = most == sums.top[h] ? 1.0f : exp2_fast(fma(sums.top[h], unit, -from));
            sums.top[h] = most;
            float sum = sums.sum[h] * sums.kept[h];
            FK_UNROLL for (uint i = 0; i < 8; ++i) {
                s[i * 4 + h * 2] = exp2_fast(fma(s[i * 4 + h * 2], unit, -from));
                s[i * 4 + h * 2 + 1] = exp2_fast(fma(s[i * 4 + h * 2 + 1], unit, -from));
                sum += s[i * 4 + h * 2] + s[i * 4 + h * 2 + 1];
            }
            sums.sum[h] = sum;
        }
    }
    // Rounded, as the operand: only when the products before have what it was.
    static FK_FN void round_weights(const float (&s)[32], uint* p) { FK_UNROLL for (uint i = 0; i < 16; ++i) p[i] = X::two(s[2 * i], s[2 * i + 1]); }

    static FK_FN void attend(const int* step, const S* q, S* y, const int* breaks, float scale, float softcap, uint base, uint m0, uint rows, uint head, Ids id) {
        const float unit = softcap != 0.0f ? 1.44269504088896341f : scale * 1.44269504088896341f;
        const uint group = id.sg / 4, row = id.sg % 4 * 16, queries = base + group * TILE, from = group * 64;   // `row` of its 64, which are rows `from` on
        // A row that is not there is the last one.
        FK_UNROLL for (uint j = 0; j < 64 * (HD / 8) / 128; ++j) {
            const uint i = id.tid % 128 + j * 128, r = i / (HD / 8), c = i % (HD / 8);
            copy16(queries + c / 8 * SQUARE + tile_at(r, c % 8), q + ((ulong)min(m0 + from + r, rows - 1u) * HEADS + head) * HD + c * 8, true);
        }
        copies_end();
        copies_wait<0>();
        written();
        if (group == 0u) barrier_among<1, 128>();
        else barrier_among<2, 128>();
        uint qf[KEPT ? STEPS * 4 : 4];
        if (KEPT) { FK_UNROLL for (uint k = 0; k < STEPS; ++k) load_matrices(queries + k / 4 * SQUARE + tile_at(row + id.lane % 16, k % 4 * 2 + id.lane / 16), qf + (KEPT ? k * 4 : 0)); }

        uint t = 0;
        for (uint start = 0; start < 128u && m0 + start < rows;) {
            const Run run = run_at(step, breaks, m0, start, head);
            start = run.stop;
            const uint blocks = (run.high + 63u) / 64u - run.low / 64u, first_row = max(run.start, from), end_row = min(run.stop, from + 64u);
            if (first_row >= end_row) {
                pass(base, t, 2u * blocks, id);
                continue;
            }
            // Positions of this thread's two rows; rows of other runs get some that are never stored.
            const auto position_of = [&](uint r) { return min(max(from + r, first_row), end_row - 1u) - run.start + run.position; };
            const uint position[2] = {position_of(row + id.lane / 4), position_of(row + 8 + id.lane / 4)}, lowest = position_of(row), highest = position_of(row + 15);
            const uint first = first_key<WINDOW>(position_of(0)) / 64u, count = position_of(63) / 64u + 1u - first, before = first - run.low / 64u;
            pass(base, t, 2u * before, id);
            float s[32], o[HD / 2];
            uint p[16];
            Sums sums = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, {1.0f, 1.0f}};
            FK_UNROLL for (uint i = 0; i < HD / 2; ++i) o[i] = 0.0f;
            wait_tile(base, t);
            begin_scores(s, qf, queries, tile(base, t));
            group_wait<0>();
            there(s);
            release(base, t, id);
            weigh(s, first * 64u, position, lowest, highest, scale, softcap, unit, sums, id);
            round_weights(s, p);
            FK_NO_UNROLL for (uint block = 1; block < count; ++block, t += 2) {
                wait_tile(base, t + 2);
                begin_scores(s, qf, queries, tile(base, t + 2));
                wait_tile(base, t + 1);
                begin_values(o, p, tile(base, t + 1));
                group_wait<1>();
                there(s);
                release(base, t + 2, id);
                weigh(s, (first + block) * 64u, position, lowest, highest, scale, softcap, unit, sums, id);
                group_wait<0>();
                there(o);
                release(base, t + 1, id);
                // Unchanged maxima keep the sums as they are.
                if (simd_bits(sums.kept[0] != 1.0f || sums.kept[1] != 1.0f, id.lane) != 0u) { FK_UNROLL for (uint i = 0; i < HD / 2; ++i) o[i] *= sums.kept[i / 2 % 2]; }
                round_weights(s, p);
            }
            wait_tile(base, t + 1);
            begin_values(o, p, tile(base, t + 1));
            group_wait<0>();
            there(o);
            release(base, t + 1, id);
            t += 2;
            pass(base, t, 2u * (blocks - before - count), id);
            FK_UNROLL for (uint h = 0; h < 2; ++h) {
                float sum = sums.sum[h];
                sum += simd_shuffle_xor(sum, (ushort)1);
                sum += simd_shuffle_xor(sum, (ushort)2);
                const uint r = from + row + h * 8 + id.lane / 4;
                if (r < run.start || r >= run.stop) continue;
                S* out = y + ((ulong)(m0 + r) * HEADS + head) * HD + id.lane % 4 * 2;
                FK_UNROLL for (uint n = 0; n < HD / 8; ++n) *(uint*)(out + n * 8) = X::two(o[n * 4 + h * 2] / sum, o[n * 4 + h * 2 + 1] / sum);
            }
        }
    }
};

template <class T, int HEADS, int KV, int HD, int WINDOW, int CAP, int R, int STAGES>
FK_FN void attention_groups(const int* step, const typename T::S* q, const typename T::S* keys, const typename T::S* values, typename T::S* y, float scale, float softcap, uint4* memory,
                            int* breaks, Ids id) {
    typedef GroupFlash<T, HEADS, KV, HD, WINDOW, CAP, R, STAGES> Flash;
    FK_WAIT_INPUTS();
    const uint rows = (uint)step[STEP_ROWS], m0 = (gridDim.y - 1 - id.tg_y) * 128, head = id.tg_x;   // long rows first
    if (m0 >= rows) return;
    const uint base = (shared_address(memory) + 1023u) & ~1023u;
    // breaks[i]: row m0 + i does not follow the row before it.
    if (id.tid < 128) {
        const uint m = m0 + id.tid;
        breaks[id.tid] = m >= rows || (id.tid > 0 && (step_slot<R>(step, m) != step_slot<R>(step, m - 1) || step_position<R>(step, m) != step_position<R>(step, m - 1) + 1));
    }
    if (id.tid == 256) Flash::begin_barriers(base);
    FK_BARRIER();
    // The threadgroup has 168 registers for a thread; those who compute take more of them: 2 * 232 + 40 = 3 * 168.
    if (id.sg >= 8) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        Flash::bring(step, keys, values, breaks, base, m0, rows, head, id);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        Flash::attend(step, q, y, breaks, scale, softcap, base, m0, rows, head, id);
    }
}

}  // namespace fk
