// Parts of the cache merged in the launch that makes them, by the threadgroup that ends last.
namespace fk {

// For a threadgroup that has written its part: whether it is the last of `parts`, who then sees what all have written.
// at: a word that is 0 between launches. flag: a word of the threadgroup's.
FK_FN bool last_to_arrive(DEVICE uint* at, uint parts, THREADGROUP uint* flag, Ids id) {
    FK_BARRIER_ALL();
    if (parts == 1u) return true;
    if (id.tid == 0) {
        fence_device();
        const bool last = arrive(at) + 1u == parts;
        fence_device();
        if (last) clear_arrivals(at);
        flag[0] = last ? 1u : 0u;
    }
    FK_BARRIER_ALL();
    return flag[0] != 0u;
}

// After attention_decode, in the same launch: what attention_combine does, for rows of up to MERGED parts, in the same
// order of sums. GATED: the gate of head h follows its query in q. arrivals: a word for each row and GP heads.
// w: GP * (MERGED + 1) floats.
template <class T, int HEADS, int HD, int GP, int PART, int MOST, int NEAR, int PARTS, int MERGED, int WINDOW, int R, int GATED, int NT>
FK_FN void attention_merge(DEVICE const int* step, SHARED_DEVICE float* partial, DEVICE const typename T::S* q, DEVICE typename T::S* y, DEVICE uint* arrivals, THREADGROUP float* w,
                           THREADGROUP uint* flag, Ids id) {
    // TURNS: the simdgroups of attention_combine, which take parts in turn.
    enum { TURNS = 8, VEC = HD % 4 == 0 ? 4 : 1, CHUNKS = HD / VEC, STRIDE = PART_HEADER + HD };
    const uint row = id.tg_y, head = id.tg_x * GP;
    if ((int)row >= step[STEP_ROWS]) return;
    const uint position = (uint)step_position<R>(step, row), parts = key_parts<WINDOW, PART, MOST, NEAR>(position).count;
    if (id.tg_z >= parts || parts > MERGED) return;
    if (!last_to_arrive(arrivals + row * (HEADS / GP) + id.tg_x, parts, flag, id)) return;
    SHARED_DEVICE const float* all = partial + ((ulong)row * HEADS + head) * ((ulong)PARTS * STRIDE);
    for (uint g = id.sg; g < GP; g += NT / 32) {   // a simdgroup takes a head
        SHARED_DEVICE const float* in = all + (ulong)g * ((ulong)PARTS * STRIDE);
        float top = -INFINITY, total = 0.0f;
        for (uint p = id.lane; p < parts; p += 32) top = max(top, in[p * STRIDE]);
        top = simd_max(top);
        for (uint p = id.lane; p < parts; p += 32) {
            const float e = exp(in[p * STRIDE] - top);
            total += e * in[p * STRIDE + 1];
            w[g * (MERGED + 1) + p] = e;
        }
        total = simd_sum(total);
        if (id.lane == 0) w[g * (MERGED + 1) + MERGED] = total;
    }
    FK_BARRIER();
    for (uint i = id.tid; i < GP * CHUNKS; i += NT) {
        const uint g = i / CHUNKS, d = i % CHUNKS * VEC;
        SHARED_DEVICE const float* in = all + (ulong)g * ((ulong)PARTS * STRIDE) + PART_HEADER + d;
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        FK_UNROLL for (uint t = 0; t < TURNS; ++t) {
            float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            FK_UNROLL4 for (uint p = t; p < parts; p += TURNS) {
                float f[4];
                if (VEC == 4) {
                    const uint4 v = *(SHARED_DEVICE const uint4*)(in + p * STRIDE);
                    f[0] = as_f32(v.x);
                    f[1] = as_f32(v.y);
                    f[2] = as_f32(v.z);
                    f[3] = as_f32(v.w);
                } else {
                    f[0] = in[p * STRIDE];
                }
                FK_UNROLL for (uint j = 0; j < VEC; ++j) s[j] = fma(w[g * (MERGED + 1) + p], f[j], s[j]);
            }
            FK_UNROLL for (uint j = 0; j < VEC; ++j) sum[j] += s[j];
        }
        FK_UNROLL for (uint j = 0; j < VEC; ++j) {
            float v = sum[j] / w[g * (MERGED + 1) + MERGED];
            if (GATED) v = rounded<T>(v) * rounded<T>(sigmoid(T::get(q[((ulong)row * HEADS + head + g) * (2 * HD) + HD + d + j])));
            y[((ulong)row * HEADS + head + g) * HD + d + j] = T::put(v);
        }
    }
}

}  // namespace fk
