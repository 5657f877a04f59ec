// The arg-max of a step's first row of logits, which becomes the next step's token without the host.
namespace fk {

// What is larger wins, of equals the lower id. Not a number and infinity win over all, with the id -1.
FK_FN void better(THREAD float& best, THREAD int& id, float other, int other_id) {
    if (other > best || (other == best && other_id < id)) {
        best = other;
        id = other_id;
    }
}
FK_FN void best_of_lanes(THREAD float& best, THREAD int& id) {
    FK_UNROLL for (uint d = 16; d > 0; d >>= 1) {
        const float other = simd_shuffle_xor(best, (ushort)d);
        const int other_id = simd_shuffle_xor(id, (ushort)d);
        better(best, id, other, other_id);
    }
}

// Threadgroup tg_x of PARTS: the best of its share of the ids below the step's limit. parts: [PARTS] values, [PARTS] ids.
template <int V, int PARTS, int NT>
FK_FN void pick_part(DEVICE const int* step, DEVICE const float* logits, DEVICE float* parts, THREADGROUP float* values, THREADGROUP int* ids, Ids id) {
    FK_WAIT_INPUTS();
    const uint limit = min((uint)step[STEP_LIMIT], (uint)V);
    float best = -INFINITY;
    int at = 0x7fffffff;
    for (uint i = id.tg_x * NT + id.tid; i < limit; i += PARTS * NT) {
        const float v = logits[i];
        if (isnan(v) || v == INFINITY) better(best, at, INFINITY, -1);
        else better(best, at, v, (int)i);
    }
    best_of_lanes(best, at);
    if (id.lane == 0) {
        values[id.sg] = best;
        ids[id.sg] = at;
    }
    FK_BARRIER();
    if (id.tid > 0) return;
    for (uint i = 1; i < NT / 32; ++i) better(best, at, values[i], ids[i]);
    parts[id.tg_x] = best;
    parts[PARTS + id.tg_x] = as_f32((uint)at);
}

// One simdgroup: the best part becomes the token of row 0, one position on. picked: what was picked since the host
// wrote the step, in order; -1 where nothing can be.
template <int PARTS, int R> FK_FN void pick_next(DEVICE int* step, DEVICE const float* parts, DEVICE int* picked, Ids id) {
    FK_WAIT_INPUTS();
    float best = -INFINITY;
    int at = 0x7fffffff;
    for (uint i = id.lane; i < PARTS; i += 32) better(best, at, parts[i], (int)as_u32(parts[PARTS + i]));
    best_of_lanes(best, at);
    if (id.lane > 0) return;
    const bool none = at < 0 || best == -INFINITY;
    const int count = step[STEP_PICKED];
    picked[count] = none ? -1 : at;
    step[STEP_PICKED] = count + 1;
    step[STEP_ARRAYS] = none ? 0 : at;
    step[STEP_ARRAYS + 2 * R] += 1;
}

}  // namespace fk
