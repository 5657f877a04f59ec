// Key/value cache, qk_prepare (norm, rope, cache write) and attention.
// T is the activation type, r() rounding to T; scores and sums are f32.
#pragma once

#include <cstdint>

#include "kernels/cpu_kernel.h"
#include "kernels/matmul/matmul.h"

namespace forge {

// One layer's cache: for every slot and KV head, `capacity` positions of
// head_dim elements of T. The arrangement inside a head is the CPU's own
// (docs/numerics.md): keys in blocks of 16 positions, transposed, so that lanes
// are positions; values paired by position for bf16.
struct KvCache {
    void* keys = nullptr;
    void* values = nullptr;
    int capacity = 0;                         // positions per slot, a multiple of 16
    int slots = 0, n_kv_heads = 0, head_dim = 0;
    DType type = DType::bf16;
};
// Bytes of `keys` (the same for `values`).
std::size_t kv_cache_bytes(int capacity, int slots, int n_kv_heads, int head_dim, DType type);
// Copies one position's key or value vector of a head out of / into the cache, as T
// (sessions are saved in plain [position][head_dim] order).
void kv_read(const KvCache& cache, bool values, int slot, int head, int position, void* out);
void kv_write(const KvCache& cache, bool values, int slot, int head, int position, const void* in);

struct RopeTableParams {
    const float* inv_freq = nullptr;          // [half]
    int half = 0;
    float scale = 1;
    DType type = DType::bf16;                 // cos and sin are rounded to T
    float* table = nullptr;                   // [m][2 * half]: cos, then sin
};
// angle = float(position) * inv_freq[i] in f32; cos and sin of it correctly rounded from double. Items: rows.
CpuKernel rope_table_kernel(const RopeTableParams& params, Isa isa);

struct QkPrepareParams {
    DType type = DType::bf16;
    int n_heads = 0, n_kv_heads = 0, head_dim = 0;
    const void* q = nullptr;                  // [m, n_heads * head_dim]
    const void* k = nullptr;                  // [m, n_kv_heads * head_dim]; null: this layer reads another's cache
    const void* v = nullptr;
    void* q_out = nullptr;                    // [m, n_heads * head_dim]; may be q
    const float* q_norm = nullptr;            // [head_dim] or null
    const float* k_norm = nullptr;
    NormFormula norm = NormFormula::two_rounding;
    float eps = 0;
    const float* rope = nullptr;              // table [m][2 * rope_half]
    int rope_half = 0;                        // pairs (i, i + half); later dims pass through
    bool q_gated = false;                     // q is [m, n_heads * 2 * head_dim]: query, gate, query, gate, ...
    bool v_norm = false;                      // values = norm(v) over head_dim without a weight (one rounding)
    bool v_from_k = false;                    // v is null: values are made of the raw k
    KvCache cache;
    int max_rows = 1;                         // most rows a step brings
};
// q = rope(norm(q)); keys[slot][position] = rope(norm(k)); values = v.
// Rope as the reference rounds: r(r(a*cos) - r(b*sin)), r(r(b*cos) + r(a*sin)). Items: rows * (heads + kv heads).
CpuKernel qk_prepare_kernel(const QkPrepareParams& params, Isa isa);

struct AttentionParams {
    DType type = DType::bf16;
    int n_heads = 0, n_kv_heads = 0, head_dim = 0;
    const void* q = nullptr;                  // [m, n_heads * head_dim]
    void* out = nullptr;                      // [m, n_heads * head_dim]
    float scale = 1, softcap = 0;
    int window = 0;                           // 0 = all earlier keys; else keys j with i - window < j <= i
    KvCache cache;
    float* partial = nullptr;                 // decode: attention_partial_bytes(...)
    int max_rows = 1;
};
// M <= 8: split-K over the cache at fixed borders (so that bits do not depend on the
// thread count), KV heads shared by their query heads; `combine` merges the parts.
CpuKernel attention_decode_kernel(const AttentionParams& params, Isa isa);
CpuKernel attention_combine_kernel(const AttentionParams& params, Isa isa);
std::size_t attention_partial_bytes(const AttentionParams& params);
// M > 8: flash attention over blocks of query rows of one slot.
CpuKernel attention_prefill_kernel(const AttentionParams& params, Isa isa);

}  // namespace forge
