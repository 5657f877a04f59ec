#include <algorithm>
#include <climits>

#include "gpu/builder.h"

namespace forge::gpu {
namespace {

constexpr int kThreads = 128;
// Parts that the last threadgroup of a row merges. It has 128 threads for up to seven heads, where a launch of its own
// has 256 for each: more parts would take it longer than that launch.
constexpr int kMergedParts = 16;
// Decode attention with a ring of keys and values in shared memory: parts of short contexts, the most parts of long ones,
// and the ring, which takes more than half of what a multiprocessor has: two threadgroups on one would leave another idle.
constexpr int kNearPart = 128, kMostParts = 64, kRingBytes = 120 * 1024;

// Query heads that a threadgroup serves with one read of keys and values.
int packed_heads(const AttentionShape& s, bool tensor = false) {
    const int group = s.n_heads / s.n_kv_heads;
    for (int n = tensor ? 8 : 0; n > 0; --n)   // the operand has room for eight
        if (group % n == 0) return n;
    for (const int n : {4, 3, 5, 7, 2})
        if (group % n == 0) return n;
    return 1;
}

int value_floats(int head_dim) {
    const int chunks = divide_up(head_dim, 8);
    return kThreads / chunks * chunks * 8;
}

// Heads whose sums are gathered at a time: all, where they fit.
int gathered_heads(int heads, int head_dim) { return heads * value_floats(head_dim) * 4 <= 16 * 1024 ? heads : 1; }

bool decode_on_tensor_cores(const Common& c, const AttentionShape& s) {
    return (c.limits.tensor == Tensor::mma_sync || c.limits.tensor == Tensor::wgmma) && c.type != DType::f32 && s.head_dim % 64 == 0 && s.head_dim <= 256;
}

// How decode attention is cut into parts: `part` positions each, or from position `near` on (most > 0) what makes `most`
// of them. This decides the order of sums, and depends on the layer and the device alone.
struct DecodeForm { int part, most, near, threads; };
DecodeForm decode_form(const Common& c, const AttentionShape& s) {
    const int part = attention_part(s.capacity);
    if (!decode_on_tensor_cores(c, s)) return {part, 0, INT_MAX, kThreads};
    // A threadgroup for every multiprocessor, which has its memory for what is on its way.
    if (c.limits.tensor == Tensor::wgmma && s.window == 0) {
        const int most = std::clamp(c.limits.cores / (s.n_heads / packed_heads(s, true)), 1, kMostParts);
        // The grid has a threadgroup for every kNearPart positions: at `near` there must be `most` of them.
        static_assert(kMostParts * kNearPart <= Limits().near_positions);
        const int near = std::max(c.limits.near_positions, most * kNearPart);
        if (s.capacity > near) return {kNearPart, most, near, kThreads};
    }
    // Else long parts, which a few simdgroups go through fast: more threadgroups of fewer simdgroups are at work.
    return {part * (s.capacity > 4096 ? 2 : 1), 0, INT_MAX, s.capacity > 8192 ? 64 : kThreads};
}
// Parts of the longest row.
int decode_parts(const DecodeForm& f, int capacity) { return f.most > 0 ? std::max(f.most, divide_up(f.near, f.part)) : divide_up(capacity, f.part); }
// As template arguments.
std::string parts_literals(const DecodeForm& f) { return fmt::format("{}, {}, {}", f.part, f.most, f.most > 0 ? f.near : 0); }

// Bytes of a ring with so many steps of 16 positions for each simdgroup, and a barrier for each step.
int ring_bytes(int head_dim, int steps) { return kThreads / 32 * steps * (head_dim * 64 + 16); }
int ring_steps(int head_dim) { return divide_up(kRingBytes, ring_bytes(head_dim, 1)); }

}  // namespace

// Longer contexts take longer parts, so that merging stays cheap.
int attention_part(int capacity) { return capacity <= 8192 ? 64 : capacity <= 32768 ? 128 : 256; }

int attention_parts(int capacity, int window) {
    const int part = attention_part(capacity), all = divide_up(capacity, part);
    return window > 0 ? std::min(all, divide_up(window, part) + 1) : all;
}

int attention_merged(const Common& c, const AttentionShape& s) {
    const DecodeForm f = decode_form(c, s);
    const int parts = decode_parts(f, s.window > 0 ? std::min(s.capacity, s.window + f.part) : s.capacity);
    return parts <= kMergedParts ? INT_MAX : kMergedParts * f.part;
}

int attention_near(const Common& c, const AttentionShape& s) { return decode_form(c, s).near; }

std::uint64_t attention_partial_bytes(int rows, int heads, int head_dim, int capacity) {
    return 4ull * static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(heads) * static_cast<std::uint64_t>(attention_parts(capacity, 0)) *
           static_cast<std::uint64_t>(4 + head_dim);
}

Kernel qk_prepare(const Common& c, const AttentionShape& s) {
    EntryBuilder b("qk_prepare");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), q = b.read("q", t), k = s.writes ? b.read("k", t) : q,
                      v = s.writes && !s.v_from_k ? b.read("v", t) : k;
    const std::string q_norm = b.vector(s.q_norm, "q_norm"),
                      k_norm = b.vector(s.k_norm, "k_norm");
    const std::string rope = b.read("rope_angles", "float"), y = b.write("y", t);
    const std::string keys = s.writes ? b.write("keys", t) : b.absent_output(t), values = s.writes ? b.write("values", t) : b.absent_output(t);
    const int formula = static_cast<int>(s.formula);
    b.statement(fmt::format("fk::qk_prepare<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, id);",
                            type_name(c.type), s.n_heads, s.n_kv_heads, s.head_dim, s.rope_half, s.capacity, c.max_rows, s.q_norm ? formula : 3,
                            s.k_norm ? formula : 3, s.gated ? 1 : 0, s.v_norm ? 1 : 0, s.v_from_k ? 1 : 0, s.writes ? 1 : 0, kThreads, step, q, k, v, q_norm,
                            k_norm, rope, y, keys, values, literal(s.eps), b.array("buf", "float", kThreads / 32 * s.head_dim)));
    return b.finish(kThreads, {divide_up(s.n_heads + (s.writes ? 2 * s.n_kv_heads : 0), kThreads / 32)});
}

std::vector<int> attention_packings(const Common& c, const AttentionShape& s) {
    std::vector<int> packings{packed_heads(s, decode_on_tensor_cores(c, s))};
    for (const int n : {1, 2, 3, 4, 5, 6, 7, 8})
        if (s.n_heads / s.n_kv_heads % n == 0 && n != packings[0]) packings.push_back(n);
    return packings;
}

Kernel attention_decode(const Common& c, const AttentionShape& s) { return attention_decode(c, s, packed_heads(s, decode_on_tensor_cores(c, s))); }

Kernel attention_decode(const Common& c, const AttentionShape& s, int heads) {
    EntryBuilder b("attention_decode");
    const char* t = storage(c.type);
    const std::string type = t, step = b.read("step", "int"), q = b.read("q", t);
    const bool tensor = decode_on_tensor_cores(c, s);
    const DecodeForm cut = decode_form(c, s);
    const int part = cut.part, threads = cut.threads, parts = decode_parts(cut, s.capacity), steps = s.far ? ring_steps(s.head_dim) : 0;
    if (steps > 0) b.array("ring", "uint4", ring_bytes(s.head_dim, steps) / 16);   // first, for its alignment
    std::string k = q, v = q, q_norm = EntryBuilder::absent("float"), k_norm = q_norm, rope = q_norm, form = "fk::PrepareForm<1, 3, 3, 0, 0, 0, 0>";
    std::string keys, values;
    if (s.fused) {
        const int formula = static_cast<int>(s.formula);
        if (s.writes) k = v = b.read("k", t);
        if (s.writes && !s.v_from_k) v = b.read("v", t);
        if (s.q_norm) q_norm = b.vector(true, "q_norm");
        if (s.k_norm) k_norm = b.vector(true, "k_norm");
        rope = b.read("rope_angles", "float");
        form = fmt::format("fk::PrepareForm<{}, {}, {}, {}, {}, {}, {}>", s.rope_half, s.q_norm ? formula : 3, s.k_norm ? formula : 3, s.gated ? 1 : 0, s.v_norm ? 1 : 0,
                           s.v_from_k ? 1 : 0, s.writes ? 1 : 0);
    }
    if (s.fused && s.writes) {
        keys = b.write("keys", t);
        values = b.write("values", t);
    } else {
        keys = "(DEVICE " + type + "*)" + b.read("keys", t);
        values = "(DEVICE " + type + "*)" + b.read("values", t);
    }
    b.statement(fmt::format("fk::AttentionInputs<{}> in = {{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}};", type_name(c.type), step, q, k, v, q_norm, k_norm, rope, keys, values,
                            "(SHARED_DEVICE float*)" + b.write("partial", "float"), literal(s.scale), literal(s.softcap), literal(s.eps)));
    const std::string shape = fmt::format("{}, {}, {}, {}, {}, {}, {}", type_name(c.type), form, s.fused ? 1 : 0, s.n_heads, s.n_kv_heads, s.head_dim, heads),
                      cache = fmt::format("{}, {}, {}, {}, {}", parts, s.window, s.capacity, c.max_rows, threads),
                      own = b.array("own", "float", s.fused ? (heads + 2 + threads / 32) * s.head_dim : 1);
    if (tensor) {
        b.statement(fmt::format("fk::TensorDecode<{}, {}, {}, {}>::run(in, {}, {}, {}, id);", shape, parts_literals(cut), cache, steps,
                                b.array("merged", "float", threads / 32 * heads * (s.head_dim + 2)), own, steps > 0 ? "ring" : "(uint4*)own"));
    } else {
        const int gathered = gathered_heads(heads, s.head_dim);
        b.statement(fmt::format("fk::attention_decode<{}, {}, {}, {}>(in, {}, {}, {}, {}, id);", shape, gathered, part, cache, b.array("w", "float", heads * part),
                                b.array("red", "float", gathered * value_floats(s.head_dim)), b.array("stats", "float", 3 * heads), own));
    }
    if (s.merges) {
        const std::string gates = s.gates ? b.read("gates", t) : EntryBuilder::absent(t), out = b.write("out", t), arrivals = b.write("arrivals", "uint");
        const std::string w = tensor ? b.array("w", "float", heads * (kMergedParts + 1)) : "w";
        b.statement(fmt::format("fk::attention_merge<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>(step, in.partial, {}, {}, {}, {}, {}, id);", type_name(c.type), s.n_heads, s.head_dim, heads, parts_literals(cut),
                                parts, kMergedParts, s.window, c.max_rows, s.gates ? 1 : 0, threads, gates, out, arrivals, w, b.array("flag", "uint", 4)));
    }
    return b.finish(threads, {s.n_heads / heads, 1, part, s.window, false, 1, 0, cut.most == 0 ? 0 : s.far ? cut.most : parts});
}

Kernel attention_combine(const Common& c, const AttentionShape& s) {
    EntryBuilder b("attention_combine");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), partial = b.read("partial", "float"), q = s.gated ? b.read("q", t) : "(DEVICE const " + std::string(t) + "*)step", y = b.write("y", t);
    const DecodeForm cut = decode_form(c, s);
    const int threads = 256;
    b.statement(fmt::format("fk::attention_combine<{}, {}, {}, {}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, id);", type_name(c.type), s.n_heads, s.head_dim, parts_literals(cut), decode_parts(cut, s.capacity), s.window,
                            c.max_rows, s.gated ? 1 : 0, threads, step, partial, q, y, b.array("red", "float", threads)));
    return b.finish(threads, {s.n_heads * divide_up(s.head_dim, 32)});
}

Kernel attention_prefill(const Common& c, const AttentionShape& s) {
    EntryBuilder b("attention_prefill");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), q = b.read("q", t), keys = b.read("keys", t), values = b.read("values", t), y = b.write("y", t);
    const int heads = packed_heads(s), part = 128;
    b.statement(fmt::format("fk::attention_prefill<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type), s.n_heads,
                            s.n_kv_heads, s.head_dim, heads, part, s.window, s.capacity, c.max_rows, kThreads, step, q, keys, values, y, literal(s.scale),
                            literal(s.softcap), b.array("w", "float", heads * part), b.array("red", "float", value_floats(s.head_dim)),
                            b.array("stats", "float", 3 * heads)));
    return b.finish(kThreads, {s.n_heads / heads});
}

}  // namespace forge::gpu
