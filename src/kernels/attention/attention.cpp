// Checks parameters and chooses the entry points; the cache's plain access.
#include "kernels/attention/attention.h"

#include <cstring>

#include "base/error.h"
#include "attention/functions.h"
#include "attention/work.h"

namespace forge {
namespace {

const AttentionFunctions& functions(Isa isa) {
    if (!isa_available(isa))
        fail(ErrorKind::unsupported, "attention kernels for {} were asked for, but this machine does not run {}",
             name_of(isa), name_of(isa));
    switch (isa) {
        case Isa::plain: break;
#if defined(__x86_64__)
        case Isa::avx2: return attention_avx2;
        case Isa::avx512: return attention_avx512;
#elif defined(__aarch64__)
        case Isa::neon: return attention_neon;
#endif
        default:
            fail(ErrorKind::unsupported, "attention kernels for {} are not part of this build", name_of(isa));
    }
    return attention_plain;
}

const char* named(const char* const (&names)[4], Isa isa) { return names[static_cast<int>(isa)]; }

void check_type(const char* kernel, DType type) {
    if (type != DType::f32 && type != DType::f16 && type != DType::bf16)
        fail(ErrorKind::unsupported, "{}: activations must be f32, f16 or bf16, not {}", kernel, name_of(type));
}

void check_heads(const char* kernel, DType type, int n_heads, int n_kv_heads, int head_dim, const KvCache& cache) {
    check_type(kernel, type);
    if (head_dim < 2 || head_dim > 512 || head_dim % 2 != 0)
        fail(ErrorKind::unsupported, "{}: head_dim must be even and 2 to 512, not {}", kernel, head_dim);
    if (n_heads < 1 || n_kv_heads < 1 || n_heads % n_kv_heads != 0)
        fail("{}: {} query heads cannot be shared among {} KV heads; the first must be a multiple of the second",
             kernel, n_heads, n_kv_heads);
    if (cache.type != type || cache.head_dim != head_dim || cache.n_kv_heads != n_kv_heads)
        fail(ErrorKind::internal, "{}: the cache holds {} heads of {} {} elements, the kernel wants {} of {} {}", kernel,
             cache.n_kv_heads, cache.head_dim, name_of(cache.type), n_kv_heads, head_dim, name_of(type));
    if (cache.capacity < kBlock || cache.capacity % kBlock != 0)
        fail(ErrorKind::internal, "{}: the cache's capacity must be a multiple of {}, not {}", kernel, kBlock,
             cache.capacity);
}

std::int64_t rows_of(const void*, const StepRows& step) { return step.m; }

std::size_t rounded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Packed queries, scores, probabilities, sums, an edge row of values, and
// four floats a line; `lines` of them, `keys` scores each (simd_body.h).
std::size_t block_scratch(const AttentionParams& p, std::size_t element, std::size_t lines, std::size_t keys) {
    const std::size_t dims = static_cast<std::size_t>((p.head_dim + kBlock - 1) / kBlock * kBlock);
    return rounded(lines * dims * element) + rounded(lines * (keys + kBlock) * (4 + element)) + 64 +
           rounded(lines * dims * 4) + rounded(kPanel * 8) + 4 * rounded(lines * 4);
}

std::size_t scratch_of(const AttentionParams& p, const AttentionFunctions& f) {
    const std::size_t lines = static_cast<std::size_t>(std::max(kLines, p.n_heads / p.n_kv_heads));
    return block_scratch(p, f.block_scratch[type_index(p.type)], lines, std::max(kPart, kRun));
}

std::size_t element_offset(const KvCache& cache, bool values, int slot, int head, int position, int d) {
    const CacheLayout layout = layout_of(cache);
    const std::int64_t inside = values ? layout.value(position, d) : layout.key(position, d);
    return static_cast<std::size_t>(layout.head_offset(cache, slot, head) + inside) * size_of(cache.type);
}

}  // namespace

std::size_t kv_cache_bytes(int capacity, int slots, int n_kv_heads, int head_dim, DType type) {
    const CacheLayout layout(head_dim, capacity, type);
    return static_cast<std::size_t>(layout.head) * static_cast<std::size_t>(slots) *
           static_cast<std::size_t>(n_kv_heads) * size_of(type);
}

void kv_read(const KvCache& cache, bool values, int slot, int head, int position, void* out) {
    const auto* from = static_cast<const std::byte*>(values ? cache.values : cache.keys);
    const std::size_t size = size_of(cache.type);
    for (int d = 0; d < cache.head_dim; ++d)
        std::memcpy(static_cast<std::byte*>(out) + static_cast<std::size_t>(d) * size,
                    from + element_offset(cache, values, slot, head, position, d), size);
}

void kv_write(const KvCache& cache, bool values, int slot, int head, int position, const void* in) {
    auto* to = static_cast<std::byte*>(values ? cache.values : cache.keys);
    const std::size_t size = size_of(cache.type);
    for (int d = 0; d < cache.head_dim; ++d)
        std::memcpy(to + element_offset(cache, values, slot, head, position, d),
                    static_cast<const std::byte*>(in) + static_cast<std::size_t>(d) * size, size);
}

CpuKernel rope_table_kernel(const RopeTableParams& params, Isa isa) {
    check_type("rope_table", params.type);
    static const char* const names[] = {"rope_table_plain", "rope_table_avx2", "rope_table_avx512", "rope_table_neon"};
    return {named(names, isa), functions(isa).rope_table[type_index(params.type)], rows_of, 4, 0};
}

CpuKernel qk_prepare_kernel(const QkPrepareParams& params, Isa isa) {
    const bool keys = params.k != nullptr;
    KvCache cache = params.cache;
    if (!keys) {  // another layer's cache is read; nothing is written here
        cache.type = params.type;
        cache.head_dim = params.head_dim;
        cache.n_kv_heads = params.n_kv_heads;
        cache.capacity = std::max(cache.capacity, kBlock);
    }
    check_heads("qk_prepare", params.type, params.n_heads, params.n_kv_heads, params.head_dim, cache);
    if (params.rope != nullptr && (params.rope_half < 1 || 2 * params.rope_half > params.head_dim))
        fail(ErrorKind::internal, "qk_prepare: {} rotated pairs do not fit a head of {}", params.rope_half,
             params.head_dim);
    if (keys && (params.v == nullptr) != params.v_from_k) fail(ErrorKind::internal, "qk_prepare: values come from `v` or, with v_from_k, from the keys");
    static const char* const names[] = {"qk_prepare_plain", "qk_prepare_avx2", "qk_prepare_avx512", "qk_prepare_neon"};
    const auto items = [](const void* p, const StepRows& step) -> std::int64_t {
        const auto& q = *static_cast<const QkPrepareParams*>(p);
        return static_cast<std::int64_t>(step.m) * (q.n_heads + (q.k != nullptr ? q.n_kv_heads : 0));
    };
    // A line of the keys holds sixteen positions: threads that shared one would wait for each other.
    const int grain = params.max_rows > 4 * kBlock ? 4 * kBlock : 8;
    return {named(names, isa), functions(isa).qk_prepare[type_index(params.type)], items, grain,
            rounded(static_cast<std::size_t>(params.head_dim + kBlock) * 4)};
}

std::size_t attention_partial_bytes(const AttentionParams& params) {
    const std::size_t dims = static_cast<std::size_t>((params.head_dim + kBlock - 1) / kBlock * kBlock);
    return static_cast<std::size_t>(params.max_rows) * static_cast<std::size_t>(params.n_heads) *
           static_cast<std::size_t>(max_parts(params)) * (kPartHeader + dims) * sizeof(float);
}

CpuKernel attention_decode_kernel(const AttentionParams& params, Isa isa) {
    check_heads("attention_decode", params.type, params.n_heads, params.n_kv_heads, params.head_dim, params.cache);
    static const char* const names[] = {"attention_decode_plain", "attention_decode_avx2", "attention_decode_avx512",
                                        "attention_decode_neon"};
    const auto items = [](const void* p, const StepRows& step) {
        return decode_items(*static_cast<const AttentionParams*>(p), step);
    };
    const AttentionFunctions& f = functions(isa);
    return {named(names, isa), f.decode[type_index(params.type)], items, 1, scratch_of(params, f)};
}

CpuKernel attention_combine_kernel(const AttentionParams& params, Isa isa) {
    check_heads("attention_combine", params.type, params.n_heads, params.n_kv_heads, params.head_dim, params.cache);
    static const char* const names[] = {"attention_combine_plain", "attention_combine_avx2",
                                        "attention_combine_avx512", "attention_combine_neon"};
    const auto items = [](const void* p, const StepRows& step) -> std::int64_t {
        return static_cast<std::int64_t>(step.m) * static_cast<const AttentionParams*>(p)->n_heads;
    };
    return {named(names, isa), functions(isa).combine[type_index(params.type)], items, 4, 0};
}

CpuKernel attention_prefill_kernel(const AttentionParams& params, Isa isa) {
    check_heads("attention_prefill", params.type, params.n_heads, params.n_kv_heads, params.head_dim, params.cache);
    static const char* const names[] = {"attention_prefill_plain", "attention_prefill_avx2",
                                        "attention_prefill_avx512", "attention_prefill_neon"};
    const auto items = [](const void* p, const StepRows& step) {
        return prefill_items(*static_cast<const AttentionParams*>(p), step);
    };
    const AttentionFunctions& f = functions(isa);
    return {named(names, isa), f.prefill[type_index(params.type)], items, 1, scratch_of(params, f)};
}

}  // namespace forge
