// Element types of activations and dense weights. They are storage only: a kernel computes in float.
namespace fk {

// One step: what changes from one replay of a program to the next. R is the most rows a program takes.
//   [0] rows, [1] output rows, [2] tokens picked on the device, [3] ids below which they are picked; from 8 on
//   R tokens, R slots, R positions, R output rows.
// All launches but a step's first may read it before FK_WAIT_INPUTS(): the first waits for whatever wrote it.
enum { STEP_ROWS = 0, STEP_OUTPUTS = 1, STEP_PICKED = 2, STEP_LIMIT = 3, STEP_ARRAYS = 8 };
template <int R> FK_FN int step_token(DEVICE const int* s, uint r) { return s[STEP_ARRAYS + r]; }
template <int R> FK_FN int step_slot(DEVICE const int* s, uint r) { return s[STEP_ARRAYS + R + r]; }
template <int R> FK_FN int step_position(DEVICE const int* s, uint r) { return s[STEP_ARRAYS + 2 * R + r]; }
template <int R> FK_FN int step_output(DEVICE const int* s, uint r) { return s[STEP_ARRAYS + 3 * R + r]; }

// S is what lies in memory, N how many of it fill 16 bytes.
struct F32 {
    typedef float S;
    enum { N = 4, BYTES = 4 };
    static FK_FN float get(float v) { return v; }
    static FK_FN float put(float v) { return v; }
    static FK_FN void unpack(uint4 v, THREAD float* f) {
        f[0] = as_f32(v.x);
        f[1] = as_f32(v.y);
        f[2] = as_f32(v.z);
        f[3] = as_f32(v.w);
    }
    static FK_FN uint4 pack(THREAD const float* f) { return make_u4(as_u32(f[0]), as_u32(f[1]), as_u32(f[2]), as_u32(f[3])); }
};
struct Bf16 {
    typedef ushort S;
    enum { N = 8, BYTES = 2 };
    static FK_FN float get(ushort v) { return as_f32((uint)v << 16); }
    static FK_FN ushort put(float v) {
        const uint u = as_u32(v);
        if ((u & 0x7fffffffu) > 0x7f800000u) return (ushort)((u >> 16) | 0x40u);
        return (ushort)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
    static FK_FN void unpack(uint4 v, THREAD float* f) {
        f[0] = as_f32(v.x << 16);
        f[1] = as_f32(v.x & 0xffff0000u);
        f[2] = as_f32(v.y << 16);
        f[3] = as_f32(v.y & 0xffff0000u);
        f[4] = as_f32(v.z << 16);
        f[5] = as_f32(v.z & 0xffff0000u);
        f[6] = as_f32(v.w << 16);
        f[7] = as_f32(v.w & 0xffff0000u);
    }
    static FK_FN uint two(float a, float b) { return (uint)put(a) | ((uint)put(b) << 16); }
    static FK_FN uint4 pack(THREAD const float* f) { return make_u4(two(f[0], f[1]), two(f[2], f[3]), two(f[4], f[5]), two(f[6], f[7])); }
};
struct F16 {
    typedef ushort S;
    enum { N = 8, BYTES = 2 };
    static FK_FN float get(ushort v) { return f16_to_f32(v); }
    static FK_FN ushort put(float v) { return f32_to_f16(v); }
    static FK_FN void unpack(uint4 v, THREAD float* f) {
        f[0] = f16_to_f32((ushort)(v.x & 0xffffu));
        f[1] = f16_to_f32((ushort)(v.x >> 16));
        f[2] = f16_to_f32((ushort)(v.y & 0xffffu));
        f[3] = f16_to_f32((ushort)(v.y >> 16));
        f[4] = f16_to_f32((ushort)(v.z & 0xffffu));
        f[5] = f16_to_f32((ushort)(v.z >> 16));
        f[6] = f16_to_f32((ushort)(v.w & 0xffffu));
        f[7] = f16_to_f32((ushort)(v.w >> 16));
    }
    static FK_FN uint two(float a, float b) { return (uint)put(a) | ((uint)put(b) << 16); }
    static FK_FN uint4 pack(THREAD const float* f) { return make_u4(two(f[0], f[1]), two(f[2], f[3]), two(f[4], f[5]), two(f[6], f[7])); }
};

// Rounding to T.
template <class T> FK_FN float rounded(float v) { return T::get(T::put(v)); }

// Chunk c (T::N elements) of a row of K elements that begins at a multiple of K; zeros past the end.
template <class T, int K> FK_FN void load_chunk(DEVICE const typename T::S* row, uint c, THREAD float* f) {
    if (K % T::N == 0) {
        T::unpack(((DEVICE const uint4*)row)[c], f);
    } else {
        FK_UNROLL for (uint j = 0; j < T::N; ++j) {
            const uint i = c * T::N + j;
            f[j] = i < K ? T::get(row[i]) : 0.0f;
        }
    }
}
template <class T, int K> FK_FN void store_chunk(DEVICE typename T::S* row, uint c, THREAD const float* f) {
    if (K % T::N == 0) {
        ((DEVICE uint4*)row)[c] = T::pack(f);
    } else {
        FK_UNROLL for (uint j = 0; j < T::N; ++j) {
            const uint i = c * T::N + j;
            if (i < K) row[i] = T::put(f[j]);
        }
    }
}

// The norms: two roundings, one plus, one rounding. n is normalised, w the weight.
template <class T, int KIND> FK_FN float normed(float n, float w) {
    if (KIND == 0) return rounded<T>(w * rounded<T>(n));
    if (KIND == 1) return rounded<T>(n * (1.0f + w));
    return rounded<T>(n * w);
}
FK_FN float sigmoid(float x) {
    const float e = exp(-fabs(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
// 0: silu, 1: gelu by tanh, as x times a sigmoid.
template <int ACT> FK_FN float activate(float x) {
    if (ACT == 0) return x * sigmoid(x);
    return x * sigmoid(1.59576912160573071f * (x + 0.044715f * x * x * x));
}

// Sum over all NT threads of a threadgroup, in an order that depends on nothing else. `red`: NT / 32 floats.
template <int NT> FK_FN float group_sum(float v, THREADGROUP float* red, Ids id) {
    v = simd_sum(v);
    if (NT == 32) return v;
    FK_BARRIER();
    if (id.lane == 0) red[id.sg] = v;
    FK_BARRIER();
    float t = 0.0f;
    FK_UNROLL for (uint i = 0; i < NT / 32; ++i) t += red[i];
    return t;
}

// How NT threads share the chunks of a row whose squares are summed in the order of 256 threads, each a chunk in 256:
// a thread has chunks tid + LANES * i and stands for thread (tid + LANES * i) % 256 there. So the norm of a row has the
// same bits in a launch of its own and in a product, whatever the threads.
template <class T, int K, int NT> struct NormShare {
    enum { CHUNKS = (K + T::N - 1) / T::N, LANES = NT < 256 ? NT : 256, SETS = 256 / LANES, OWN = (CHUNKS + LANES - 1) / LANES };
    // From the sums of a thread's sets to 1 / sqrt(mean + eps). red: 8 floats; `again`: they may still be read.
    static FK_FN float factor(THREAD const float* squares, float eps, bool again, THREADGROUP float* red, Ids id) {
        if (again) FK_BARRIER();
        FK_UNROLL for (uint j = 0; j < SETS; ++j) {
            const float s = simd_sum(squares[j]);
            if (id.lane == 0 && id.tid < LANES) red[j * (LANES / 32) + id.sg] = s;
        }
        FK_BARRIER();
        float t = 0.0f;
        FK_UNROLL for (uint i = 0; i < 8; ++i) t += red[i];
        return 1.0f / sqrt(t / (float)K + eps);
    }
};
template <class T, int K, int NT> FK_FN float norm_factor(DEVICE const typename T::S* row, float eps, THREADGROUP float* red, Ids id) {
    typedef NormShare<T, K, NT> Share;
    float squares[Share::SETS];
    FK_UNROLL for (uint j = 0; j < Share::SETS; ++j) {
        squares[j] = 0.0f;
        for (uint c = id.tid + j * Share::LANES; id.tid < Share::LANES && c < Share::CHUNKS; c += 256) {
            float f[T::N];
            load_chunk<T, K>(row, c, f);
            FK_UNROLL for (uint i = 0; i < T::N; ++i) squares[j] = fma(f[i], f[i], squares[j]);
        }
    }
    return Share::factor(squares, eps, true, red, id);
}

}  // namespace fk
