// Decode attention on the tensor cores of NVIDIA GPUs, for 16-bit activations and heads of whole 64s up to 256. CUDA only.
//
// What attention_decode() in attention.h does, with the same launches around it, without its phases: a simdgroup takes
// every NT / 32-th 16 keys of a part, with a running maximum, and needs nobody until the sums of a threadgroup's
// simdgroups are merged. Keys and values are read into registers as the hardware's operands lie, 16 bytes a lane:
// scores  [head][key] = q (rows: heads) * keys (columns), dimension pairs in the order in which a lane has them;
// values  [dimension][head] = values turned (rows: dimensions, put together from two keys' words) * weights (columns).
// The loads of the next 16 keys are under way while these are used. A row's bits depend on the row alone.
namespace fk {

// D > 0 (compute capability 9.0): the copy engine brings keys and values into shared memory, D times 16 positions a
// simdgroup ahead, which is more than registers can hold. The bits are the same.
template <class T, class P, int FUSED, int HEADS, int KV, int HD, int GP, int PART, int MOST, int NEAR, int PARTS, int WINDOW, int CAP, int R, int NT, int D> struct TensorDecode {
    typedef typename TensorOf<T>::X X;
    typedef typename T::S S;
    // 16-byte chunks of a key that a lane has, and of a value; of a vector, and of a step of the ring. EARLY: all that the
    // ring brings is older than the launch before.
    enum { SG = NT / 32, KC = HD / 32, VC = HD / 64, ROW = HD / 8, STEP = 32 * ROW, EARLY = FUSED && P::writes };

    // Lane (g, t) has chunks t, t + 4, ... of keys g and g + 8, and chunks g, g + 8, ... of values 2t, 2t + 1, 2t + 8, 2t + 9.
    static FK_FN uint key_of(uint h, Ids id) { return id.lane / 4 + 8 * h; }
    static FK_FN uint value_of(uint v, Ids id) { return id.lane % 4 * 2 + v % 2 + v / 2 * 8; }
    static FK_FN uint4 chunk(const S* row, uint c, bool there) { return there ? ((const uint4*)row)[c] : make_u4(0u, 0u, 0u, 0u); }
    static FK_FN uint4 own_chunk(const float* row, uint c) {
        float f[8];
        FK_UNROLL for (uint j = 0; j < 8; ++j) f[j] = row[c * 8 + j];
        return T::pack(f);
    }
    // Positions base + 0 .. 15, of those in [from, to); others stay as they are, or are zero where `fresh`.
    static FK_FN void load_keys(const S* keys, uint base, uint from, uint to, bool fresh, uint4* k, Ids id) {
        FK_UNROLL for (uint h = 0; h < 2; ++h) {
            const uint at = base + key_of(h, id);
            const bool there = at >= from && at < to;
            FK_UNROLL for (uint c = 0; c < KC; ++c)
                if (there || fresh) k[h * KC + c] = chunk(keys + (ulong)at * HD, id.lane % 4 + 4 * c, there);
        }
    }
    static FK_FN void load_values(const S* values, uint base, uint from, uint to, bool fresh, uint4* v, Ids id) {
        FK_UNROLL for (uint i = 0; i < 4; ++i) {
            const uint at = base + value_of(i, id);
            const bool there = at >= from && at < to;
            FK_UNROLL for (uint c = 0; c < VC; ++c)
                if (there || fresh) v[i * VC + c] = chunk(values + (ulong)at * HD, id.lane / 4 + 8 * c, there);
        }
    }
    // Up to 16 keys and values from position `base` on, of those before `to`, into the ring's step at `slot`, whose barrier
    // says when they are there.
    static FK_FN void copy_step(const S* keys, const S* values, uint base, uint to, uint slot, uint bar, Ids id) {
        const uint n = base < to ? min(16u, to - base) : 0u;
        if (n == 0u) return;   // the same for a simdgroup
        if (id.lane == 0) {
            barrier_expects(bar, n * (HD * 4));
            copy_bulk(slot, keys + (ulong)base * HD, n * (HD * 2), bar);
            copy_bulk(slot + 16 * ROW * 16, values + (ulong)base * HD, n * (HD * 2), bar);
        }
    }
    static FK_FN void begin_ring(const S* keys, const S* values, uint base, uint to, uint ring, uint bars, Ids id) {
        FK_UNROLL for (uint s = 0; s < D; ++s) copy_step(keys, values, base + s * (SG * 16), to, ring + s * (STEP * 16), bars + s * 8, id);
    }
    // What copy_step() brought; zeros for values that are not before `to`.
    static FK_FN void read_step(const uint4* slot, uint base, uint to, uint4* k, uint4* v, Ids id) {
        FK_UNROLL for (uint h = 0; h < 2; ++h)
            FK_UNROLL for (uint c = 0; c < KC; ++c) k[h * KC + c] = slot[key_of(h, id) * ROW + id.lane % 4 + 4 * c];
        FK_UNROLL for (uint i = 0; i < 4; ++i)
            FK_UNROLL for (uint c = 0; c < VC; ++c) v[i * VC + c] = slot[16 * ROW + value_of(i, id) * ROW + id.lane / 4 + 8 * c];
        if (base + 16 > to) {
            FK_UNROLL for (uint i = 0; i < 4; ++i)
                FK_UNROLL for (uint c = 0; c < VC; ++c)
                    if (base + value_of(i, id) >= to) v[i * VC + c] = make_u4(0u, 0u, 0u, 0u);
        }
    }
    // The vectors of position `at`, which this launch has made.
    static FK_FN void own(const float* own_k, const float* own_v, uint base, uint at, uint4* k, uint4* v, Ids id) {
        FK_UNROLL for (uint h = 0; h < 2; ++h)
            if (base + key_of(h, id) == at) { FK_UNROLL for (uint c = 0; c < KC; ++c) k[h * KC + c] = own_chunk(own_k, id.lane % 4 + 4 * c); }
        FK_UNROLL for (uint i = 0; i < 4; ++i)
            if (base + value_of(i, id) == at) { FK_UNROLL for (uint c = 0; c < VC; ++c) v[i * VC + c] = own_chunk(own_v, id.lane / 4 + 8 * c); }
    }
    // s[key of 16: 2t, 2t + 1, 2t + 8, 2t + 9] of head g.
    static FK_FN void scores(const uint4* q, const uint4* k, float* s) {
        float c[2][2][4];   // two sums for each eight keys, which do not wait for each other
        FK_UNROLL for (uint i = 0; i < 16; ++i) c[i / 8][i / 4 % 2][i % 4] = 0.0f;
        FK_UNROLL for (uint i = 0; i < KC; ++i)
            FK_UNROLL for (uint h = 0; h < 2; ++h) {
                const uint4 b = k[h * KC + i];
                const uint a0[4] = {q[i].x, 0u, q[i].y, 0u}, a1[4] = {q[i].z, 0u, q[i].w, 0u}, b0[2] = {b.x, b.y}, b1[2] = {b.z, b.w};
                X::mma(c[h][0], a0, b0);
                X::mma(c[h][1], a1, b1);
            }
        FK_UNROLL for (uint i = 0; i < 4; ++i) s[i] = c[i / 2][0][i % 2] + c[i / 2][1][i % 2];
    }
    // o [dimension pair of 8][4]: dimensions 64c + 8g + 2i and + 1, heads 2t and 2t + 1.
    static FK_FN void add_values(const uint* p, const uint4* v, float (&o)[VC * 4][4]) {
        FK_UNROLL for (uint c = 0; c < VC; ++c) {
            const uint w[4][4] = {{v[c].x, v[c].y, v[c].z, v[c].w}, {v[VC + c].x, v[VC + c].y, v[VC + c].z, v[VC + c].w},
                                  {v[2 * VC + c].x, v[2 * VC + c].y, v[2 * VC + c].z, v[2 * VC + c].w}, {v[3 * VC + c].x, v[3 * VC + c].y, v[3 * VC + c].z, v[3 * VC + c].w}};
            FK_UNROLL for (uint i = 0; i < 4; ++i) {
                const uint a[4] = {__byte_perm(w[0][i], w[1][i], 0x5410), __byte_perm(w[0][i], w[1][i], 0x7632), __byte_perm(w[2][i], w[3][i], 0x5410), __byte_perm(w[2][i], w[3][i], 0x7632)};
                X::mma(o[c * 4 + i], a, p);
            }
        }
    }

    // merged: SG * GP * (HD + 2) floats; own_: (GP + 2 + SG) * HD floats (FUSED); ring: SG * D * (STEP + 1) uint4, from a multiple
    // of 128 bytes on (else the copy engine writes every line twice).
    static FK_FN void run(const AttentionInputs<T>& in, float* merged, float* own_, uint4* ring, Ids id) {
        const DecodePart part = decode_part<FUSED, HEADS, KV, HD, GP, PART, MOST, NEAR, WINDOW, CAP, R>(in.step, id);
        const uint head = part.head, row = part.row, position = part.position, begin = part.begin, end = part.end, old = part.old;
        const ulong cached = part.cached;
        const S *keys = in.keys + cached, *values = in.values + cached;
        uint base = begin + id.sg * 16;
        uint4 k[2 * KC], v[4 * VC];
        const uint4* mine = ring + id.sg * (D * STEP);
        const uint to_mine = shared_address(mine), bars = shared_address(ring) + SG * D * STEP * 16 + id.sg * (D * 8);
        if (D == 0) {
            load_keys(keys, base, begin, old, true, k, id);
            load_values(values, base, begin, old, true, v, id);
        } else {
            if (id.lane == 0) {
                FK_UNROLL for (uint s = 0; s < D; ++s) barrier_begins(bars + s * 8);
                barriers_began();
            }
            __syncwarp();
            if (EARLY) begin_ring(keys, values, base, old, to_mine, bars, id);
        }
        OwnTurn<T, P, HD> turn;
        if (FUSED) turn.load(in, position, id);
        FK_WAIT_INPUTS();
        if (!part.there || begin >= end) return;
        const uint at = FUSED && P::writes && end == position + 1 ? position : 0xffffffffu, to = min(end, at);
        const uint from = max(begin, old);
        if (from < to && D == 0) {
            load_keys(keys, base, from, to, false, k, id);
            load_values(values, base, from, to, false, v, id);
        }
        if (D > 0 && !EARLY) begin_ring(keys, values, base, to, to_mine, bars, id);
        float *own_k = own_ + GP * HD, *own_v = own_k + HD;
        uint4 q[KC];
        if (FUSED) {
            prepare_own<T, P, HEADS / KV, HD, GP, NT>(in, head, part.kv, at == position, cached + (ulong)position * HD, turn, own_, id);
            FK_BARRIER();
            FK_UNROLL for (uint c = 0; c < KC; ++c) q[c] = id.lane / 4 < GP ? own_chunk(own_ + id.lane / 4 * HD, id.lane % 4 + 4 * c) : make_u4(0u, 0u, 0u, 0u);
        } else {
            FK_UNROLL for (uint c = 0; c < KC; ++c) q[c] = chunk(in.q + ((ulong)row * HEADS + head + min(id.lane / 4, (uint)(GP - 1))) * HD, id.lane % 4 + 4 * c, id.lane / 4 < GP);
        }
        float o[VC * 4][4], top = -INFINITY, sum = 0.0f;
        FK_UNROLL for (uint i = 0; i < VC * 16; ++i) o[i / 4][i % 4] = 0.0f;
        uint slot = 0, phase = 0;
        FK_NO_UNROLL for (; base < end; base += SG * 16) {   // the same for a simdgroup
            if (D > 0) {
                if (base < to) barrier_wait(bars + slot * 8, phase);
                read_step(mine + slot * STEP, base, to, k, v, id);
            }
            if (at < end && at - base < 16u) own(own_k, own_v, base, at, k, v, id);
            float s[4];
            scores(q, k, s);
            if (D == 0) load_keys(keys, base + SG * 16, begin, to, true, k, id);
            float most = top;
            FK_UNROLL for (uint i = 0; i < 4; ++i) {
                s[i] *= in.scale;
                if (in.softcap != 0.0f) s[i] = in.softcap * tanh(s[i] / in.softcap);
                s[i] = base + value_of(i, id) < end ? s[i] : -INFINITY;
                most = max(most, s[i]);
            }
            most = max(most, simd_shuffle_xor(most, (ushort)1));
            most = max(most, simd_shuffle_xor(most, (ushort)2));
            const float kept = exp(top - most);   // key `base` is seen, so most is a number
            top = most;
            float more = 0.0f;
            FK_UNROLL for (uint i = 0; i < 4; ++i) {
                s[i] = exp(s[i] - most);
                more += s[i];
            }
            sum = fma(sum, kept, more);
            if (simd_bits(kept != 1.0f, id.lane) != 0u) {
                const float a = simd_shuffle(kept, (ushort)(id.lane % 4 * 8)), b = simd_shuffle(kept, (ushort)(id.lane % 4 * 8 + 4));
                FK_UNROLL for (uint i = 0; i < VC * 16; ++i) o[i / 4][i % 4] *= i % 2 ? b : a;
            }
            const uint p[2] = {X::two(s[0], s[1]), X::two(s[2], s[3])};
            add_values(p, v, o);
            if (D == 0) {
                load_values(values, base + SG * 16, begin, to, true, v, id);
            } else {   // now that the products have what the step held: the copy engine waits for nobody's loads
                __syncwarp();
                copy_step(keys, values, base + D * (SG * 16), to, to_mine + slot * (STEP * 16), bars + slot * 8, id);
                if (++slot == D) {
                    slot = 0;
                    phase ^= 1u;
                }
            }
        }
        sum += simd_shuffle_xor(sum, (ushort)1);
        sum += simd_shuffle_xor(sum, (ushort)2);
        // [simdgroup][head]: the sums of values, then [simdgroup][head] the maxima and the sums.
        float *tops = merged + SG * GP * HD, *sums = tops + SG * GP;
        if (id.lane % 4 == 0 && id.lane / 4 < GP) {
            tops[id.sg * GP + id.lane / 4] = top;
            sums[id.sg * GP + id.lane / 4] = sum;
        }
        FK_UNROLL for (uint i = 0; i < VC * 16; ++i) {
            const uint g = id.lane % 4 * 2 + i % 2, d = i / 16 * 64 + id.lane / 4 * 8 + i / 4 % 4 * 2 + i / 2 % 2;
            if (g < GP) merged[(id.sg * GP + g) * HD + d] = o[i / 4][i % 4];
        }
        FK_BARRIER();
        for (uint i = id.tid; i < GP * HD; i += NT) {
            const uint g = i / HD, d = i % HD;
            float most = -INFINITY, total = 0.0f, value = 0.0f;
            FK_UNROLL for (uint w = 0; w < SG; ++w) most = max(most, tops[w * GP + g]);
            FK_UNROLL for (uint w = 0; w < SG; ++w) {
                const float e = exp(tops[w * GP + g] - most);
                total = fma(sums[w * GP + g], e, total);
                value = fma(merged[(w * GP + g) * HD + d], e, value);
            }
            float* out = in.partial + (((ulong)row * HEADS + head + g) * PARTS + id.tg_z) * (PART_HEADER + HD);
            out[PART_HEADER + d] = value;
            if (d == 0u) {
                out[0] = most;
                out[1] = total;
            }
        }
    }
};

}  // namespace fk
