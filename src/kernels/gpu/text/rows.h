// Row-wise operations.
namespace fk {

// y = norm(x), or residual + norm(x). A threadgroup takes one vector of K: row tg_y, group tg_x of GROUPS.
// KIND 3: no weight.
template <class T, int K, int GROUPS, int KIND, int RESIDUAL, int OUT, int NT>
FK_FN void norm(DEVICE const int* step, DEVICE const typename T::S* x, DEVICE const float* w, DEVICE const typename T::S* residual,
                DEVICE typename T::S* y, float eps, THREADGROUP float* red, Ids id) {
    FK_WAIT_INPUTS();
    if ((int)id.tg_y >= step[OUT ? STEP_OUTPUTS : STEP_ROWS]) return;
    const ulong at = ((ulong)id.tg_y * GROUPS + id.tg_x) * K;
    const float factor = norm_factor<T, K, NT>(x + at, eps, red, id);
    for (uint c = id.tid; c < (K + T::N - 1) / T::N; c += NT) {
        float f[T::N], r[T::N];
        load_chunk<T, K>(x + at, c, f);
        if (RESIDUAL) load_chunk<T, K>(residual + at, c, r);
        FK_UNROLL for (uint j = 0; j < T::N; ++j) {
            const uint i = min(c * T::N + j, (uint)(K - 1));
            const float n = f[j] * factor;
            f[j] = KIND == 3 ? rounded<T>(n) : normed<T, KIND>(n, w[i]);
            if (RESIDUAL) f[j] = r[j] + f[j];
        }
        store_chunk<T, K>(y + at, c, f);
    }
}

// Element-wise operations: a thread takes one element of row tg_y.
template <class T, int K, int NT>
FK_FN void add(DEVICE const int* step, DEVICE const typename T::S* a, DEVICE const typename T::S* b, DEVICE typename T::S* y, Ids id) {
    FK_WAIT_INPUTS();
    const uint c = id.tg_x * NT + id.tid;
    if (c >= K || (int)id.tg_y >= step[STEP_ROWS]) return;
    const ulong i = (ulong)id.tg_y * K + c;
    y[i] = T::put(T::get(a[i]) + T::get(b[i]));
}

template <class T, int K, int NT>
FK_FN void scale(DEVICE const int* step, DEVICE const typename T::S* x, DEVICE const float* weight, DEVICE typename T::S* y, float factor, int has_weight, Ids id) {
    FK_WAIT_INPUTS();
    const uint c = id.tg_x * NT + id.tid;
    if (c >= K || (int)id.tg_y >= step[STEP_ROWS]) return;
    const ulong i = (ulong)id.tg_y * K + c;
    y[i] = T::put(T::get(x[i]) * (has_weight ? weight[0] : factor));
}

// y = act(gate) * up; up is UP_STRIDE wide and begins at UP_OFFSET.
template <class T, int K, int UP_STRIDE, int UP_OFFSET, int ACT, int NT>
FK_FN void act_mul(DEVICE const int* step, DEVICE const typename T::S* gate, DEVICE const typename T::S* up, DEVICE typename T::S* y, Ids id) {
    FK_WAIT_INPUTS();
    const uint c = id.tg_x * NT + id.tid;
    if (c >= K || (int)id.tg_y >= step[STEP_ROWS]) return;
    const ulong i = (ulong)id.tg_y * K + c;
    y[i] = T::put(rounded<T>(activate<ACT>(T::get(gate[i]))) * T::get(up[(ulong)id.tg_y * UP_STRIDE + UP_OFFSET + c]));
}

template <class T, int K, int R, int NT>
FK_FN void take_rows(DEVICE const int* step, DEVICE const typename T::S* x, DEVICE typename T::S* y, Ids id) {
    FK_WAIT_INPUTS();
    const uint c = id.tg_x * NT + id.tid;
    if (c >= K || (int)id.tg_y >= step[STEP_OUTPUTS]) return;
    y[(ulong)id.tg_y * K + c] = x[(ulong)step_output<R>(step, id.tg_y) * K + c];
}

// y = x * sigmoid(gate); the gate of head h follows its query in q.
template <class T, int HEADS, int HD, int NT>
FK_FN void head_gate(DEVICE const int* step, DEVICE const typename T::S* x, DEVICE const typename T::S* q, DEVICE typename T::S* y, Ids id) {
    FK_WAIT_INPUTS();
    const uint c = id.tg_x * NT + id.tid;
    if (c >= HEADS * HD || (int)id.tg_y >= step[STEP_ROWS]) return;
    const ulong i = (ulong)id.tg_y * (HEADS * HD) + c;
    const float gate = T::get(q[((ulong)id.tg_y * HEADS + c / HD) * (2 * HD) + HD + c % HD]);
    y[i] = T::put(T::get(x[i]) * rounded<T>(sigmoid(gate)));
}

}  // namespace fk
