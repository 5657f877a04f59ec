// The delta rule of prompts on the tensor cores of NVIDIA GPUs, for 16-bit activations and heads of whole 16s, keys up to
// 128 wide. CUDA only, from compute capability 8.0 on.
//
// Rows of one sequence go in chunks that end at multiples of C positions. With g the summed log decays of a chunk, k and q
// of unit length (q also by 1 / sqrt(KD)), S the state before it:
//   L(t, s) = beta_t exp(g_t - g_s) k_t.k_s, s < t     changes V:  (1 + L) V = beta_t (v_t - exp(g_t) S'k_t)
//   A(t, s) = exp(g_t - g_s) q_t.k_s, s <= t           results:    y_t = exp(g_t) S'q_t + sum over s of A(t, s) V_s
//                                                      state:      S = exp(g_C) S + sum over s of exp(g_C - g_s) k_s V_s'
// A threadgroup takes up to 64 columns of a value head. Four simdgroups prepare a chunk, and bring in the one after it,
// while the others scan the one before: each has 16 columns of the state in registers, turned, as sums of products
// [column][dimension], and needs nobody else, because what comes out of a product is how the next one takes it.
//
// Rows of q and k are operands as they lie, exactly; their lengths, gates and decays are f32 factors of sums. All other
// operands are two numbers of T each, the second what the first leaves: some 16 bits, so that f32 results rounded to T
// come out as those of delta() nearly always, and errors do not add up in the state.
namespace fk {

// Two floats as two numbers of T each.
template <class T> FK_FN void in_two(float a, float b, uint& high, uint& low) {
    typedef typename TensorOf<T>::X X;
    high = X::two_finite(a, b);
    low = X::two_finite(a - T::get((ushort)(high & 0xffffu)), b - T::get((ushort)(high >> 16)));
}
// The sums of two neighbouring tiles, [16][8] each, as an operand [16][16].
template <class T> FK_FN void as_operand(const float* d, uint* high, uint* low) {
    FK_UNROLL for (uint i = 0; i < 4; ++i) in_two<T>(d[2 * i], d[2 * i + 1], high[i], low[i]);
}

template <class T, int KH, int VH, int KD, int VD, int TILED, int NEGATIVE_EXP, int C, int R> struct TensorDelta {
    typedef typename TensorOf<T>::X X;
    typedef typename T::S S;
    enum {
        COLUMNS = VD < 64 ? VD : 64, SHARES = (VD + COLUMNS - 1) / COLUMNS, CH = 2 * KH * KD + VH * VD,
        SCAN = COLUMNS / 16, PREPARE = 4,   // simdgroups
        BLOCKS = C / 16, STEPS = KD / 16,
        // Bytes of a row in shared memory: an odd number of 16-byte chunks, so that eight rows lie in different banks.
        K_ROW = KD * 2 + 16, V_ROW = COLUMNS * 2 + 16, M_ROW = C * 2 + 16,
        KEYS = C * K_ROW, VALUES = C * V_ROW, STAGE = 2 * KEYS + VALUES,   // q, k and v of a chunk
        MATRIX = C * M_ROW, FACTORS = (4 * C + 8) * 4, BUFFER = 4 * MATRIX + FACTORS,   // what is prepared
        INVERSE = 16 * 20 + 4,   // floats of a diagonal block of L
        OWN = (4 * C + BLOCKS * INVERSE) * 4, BARRIERS = 4 * 8,   // what is the preparation's own; and of the two roles
        STAGES = 3, BYTES = STAGES * STAGE + 2 * BUFFER + OWN + BARRIERS
    };

    // Rows of one sequence. `enters`: the first ones of the step; `leaves`: the last; `fresh`: the state before them is zero.
    struct Chunk { uint begin, count; int slot; bool enters, leaves, fresh; };
    static FK_FN Chunk chunk_at(const int* step, uint begin, int before, uint rows, Ids id) {
        Chunk c = {begin, 0u, -1, false, false, false};
        if (begin >= rows) return c;
        c.slot = step_slot<R>(step, begin);
        const int position = step_position<R>(step, begin);
        c.enters = c.slot != before;
        c.fresh = position == 0;
        c.count = min((uint)C - (uint)position % C, rows - begin);
        FK_UNROLL for (uint i = 0; i < C; i += 32) {
            const uint r = i + id.lane;
            const uint others = simd_bits(r < c.count && step_slot<R>(step, begin + r) != c.slot, id.lane);
            if (others != 0u) c.count = min(c.count, i + count_bits((others & (0u - others)) - 1u));
        }
        return c;
    }
    // Blocks of 16 rows that a chunk is computed in: one, or all.
    static FK_FN uint blocks_of(uint count) { return count <= 16u ? 1u : (uint)BLOCKS; }

    // ---- shared memory
    // A buffer: the changes' matrix (diagonal blocks: of (1 + L), inverted; others: -L), then the results' (A), each in two
    // numbers; then beta, those of S'k, of S'q, and of what a change leaves in the state at the end, [C] each; then what
    // the scan knows of the chunk: what the state is multiplied by, begin, count, slot, enters, leaves, fresh.
    static FK_FN uint4* stage(uint4* memory, uint i) { return memory + i % STAGES * (STAGE / 16); }
    static FK_FN uint4* buffer(uint4* memory, uint i) { return memory + STAGES * STAGE / 16 + i % 2 * (BUFFER / 16); }
    static FK_FN float* factors(uint4* buffer) { return (float*)(buffer + 4 * MATRIX / 16); }
    static FK_FN float* own(uint4* memory) { return (float*)(memory + (STAGES * STAGE + 2 * BUFFER) / 16); }

    // Of each buffer: that it is prepared, and that it has been scanned, with the stage of its chunk.
    static FK_FN uint prepared(uint4* memory, uint i) { return shared_address(memory) + STAGES * STAGE + 2 * BUFFER + OWN + i % 2 * 8; }
    static FK_FN uint scanned(uint4* memory, uint i) { return prepared(memory, i) + 16; }
    static FK_FN void begin_barriers(uint4* memory) {
        FK_UNROLL for (uint i = 0; i < 2; ++i) {
            barrier_begins(prepared(memory, i), PREPARE * 32);
            barrier_begins(scanned(memory, i), SCAN * 32);
        }
    }

    // ---- preparing, by 128 threads
    struct Preparation {
        const S *c, *b, *a;   // b and a of the value head
        float rate, bias;
        uint h, kh, share, tid, sg;
        S gates[2 * C / 32];

        FK_FN void copy(const Chunk& chunk, uint4* to_stage) const {
            const uint to = shared_address(to_stage), rows = blocks_of(chunk.count) * 16u;
            const S* row = c + (ulong)chunk.begin * CH;
            FK_UNROLL for (uint j = 0; j < (C * (KD / 8) + 127) / 128; ++j) {
                const uint i = tid + j * 128, r = i / (KD / 8), n = i % (KD / 8);
                if (r >= rows) continue;
                const S* from = row + (ulong)(r < chunk.count ? r : 0u) * CH + kh * KD + n * 8;
                copy16(to + r * K_ROW + n * 16, from, r < chunk.count);
                copy16(to + KEYS + r * K_ROW + n * 16, from + KH * KD, r < chunk.count);
            }
            FK_UNROLL for (uint j = 0; j < (C * (COLUMNS / 8) + 127) / 128; ++j) {
                const uint i = tid + j * 128, r = i / (COLUMNS / 8), n = i % (COLUMNS / 8), column = share * COLUMNS + n * 8;
                if (r >= rows) continue;
                const bool there = r < chunk.count && column < VD;
                copy16(to + 2 * KEYS + r * V_ROW + n * 16, row + (ulong)(there ? r : 0u) * CH + 2 * KH * KD + h * VD + (there ? column : 0u), there);
            }
        }
        // b and a of the first simdgroup's rows: lane + 32 * i.
        FK_FN void load_gates(const Chunk& chunk, Ids id) {
            FK_UNROLL for (uint i = 0; i < C / 32; ++i) {
                const uint r = chunk.begin + min(id.lane + 32 * i, chunk.count - 1u);
                gates[2 * i] = b[(ulong)r * VH];
                gates[2 * i + 1] = a[(ulong)r * VH];
            }
        }
        // own: summed log2 decays, beta, factors of q and k to unit length, [C] each.
        FK_FN void row_factors(const Chunk& chunk, const uint4* tiles, float* own, Ids id) const {
            enum { PER = 64 / C };   // threads of a row of q or k
            const uint r = tid / PER, i = tid % PER;   // q, then k
            const uint4* row = tiles + (r / C * KEYS + r % C * K_ROW) / 16;
            float squares = 0.0f;
            if (r % C < blocks_of(chunk.count) * 16u) {
                FK_UNROLL for (uint n = 0; n < KD / 8; n += PER) {
                    float f[8];
                    T::unpack(row[n + i], f);
                    FK_UNROLL for (uint j = 0; j < 8; ++j) squares = fma(f[j], f[j], squares);
                }
            }
            if (PER == 2) squares += simd_shuffle_xor(squares, (ushort)1);
            const float factor = 1.0f / sqrt(squares + 1e-6f);
            if (i == 0u) own[2 * C + r] = r < C ? factor / sqrt((float)KD) : factor;
            if (sg != 0u) return;
            float before = 0.0f;
            FK_UNROLL for (uint n = 0; n < C / 32; ++n) {
                const bool there = id.lane + 32 * n < chunk.count;
                const float log2_decay = rate * softplus(T::get(gates[2 * n + 1]) + bias) * 1.44269504088896341f;
                // Sums stay small enough for their differences: less is nothing in any case.
                float sum = there ? (log2_decay < -127.0f ? -127.0f : log2_decay) : 0.0f;
                FK_UNROLL for (uint d = 1; d < 32; d *= 2) {
                    const float other = simd_shuffle(sum, (ushort)((id.lane - d) & 31u));
                    sum += id.lane >= d ? other : 0.0f;
                }
                own[32 * n + id.lane] = sum + before;
                own[C + 32 * n + id.lane] = there ? rounded<T>(sigmoid(T::get(gates[2 * n]))) : 0.0f;
                before += simd_shuffle(sum, (ushort)31);
            }
        }
        FK_FN void scan_factors(const Chunk& chunk, const float* own, float* out) const {
            if (tid < C) {
                const float sum = own[tid], beta = own[C + tid], decay = exp2_fast(sum);
                out[tid] = beta;
                out[C + tid] = beta * decay * own[3 * C + tid];
                out[2 * C + tid] = decay * own[2 * C + tid];
                out[3 * C + tid] = exp2_fast(own[C - 1] - sum) * own[3 * C + tid];
            }
            if (tid == 127u) {
                out[4 * C] = exp2_fast(own[C - 1]);
                int* facts = (int*)(out + 4 * C + 1);
                facts[0] = (int)chunk.begin;
                facts[1] = (int)chunk.count;
                facts[2] = chunk.slot;
                facts[3] = chunk.enters;
                facts[4] = chunk.leaves;
                facts[5] = chunk.fresh;
            }
        }
        // A row of blocks of L or A; diagonal blocks of L into `inverse`, as floats.
        template <int ROW> FK_FN void block_row(bool changes, uint tiles, uchar* matrix, const float* own, float* inverse, Ids id) const {
            float d[(ROW + 1) * 8];
            FK_UNROLL for (uint i = 0; i < (ROW + 1) * 8; ++i) d[i] = 0.0f;
            const uint from = tiles + (changes ? KEYS : 0u) + (ROW * 16 + id.lane % 16) * K_ROW + id.lane / 16 * 16;
            FK_UNROLL for (uint k = 0; k < STEPS; ++k) {
                uint x[4];
                load_matrices(from + k * 32, x);
                FK_UNROLL for (uint j = 0; j <= ROW; ++j) {
                    uint y[4];
                    load_matrices(tiles + KEYS + (j * 16 + id.lane / 16 * 8 + id.lane % 8) * K_ROW + k * 32 + id.lane / 8 % 2 * 16, y);
                    X::mma(d + j * 8, x, y);
                    X::mma(d + j * 8 + 4, x, y + 2);
                }
            }
            const float *sums = own, *factor = own + (changes ? 3 : 2) * C, *k_factor = own + 3 * C;
            FK_UNROLL for (uint half = 0; half < 2; ++half) {
                const uint t = ROW * 16 + half * 8 + id.lane / 4;
                const float sum = sums[t], scale = (changes ? own[C + t] : 1.0f) * factor[t];
                FK_UNROLL for (uint j = 0; j <= ROW; ++j) {
                    FK_UNROLL for (uint n = 0; n < 2; ++n) {
                        const uint s = j * 16 + n * 8 + id.lane % 4 * 2;
                        float v[2];
                        FK_UNROLL for (uint i = 0; i < 2; ++i) {
                            const float decay = exp2_fast(sum - sums[s + i]);
                            const bool seen = changes ? s + i < t : s + i <= t;
                            v[i] = seen ? d[j * 8 + n * 4 + half * 2 + i] * k_factor[s + i] * scale * decay : 0.0f;
                        }
                        if (changes && j == ROW) {
                            float* to = inverse + ROW * INVERSE + t % 16 * 20 + s % 16;
                            to[0] = v[0];
                            to[1] = v[1];
                            continue;
                        }
                        uint high, low;
                        in_two<T>(changes ? -v[0] : v[0], changes ? -v[1] : v[1], high, low);
                        *(uint*)(matrix + t * M_ROW + s * 2) = high;
                        *(uint*)(matrix + MATRIX + t * M_ROW + s * 2) = low;
                    }
                }
            }
        }
        // The inverse of a diagonal block of 1 + L by substitution: a lane has column lane % 16 of it.
        static FK_FN void invert(uint row, const float* inverse, uchar* matrix, Ids id) {
            const uint s = id.lane % 16;
            float x[16];
            FK_UNROLL for (uint t = 0; t < 16; ++t) {
                x[t] = t == s ? 1.0f : 0.0f;
                FK_UNROLL for (uint j = 0; j < t; j += 4) {
                    float l[4];
                    F32::unpack(*(const uint4*)(inverse + row * INVERSE + t * 20 + j), l);
                    FK_UNROLL for (uint i = 0; i < 4; ++i)
                        if (j + i < t) x[t] = fma(-l[i], x[j + i], x[t]);
                }
            }
            FK_UNROLL for (uint t = 0; t < 16; t += 2) {
                uint high, low;
                in_two<T>(x[t], x[t + 1], high, low);
                uchar* to = matrix + (row * 16 + t) * M_ROW + (row * 16 + s) * 2;
                *(ushort*)to = (ushort)(high & 0xffffu);
                *(ushort*)(to + M_ROW) = (ushort)(high >> 16);
                *(ushort*)(to + MATRIX) = (ushort)(low & 0xffffu);
                *(ushort*)(to + MATRIX + M_ROW) = (ushort)(low >> 16);
            }
        }
        // Two simdgroups make the matrix of changes, two that of results: the first and last rows of blocks, or those between.
        FK_FN void matrices(uint blocks, const uint4* tiles, uint4* buffer, const float* own, float* inverse, Ids id) const {
            const bool changes = sg % 2 == 0u;
            const uint pair = sg / 2;
            uchar* matrix = (uchar*)buffer + (changes ? 0u : 2u * MATRIX);
            const uint from = shared_address(tiles);
            if (pair == 0u) {
                block_row<0>(changes, from, matrix, own, inverse, id);
                if (BLOCKS > 2 && blocks > 1u) block_row<BLOCKS - 1>(changes, from, matrix, own, inverse, id);
            } else if (blocks > 1u) {
                block_row<1>(changes, from, matrix, own, inverse, id);
                if (BLOCKS > 2) block_row<BLOCKS - 2>(changes, from, matrix, own, inverse, id);
            }
            if (!changes) return;
            __syncwarp();
            const uint row = BLOCKS > 2 && id.lane >= 16u ? (uint)BLOCKS - 1u - pair : pair;
            if (row < blocks && (BLOCKS > 2 || id.lane < 16u)) invert(row, inverse, matrix, id);
        }
    };

    static FK_FN void prepare(const int* step, const S* c, const S* b, const S* a, float rate, float bias, uint h, uint share, uint4* memory, Ids id) {
        const uint rows = (uint)step[STEP_ROWS];
        Preparation p = {c, b + h, a + h, rate, bias, h, TILED ? h % KH : h / (VH / KH), share, id.tid - SCAN * 32, id.sg - SCAN};
        Chunk chunk = chunk_at(step, 0u, -1, rows, id);
        p.copy(chunk, stage(memory, 0));
        copies_end();
        p.load_gates(chunk, id);
        FK_NO_UNROLL for (uint i = 0;; ++i) {
            Chunk next = chunk_at(step, chunk.begin + chunk.count, chunk.slot, rows, id);
            chunk.leaves = next.count == 0u || next.enters;
            if (i >= 2u) barrier_wait(scanned(memory, i), (i / 2u - 1u) & 1u);   // chunk i - 2: its buffer, and its stage, which is that of i + 1
            if (next.count > 0u) p.copy(next, stage(memory, i + 1));
            copies_end();
            copies_wait<1>();
            barrier_among<1, PREPARE * 32>();   // the chunk is there
            const uint4* tiles = stage(memory, i);
            float* mine = own(memory);
            if (chunk.count > 0u) p.row_factors(chunk, tiles, mine, id);
            if (next.count > 0u) p.load_gates(next, id);
            barrier_among<1, PREPARE * 32>();
            p.scan_factors(chunk, mine, factors(buffer(memory, i)));
            if (chunk.count > 0u) p.matrices(blocks_of(chunk.count), tiles, buffer(memory, i), mine, mine + 4 * C, id);
            barrier_arrive(prepared(memory, i));
            if (chunk.count == 0u) return;
            chunk = next;
        }
    }

    // ---- scanning: a simdgroup, 16 columns from `first` on
    // s: tiles [16 columns][8 dimensions] of the state.
    static FK_FN void load_state(const float* state, uint first, float* s, Ids id) {
        FK_UNROLL for (uint i = 0; i < KD / 2; ++i) s[i] = state[(i / 4 * 8 + id.lane % 4 * 2 + i % 2) * VD + first + i / 2 % 2 * 8 + id.lane / 4];
    }
    static FK_FN void store_state(float* state, uint first, const float* s, Ids id) {
        FK_UNROLL for (uint i = 0; i < KD / 2; ++i) state[(i / 4 * 8 + id.lane % 4 * 2 + i % 2) * VD + first + i / 2 % 2 * 8 + id.lane / 4] = s[i];
    }
    // d [16 columns][16 * B rows] += the state's dimensions 16k .. 16k + 15, with those of rows of q or k.
    template <int B> static FK_FN void read_state(uint rows, uint k, const float* s, float* d, Ids id) {
        uint high[4], low[4], x[B * 4];
        as_operand<T>(s + k * 8, high, low);
        FK_UNROLL for (uint j = 0; j < B; ++j) load_matrices(rows + (j * 16 + id.lane / 16 * 8 + id.lane % 8) * K_ROW + k * 32 + id.lane / 8 % 2 * 16, x + j * 4);
        FK_UNROLL for (uint j = 0; j < 2 * B; ++j) X::mma(d + j * 4, high, x + j * 2);
        FK_UNROLL for (uint j = 0; j < 2 * B; ++j) X::mma(d + j * 4, low, x + j * 2);
    }
    // d [16 columns][16 rows i] += x [16 columns][16 rows j] with a block of a matrix [i][j], all in two numbers.
    static FK_FN void add_block(uint matrix, uint i, uint j, const uint* high, const uint* low, float* d, Ids id) {
        const uint from = matrix + (i * 16 + id.lane / 16 * 8 + id.lane % 8) * M_ROW + j * 32 + id.lane / 8 % 2 * 16;
        uint x[4], y[4];
        load_matrices(from, x);
        load_matrices(from + MATRIX, y);
        X::mma(d, high, x);
        X::mma(d + 4, high, x + 2);
        X::mma(d, low, x);
        X::mma(d + 4, low, x + 2);
        X::mma(d, high, y);
        X::mma(d + 4, high, y + 2);
    }
    // Two factors of rows that a lane has in tile n.
    static FK_FN float2 of_rows(const float* factor, uint n, Ids id) { return *(const float2*)(factor + n * 8 + id.lane % 4 * 2); }

    template <int B> static FK_FN void scan_chunk(const uint4* tiles, const uint4* prepared, const float* factor, uint begin, uint count, uint h, uint first, float* s, S* y, Ids id) {
        const uint queries = shared_address(tiles), keys = queries + KEYS, values = keys + KEYS + id.sg * 32, changes = shared_address(prepared), results = changes + 2 * MATRIX;
        float v[B * 8], o[B * 8];   // [16 columns][16 * B rows]
        FK_UNROLL for (uint i = 0; i < B * 8; ++i) v[i] = o[i] = 0.0f;
        FK_UNROLL for (uint k = 0; k < STEPS; ++k) read_state<B>(keys, k, s, v, id);
        FK_UNROLL for (uint j = 0; j < B; ++j) {
            uint x[4];
            load_matrices_turned(values + (j * 16 + id.lane / 16 * 8 + id.lane % 8) * V_ROW + id.lane / 8 % 2 * 16, x);
            FK_UNROLL for (uint i = 0; i < 4; ++i) {
                const float2 beta = of_rows(factor, 2 * j + i / 2, id), read = of_rows(factor + C, 2 * j + i / 2, id);
                float* d = v + j * 8 + i * 2;
                d[0] = fma(T::get((ushort)(x[i] & 0xffffu)), beta.x, -read.x * d[0]);
                d[1] = fma(T::get((ushort)(x[i] >> 16)), beta.y, -read.y * d[1]);
            }
        }
        // Changes, a block after the other. Each step waits for the one before it: what the state says of q comes between.
        uint high[B * 4], low[B * 4];
        FK_UNROLL for (uint j = 0; j < B; ++j) {
            float d[8];
            uint x[4], z[4];
            FK_UNROLL for (uint i = 0; i < 8; ++i) d[i] = 0.0f;
            as_operand<T>(v + j * 8, x, z);
            add_block(changes, j, j, x, z, d, id);
            FK_UNROLL for (uint k = 2 * j * STEPS / (2 * B); k < (2 * j + 1) * STEPS / (2 * B); ++k) read_state<B>(queries, k, s, o, id);
            FK_UNROLL for (uint i = 0; i < 8; ++i) v[j * 8 + i] = d[i];
            as_operand<T>(d, high + j * 4, low + j * 4);
            FK_UNROLL for (uint i = j + 1; i < B; ++i) add_block(changes, i, j, high + j * 4, low + j * 4, v + i * 8, id);
            FK_UNROLL for (uint k = (2 * j + 1) * STEPS / (2 * B); k < (2 * j + 2) * STEPS / (2 * B); ++k) read_state<B>(queries, k, s, o, id);
        }
        FK_UNROLL for (uint n = 0; n < 2 * B; ++n) {
            const float2 read = of_rows(factor + 2 * C, n, id);
            FK_UNROLL for (uint i = 0; i < 4; ++i) o[n * 4 + i] *= i % 2 ? read.y : read.x;
        }
        FK_UNROLL for (uint j = 0; j < B; ++j)
            FK_UNROLL for (uint i = j; i < B; ++i) add_block(results, i, j, high + j * 4, low + j * 4, o + i * 8, id);
        // The state's next value; four pairs of tiles at a time keep sums apart that would wait for each other.
        const float decay = factor[4 * C];
        FK_UNROLL for (uint i = 0; i < KD / 2; ++i) s[i] *= decay;
        FK_UNROLL for (uint j = 0; j < B; ++j) {
            uint x[4], z[4];
            FK_UNROLL for (uint n = 0; n < 2; ++n) {
                const float2 left = of_rows(factor + 3 * C, 2 * j + n, id);
                FK_UNROLL for (uint i = 0; i < 4; ++i) v[j * 8 + n * 4 + i] *= i % 2 ? left.y : left.x;
            }
            as_operand<T>(v + j * 8, x, z);
            FK_UNROLL for (uint m = 0; m < STEPS; m += 4) {
                uint k[16];
                FK_UNROLL for (uint n = m; n < m + 4 && n < STEPS; ++n) load_matrices_turned(keys + (j * 16 + id.lane % 16) * K_ROW + n * 32 + id.lane / 16 * 16, k + (n - m) * 4);
                FK_UNROLL for (uint n = 2 * m; n < 2 * m + 8 && n < 2 * STEPS; ++n) X::mma(s + n * 4, x, k + (n - 2 * m) * 2);
                FK_UNROLL for (uint n = 2 * m; n < 2 * m + 8 && n < 2 * STEPS; ++n) X::mma(s + n * 4, z, k + (n - 2 * m) * 2);
            }
        }
        FK_UNROLL for (uint n = 0; n < 2 * B; ++n)
            FK_UNROLL for (uint half = 0; half < 2; ++half) {
                const uint t = n * 8 + id.lane / 4, two = turn_matrix(X::two(o[n * 4 + half * 2], o[n * 4 + half * 2 + 1]));
                if (t < count) *(uint*)(y + ((ulong)(begin + t) * VH + h) * VD + first + half * 8 + id.lane % 4 * 2) = two;
            }
    }

    static FK_FN void scan(float* state, S* y, uint h, uint share, uint4* memory, Ids id) {
        const uint first = share * COLUMNS + id.sg * 16;
        float s[KD / 2];
        FK_UNROLL for (uint i = 0; i < KD / 2; ++i) s[i] = 0.0f;
        FK_NO_UNROLL for (uint i = 0;; ++i) {
            barrier_wait(prepared(memory, i), (i / 2u) & 1u);
            const float* factor = factors(buffer(memory, i));
            const int* facts = (const int*)(factor + 4 * C + 1);
            const uint begin = (uint)facts[0], count = (uint)facts[1];
            if (count == 0u) return;
            if (VD % COLUMNS == 0 || first < VD) {
                float* own_state = state + ((ulong)facts[2] * VH + h) * (KD * VD);
                if (facts[3]) {
                    if (facts[5]) { FK_UNROLL for (uint n = 0; n < KD / 2; ++n) s[n] = 0.0f; }
                    else load_state(own_state, first, s, id);
                }
                if (count <= 16u) scan_chunk<1>(stage(memory, i), buffer(memory, i), factor, begin, count, h, first, s, y, id);
                else scan_chunk<BLOCKS>(stage(memory, i), buffer(memory, i), factor, begin, count, h, first, s, y, id);
                if (facts[4]) store_state(own_state, first, s, id);
            }
            barrier_arrive(scanned(memory, i));
        }
    }
};

template <class T, int KH, int VH, int KD, int VD, int TILED, int NEGATIVE_EXP, int C, int BYTES, int R>
FK_FN void delta_tensor(const int* step, const typename T::S* c, const typename T::S* b, const typename T::S* a, const float* a_log, const float* dt_bias, float* state,
                        typename T::S* y, uint4* memory, Ids id) {
    typedef TensorDelta<T, KH, VH, KD, VD, TILED, NEGATIVE_EXP, C, R> Delta;
    static_assert((int)Delta::BYTES == BYTES, "memory is what the kernel lays out");
    const uint h = id.tg_x / Delta::SHARES, share = id.tg_x % Delta::SHARES;
    const float rate = NEGATIVE_EXP ? a_log[h] : -exp(a_log[h]), bias = dt_bias[h];
    FK_WAIT_INPUTS();
    if (step[STEP_ROWS] == 0) return;
    if (id.tid == 0) Delta::begin_barriers(memory);
    FK_BARRIER();
    if (id.sg < Delta::SCAN) Delta::scan(state, y, h, share, memory, id);
    else Delta::prepare(step, c, b, a, rate, bias, h, share, memory, id);
}

}  // namespace fk
