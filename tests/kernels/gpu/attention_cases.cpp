#include <fmt/format.h>

#include "cases.h"
#include "kernels/attention/attention.h"

namespace forge::test {
namespace {

struct Shape {
    int heads, kv, head_dim;
    int window = 0;
    float softcap = 0;
    DType type = DType::bf16;
    // Rows of the step: {slot, position, count}
    std::vector<std::array<int, 3>> rows = {};
    int packing = 0;   // of decode's query heads; 0: the default
};

constexpr int kCapacity = 320, kSlots = 3;

// A cache of both arrangements with the same values.
struct Caches {
    Array plain_keys, plain_values, keys, values;
    KvCache cpu;
    Caches(const Shape& s, bool filled)
        : plain_keys(DType::u8, kv_cache_bytes(kCapacity, kSlots, s.kv, s.head_dim, s.type)), plain_values(DType::u8, plain_keys.bytes()), keys(s.type, count(s)), values(s.type, count(s)) {
        cpu.keys = plain_keys.data();
        cpu.values = plain_values.data();
        cpu.capacity = kCapacity;
        cpu.slots = kSlots;
        cpu.n_kv_heads = s.kv;
        cpu.head_dim = s.head_dim;
        cpu.type = s.type;
        if (!filled) return;
        const std::vector<float> k = normal(count(s), s.type, 21), v = normal(count(s), s.type, 22);
        for (std::size_t i = 0; i < k.size(); ++i) {
            keys.set(i, k[i]);
            values.set(i, v[i]);
        }
        each(s, [&](int slot, int head, int position, std::byte* key, std::byte* value) {
            kv_write(cpu, false, slot, head, position, key);
            kv_write(cpu, true, slot, head, position, value);
        });
    }
    static std::size_t count(const Shape& s) { return static_cast<std::size_t>(kSlots * s.kv * kCapacity * s.head_dim); }
    template <typename Fn>
    void each(const Shape& s, Fn&& fn) {
        const std::size_t bytes = static_cast<std::size_t>(s.head_dim) * size_of(s.type);
        for (int slot = 0, i = 0; slot < kSlots; ++slot)
            for (int head = 0; head < s.kv; ++head)
                for (int position = 0; position < kCapacity; ++position, ++i)
                    fn(slot, head, position, static_cast<std::byte*>(keys.data()) + static_cast<std::size_t>(i) * bytes,
                       static_cast<std::byte*>(values.data()) + static_cast<std::size_t>(i) * bytes);
    }
};

Rows rows_of(const Shape& s) {
    Rows r;
    for (const auto& [slot, position, count] : s.rows) r.add(slot, position, count);
    return r;
}

gpu::AttentionShape shape_of(const Shape& s) {
    gpu::AttentionShape g;
    g.n_heads = s.heads;
    g.n_kv_heads = s.kv;
    g.head_dim = s.head_dim;
    g.capacity = kCapacity;
    g.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    g.softcap = s.softcap;
    g.window = s.window;
    return g;
}

std::string describe(const std::string& what, const Shape& s) {
    return fmt::format("{} {}:{} x {} window {} softcap {} {}", what, s.heads, s.kv, s.head_dim, s.window, s.softcap, name_of(s.type));
}

GpuCase attention_case(const Shape& s, bool prefill, bool flash = false, const gpu::SimdFlashTile* simd = nullptr, bool tensor = false, bool far = false) {
    const int max_rows = rows_of(s).step().m;
    gpu::Common c = common(s.type, max_rows);
    if (tensor) c.limits.tensor = far ? gpu::Tensor::wgmma : gpu::Tensor::mma_sync;
    if (far) {
        c.limits.cores = 2;   // two long parts at most, from position 256 on
        c.limits.near_positions = 256;
    }
    gpu::AttentionShape g = shape_of(s);
    g.far = far;
    std::vector<gpu::Kernel> kernels;
    if (simd) kernels = {gpu::attention_simd(c, g, *simd)};
    else if (flash) kernels = {gpu::attention_flash(c, g)};
    else if (prefill) kernels = {gpu::attention_prefill(c, g)};
    else kernels = {s.packing > 0 ? gpu::attention_decode(c, g, s.packing) : gpu::attention_decode(c, g), gpu::attention_combine(c, g)};
    const std::string name = simd ? fmt::format("simd {} x {} rows, {} keys{}", simd->simdgroups, simd->rows, simd->keys, simd->shared ? " shared" : "") : flash ? (far ? "flash by wgmma" : "flash") : prefill ? "prefill" : far ? "decode far" : tensor ? "decode on tensor cores" : "decode";
    return {describe(name, s), kernels, [=](GpuDevice& device, int order) {
                const Rows rows = rows_of(s);
                const std::size_t count = static_cast<std::size_t>(max_rows * s.heads * s.head_dim);
                Caches caches(s, true);
                Array q(s.type, normal(count, s.type, 23)), wanted(s.type, count), y(s.type, count);
                AttentionParams p;
                p.type = s.type;
                p.n_heads = s.heads;
                p.n_kv_heads = s.kv;
                p.head_dim = s.head_dim;
                p.q = q.data();
                p.out = wanted.data();
                p.scale = g.scale;
                p.softcap = s.softcap;
                p.window = s.window;
                p.cache = caches.cpu;
                p.max_rows = max_rows;
                run_plain(attention_prefill_kernel, p, rows.step());
                Array partial(DType::f32, gpu::attention_partial_bytes(max_rows, s.heads, s.head_dim, kCapacity) / 4);
                Bindings b;
                b.add("q", q).add("keys", caches.keys).add("values", caches.values).add("y", y).add("partial", partial);
                for (const gpu::Kernel& k : kernels) EXPECT_EQ(device.run(k, b, rows.step(), max_rows, order), "");
                // Weights are rounded before and after rescaling in different places: three roundings.
                expect_close(y, wanted, count, s.type, 2, s.type == DType::f32 ? 2e-6 : 2 * unit_roundoff(s.type));
            }};
}

struct Prepare {
    bool q_norm = false, k_norm = false, gated = false, v_norm = false, v_from_k = false, writes = true;
    int half = 0;
    NormFormula formula = NormFormula::two_rounding;
};

GpuCase prepare_case(const Shape& s, const Prepare& o) {
    const int max_rows = rows_of(s).step().m;
    gpu::AttentionShape g = shape_of(s);
    g.writes = o.writes;
    g.q_norm = o.q_norm;
    g.k_norm = o.k_norm;
    g.gated = o.gated;
    g.v_norm = o.v_norm;
    g.v_from_k = o.v_from_k;
    g.formula = o.formula;
    g.eps = 1e-6f;
    g.rope_half = o.half;
    const gpu::Kernel k = gpu::qk_prepare(common(s.type, max_rows), g);
    return {describe("prepare", s), {k}, [=](GpuDevice& device, int order) {
                const Rows rows = rows_of(s);
                const std::size_t qs = static_cast<std::size_t>(max_rows * s.heads * s.head_dim), ks = static_cast<std::size_t>(max_rows * s.kv * s.head_dim);
                Caches caches(s, false);
                Array q(s.type, normal(o.gated ? 2 * qs : qs, s.type, 31)), kk(s.type, normal(ks, s.type, 32)), v(s.type, normal(ks, s.type, 33)), wanted(s.type, qs), y(s.type, qs);
                std::vector<float> qn = normal(static_cast<std::size_t>(s.head_dim), DType::bf16, 34, 0.2f), kn = normal(static_cast<std::size_t>(s.head_dim), DType::bf16, 35, 0.2f);
                std::vector<float> frequencies;
                for (int i = 0; i < o.half; ++i) frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(o.half)));
                // Angles of every position, as the backends make them, and of the rows, as the CPU does.
                std::vector<float> angles(static_cast<std::size_t>(kCapacity * 2 * o.half)), table(static_cast<std::size_t>(max_rows * 2 * o.half));
                RopeTableParams rope{frequencies.data(), o.half, 1.0f, s.type, angles.data()};
                Rows every;
                every.add(0, 0, kCapacity);
                run_plain(rope_table_kernel, rope, every.step());
                rope.table = table.data();
                run_plain(rope_table_kernel, rope, rows.step());
                QkPrepareParams p;
                p.type = s.type;
                p.n_heads = s.heads;
                p.n_kv_heads = s.kv;
                p.head_dim = s.head_dim;
                p.q = q.data();
                p.k = o.writes ? kk.data() : nullptr;
                p.v = o.writes && !o.v_from_k ? v.data() : nullptr;
                p.q_out = wanted.data();
                p.q_norm = o.q_norm ? qn.data() : nullptr;
                p.k_norm = o.k_norm ? kn.data() : nullptr;
                p.norm = o.formula;
                p.eps = 1e-6f;
                p.rope = table.data();
                p.rope_half = o.half;
                p.q_gated = o.gated;
                p.v_norm = o.v_norm;
                p.v_from_k = o.v_from_k;
                p.cache = caches.cpu;
                run_plain(qk_prepare_kernel, p, rows.step());
                Bindings b;
                b.add("q", q).add("k", kk).add("v", v).add("y", y).add("keys", caches.keys).add("values", caches.values);
                b.floats("q_norm.codes", qn).floats("k_norm.codes", kn).floats("rope_angles", angles);
                EXPECT_EQ(device.run(k, b, rows.step(), max_rows, order), "");
                expect_close(y, wanted, qs, s.type, 1, 2 * unit_roundoff(s.type));
                if (!o.writes) return;
                Array got(s.type, 2 * ks), right(s.type, 2 * ks);
                const std::size_t bytes = static_cast<std::size_t>(s.head_dim) * size_of(s.type);
                for (int r = 0, at = 0; r < max_rows; ++r)
                    for (int head = 0; head < s.kv; ++head)
                        for (const bool value : {false, true}) {
                            kv_read(caches.cpu, value, rows.slots[static_cast<std::size_t>(r)], head, rows.positions[static_cast<std::size_t>(r)], static_cast<std::byte*>(right.data()) + static_cast<std::size_t>(at) * bytes);
                            const int i = (rows.slots[static_cast<std::size_t>(r)] * s.kv + head) * kCapacity + rows.positions[static_cast<std::size_t>(r)];
                            std::memcpy(static_cast<std::byte*>(got.data()) + static_cast<std::size_t>(at++) * bytes, static_cast<std::byte*>((value ? caches.values : caches.keys).data()) + static_cast<std::size_t>(i) * bytes, bytes);
                        }
                expect_close(got, right, 2 * ks, s.type, 1, 2 * unit_roundoff(s.type));
            }};
}

}  // namespace

// Runs of several sequences, in one tile and over many, from any position; unwritten keys are NaN in the runs of 0.
std::vector<GpuCase> flash_cases(bool full) {
    std::vector<GpuCase> cases;
    for (const DType type : {DType::bf16, DType::f16})
        for (Shape s : std::vector<Shape>{{9, 3, 64}, {8, 1, 128}, {16, 2, 32}, {4, 4, 16}, {7, 1, 80}, {2, 1, 256}, {6, 2, 96}}) {
            if (!full && type == DType::f16 && s.head_dim > 64) continue;
            s.type = type;
            for (const bool groups : {false, true}) {
                if (groups && s.head_dim != 64 && s.head_dim != 128 && s.head_dim != 256) continue;
                s.rows = {{1, 130, 9}, {0, 0, 3}};
                cases.push_back(attention_case(s, true, true, nullptr, groups, groups));
                s.rows = {{0, 0, 150}, {2, 63, 70}, {1, 200, 1}, {1, 202, 1}};
                cases.push_back(attention_case(s, true, true, nullptr, groups, groups));
                if (!groups) continue;
                s.rows = {{1, 100, 65}, {0, 1, 70}, {2, 0, 200}};   // runs that end in either half of a threadgroup's rows
                cases.push_back(attention_case(s, true, true, nullptr, groups, groups));
            }
        }
    for (const int head_dim : {32, 64, 128, 256}) {
        Shape s{6, 2, head_dim, 40, 0, DType::bf16, {{1, 150, 100}, {0, 10, 2}}};
        cases.push_back(attention_case(s, true, true, nullptr, head_dim > 32, head_dim > 32));
        s.softcap = 3;
        s.type = DType::f16;
        cases.push_back(attention_case(s, true, true, nullptr, head_dim > 32, head_dim > 32));
    }
    return cases;
}

// Every head size and number of heads that share keys; rows of several sequences, windows, soft caps.
std::vector<GpuCase> decode_cases(bool) {
    std::vector<GpuCase> cases = decode_fusion_cases();
    for (const DType type : {DType::bf16, DType::f16})
        for (Shape s : std::vector<Shape>{{9, 3, 64}, {8, 1, 128}, {16, 1, 64}, {7, 1, 128}, {2, 1, 256}, {5, 1, 192}, {4, 4, 64}}) {
            s.type = type;
            for (const int position : {0, 14, 15, 16, 63, 64, 130, 270, 319}) {
                s.rows = {{1, position, 1}};
                for (const bool far : {false, true})
                    if (!far || position != 130) cases.push_back(attention_case(s, false, false, nullptr, true, far));   // two parts, and short
            }
            s.rows = {{0, 0, 1}, {2, 63, 2}, {1, 200, 1}};
            cases.push_back(attention_case(s, false, false, nullptr, true));
            s.window = 40;
            s.softcap = 3;
            cases.push_back(attention_case(s, false, false, nullptr, true));
        }
    return cases;
}

// The same on Metal's matrices: every head size, tiles in turns or all of them.
std::vector<GpuCase> simd_flash_cases(bool full) {
    std::vector<GpuCase> cases;
    std::size_t turn = 0;
    const auto add = [&](const Shape& s, bool every) {
        gpu::Common c = common(s.type, 9);
        c.limits.tensor = gpu::Tensor::simdgroup;
        EXPECT_TRUE(gpu::simd_flash_fits(c, shape_of(s)));
        const std::vector<gpu::SimdFlashTile> tiles = gpu::simd_flash_tiles(c, shape_of(s));
        ASSERT_FALSE(tiles.empty());
        for (std::size_t i = 0; i < (every ? tiles.size() : 1); ++i) {
            const gpu::SimdFlashTile tile = tiles[every ? i : turn * 5 % tiles.size()];
            cases.push_back(attention_case(s, true, true, &tile));
            ++turn;
        }
    };
    for (const DType type : {DType::bf16, DType::f16})
        for (Shape s : std::vector<Shape>{{9, 3, 64}, {8, 1, 128}, {16, 2, 32}, {4, 4, 16}, {7, 1, 80}, {2, 1, 256}, {6, 2, 96}, {15, 5, 24}, {4, 1, 8}, {2, 2, 192}}) {
            s.type = type;
            if (full || type == DType::bf16 || s.head_dim <= 64) {
                s.rows = {{1, 130, 9}, {0, 0, 3}};
                add(s, false);
            }
            if (!full && (type == DType::f16) != (s.head_dim == 24 || s.head_dim == 80)) continue;
            s.rows = {{0, 0, full ? 150 : 40}, {2, 63, 37}, {1, 200, 1}, {1, 202, 1}};
            add(s, full && s.heads <= 8 && type == DType::bf16);   // f16 differs in conversions, not in tiles
        }
    Shape s{6, 2, 32, 40, 0, DType::bf16, {{1, 150, 100}, {0, 10, 2}}};
    add(s, full);
    s.softcap = 3;
    s.type = DType::f16;
    add(s, full);
    return cases;
}

std::vector<GpuCase> attention_cases(bool full) {
    std::vector<GpuCase> cases;
    const std::vector<Shape> shapes{{9, 3, 64}, {15, 5, 24}, {8, 1, 128}, {16, 2, 32}, {8, 2, 64}, {4, 4, 10}, {7, 1, 80}, {2, 1, 256}, {2, 2, 512}};
    for (const DType type : types())
        for (Shape s : shapes) {
            if (!full && type != DType::bf16 && s.head_dim > 64) continue;
            s.type = type;
            s.rows = {{0, 0, 1}, {2, 63, 2}, {1, 200, 1}};
            cases.push_back(attention_case(s, false));
            s.rows = {{1, 130, 9}, {0, 0, 3}};
            if (full || type == DType::bf16) cases.push_back(attention_case(s, true));
        }
    for (const int packing : {1, 2, 3, 6}) {   // what the tuner may take
        Shape s{6, 1, 64, 0, 0, DType::bf16, {{0, 0, 1}, {2, 63, 2}, {1, 200, 1}}};
        s.packing = packing;
        cases.push_back(attention_case(s, false));
    }
    for (const bool prefill : {false, true}) {
        Shape s{6, 2, 16, 40, 0, DType::bf16, {{1, 150, 3}, {0, 10, 2}}};
        cases.push_back(attention_case(s, prefill));
        s.softcap = 3;
        s.type = DType::f16;
        cases.push_back(attention_case(s, prefill));
    }
    for (const DType type : types()) {
        Shape s{6, 2, 64, 0, 0, type, {{2, 7, 3}, {0, 250, 1}}};
        cases.push_back(prepare_case(s, {false, false, false, false, false, true, 32}));
        cases.push_back(prepare_case(s, {true, true, false, false, false, true, 32}));
        cases.push_back(prepare_case(s, {true, true, true, true, false, true, 8, NormFormula::one_plus}));
        cases.push_back(prepare_case(s, {true, true, false, true, true, true, 32, NormFormula::one_rounding}));
        cases.push_back(prepare_case(s, {true, false, false, false, false, false, 32}));
        s.head_dim = 10;
        cases.push_back(prepare_case(s, {true, true, false, false, false, true, 5}));
    }
    return cases;
}

}  // namespace forge::test
