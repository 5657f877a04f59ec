// The rope table, and queries, keys and values on their way to attention.
#include <numbers>

#include "kernels/attention/attention.h"
#include "kernel_test.h"

namespace forge::test {
namespace {

TEST(RopeTableTest, CosinesAreRoundedFromDouble) {
    Rows rows;
    for (const int position : {0, 1, 2, 3, 100, 1023, 4095, 4096, 32767, 131071, 262143, 1048575}) rows.add(0, position, 1);
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const float scale : {1.0f, 1.2079441f})
                for (const int half : {1, 5, 16, 32, 64, 128}) {
                    std::vector<float> inv_freq;
                    for (int i = 0; i < half; ++i)
                        inv_freq.push_back(static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / half)));
                    if (half == 5) inv_freq = {0, 1, 0.5f, 7.25f, 1000};  // identity pairs, and angles beyond every model's
                    Array table(DType::f32, rows.positions.size() * 2 * static_cast<std::size_t>(half));
                    const RopeTableParams p{inv_freq.data(), half, scale, type, table.floats()};
                    run(rope_table_kernel(p, isa), p, rows.step(), Split::random);
                    for (std::size_t r = 0; r < rows.positions.size(); ++r)
                        for (int i = 0; i < half; ++i) {
                            const float angle = static_cast<float>(rows.positions[r]) * inv_freq[static_cast<std::size_t>(i)];
                            const auto cosine = static_cast<float>(std::cos(static_cast<double>(angle)));
                            const auto sine = static_cast<float>(std::sin(static_cast<double>(angle)));
                            const float* row = table.floats() + r * 2 * static_cast<std::size_t>(half);
                            ASSERT_EQ(row[i], rounded(type, cosine * scale)) << name_of(isa) << " angle " << angle;
                            ASSERT_EQ(row[half + i], rounded(type, sine * scale)) << name_of(isa) << " angle " << angle;
                        }
                }
}

TEST(RopeTableTest, CosinesAreRightOverADenseRange) {
    // Many angles at once: one row, position 1, "frequencies" spread over [-70000, 70000] and around multiples of pi/4.
    std::vector<float> angles;
    std::mt19937 rng(5);
    std::uniform_real_distribution<float> wide(-70000, 70000), narrow(-8, 8);
    for (int i = 0; i < 60000; ++i) angles.push_back(i % 2 == 0 ? wide(rng) : narrow(rng));
    for (int i = -20000; i < 20000; ++i) angles.push_back(static_cast<float>(i * std::numbers::pi / 4));
    const int half = static_cast<int>(angles.size());
    for (const Isa isa : isas()) {
        Array table(DType::f32, 2 * angles.size());
        const RopeTableParams p{angles.data(), half, 1, DType::f32, table.floats()};
        run(rope_table_kernel(p, isa), p, Rows().add(0, 1, 1).step());
        for (int i = 0; i < half; ++i) {
            const auto angle = static_cast<double>(angles[static_cast<std::size_t>(i)]);
            ASSERT_EQ(table.floats()[i], static_cast<float>(std::cos(angle))) << name_of(isa) << " cos " << angle;
            ASSERT_EQ(table.floats()[half + i], static_cast<float>(std::sin(angle))) << name_of(isa) << " sin " << angle;
        }
    }
}

struct Case {
    int n_heads, n_kv_heads, head_dim, rope_half;
    bool normed;
    NormFormula formula;
};

// One head as the reference rounds it; sums in double, so n may differ by an ulp of f32.
std::vector<float> prepared(const Case& c, DType type, const float* x, const float* weight, const float* rope, float eps) {
    const auto d = static_cast<std::size_t>(c.head_dim);
    std::vector<float> out(x, x + d);
    if (c.normed) {
        double squares = 0;
        for (const float e : out) squares += static_cast<double>(e) * static_cast<double>(e);
        const double factor = 1 / std::sqrt(squares / static_cast<double>(d) + static_cast<double>(eps));
        for (std::size_t i = 0; i < d; ++i) {
            const double n = static_cast<double>(out[i]) * factor, w = static_cast<double>(weight[i]);
            if (c.formula == NormFormula::two_rounding) out[i] = rounded(type, weight[i] * rounded(type, static_cast<float>(n)));
            else out[i] = rounded(type, static_cast<float>(n * (c.formula == NormFormula::one_plus ? 1 + w : w)));
        }
    }
    for (int i = 0; i < c.rope_half; ++i) {
        const auto lo = static_cast<std::size_t>(i), hi = static_cast<std::size_t>(i + c.rope_half);
        const float a = out[lo], b = out[hi], cosine = rope[lo], sine = rope[hi];
        out[lo] = rounded(type, rounded(type, a * cosine) - rounded(type, b * sine));
        out[hi] = rounded(type, rounded(type, b * cosine) + rounded(type, a * sine));
    }
    return out;
}

TEST(QkPrepareTest, NormRopeAndCacheWrite) {
    const std::vector<Case> cases = {
        {4, 2, 64, 32, true, NormFormula::two_rounding}, {4, 2, 128, 64, false, NormFormula::two_rounding},
        {2, 1, 256, 32, true, NormFormula::one_plus},    {3, 3, 72, 36, true, NormFormula::one_rounding},
        {9, 3, 10, 3, true, NormFormula::two_rounding},  {1, 1, 2, 1, false, NormFormula::two_rounding},
        {5, 1, 80, 0, true, NormFormula::one_plus},      {7, 1, 34, 17, true, NormFormula::one_rounding}};
    const Rows rows = Rows().add(1, 13, 5).add(0, 0, 1).add(2, 30, 2);
    const std::size_t m = rows.positions.size();
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const Case& c : cases) {
                const auto d = static_cast<std::size_t>(c.head_dim), nq = static_cast<std::size_t>(c.n_heads),
                           nkv = static_cast<std::size_t>(c.n_kv_heads);
                const std::vector<float> q = normal(m * nq * d, type, 1, 2), k = normal(m * nkv * d, type, 2, 2),
                                         v = normal(m * nkv * d, type, 3);
                std::vector<float> q_norm = normal(d, DType::bf16, 4, 0.3f), k_norm = normal(d, DType::bf16, 5, 0.3f);
                for (float& w : q_norm) w += 1;
                std::vector<float> table;
                for (std::size_t r = 0; r < m; ++r)
                    for (int part = 0; part < 2; ++part)
                        for (int i = 0; i < c.rope_half; ++i) {
                            const float angle = static_cast<float>(rows.positions[r]) / static_cast<float>(1 + i);
                            table.push_back(rounded(type, part == 0 ? std::cos(angle) : std::sin(angle)));
                        }
                Array qa(type, q), ka(type, k), va(type, v), out(type, q.size());
                const int capacity = 32;
                Array keys(type, kv_cache_bytes(capacity, 3, c.n_kv_heads, c.head_dim, type) / size_of(type));
                Array values(type, keys.bytes() / size_of(type));
                QkPrepareParams p;
                p.type = type;
                p.n_heads = c.n_heads;
                p.n_kv_heads = c.n_kv_heads;
                p.head_dim = c.head_dim;
                p.q = qa.data();
                p.k = ka.data();
                p.v = va.data();
                p.q_out = out.data();
                if (c.normed) p.q_norm = q_norm.data(), p.k_norm = k_norm.data();
                p.norm = c.formula;
                p.eps = 1e-6f;
                p.rope = c.rope_half > 0 ? table.data() : nullptr;
                p.rope_half = c.rope_half;
                p.cache = {keys.data(), values.data(), capacity, 3, c.n_kv_heads, c.head_dim, type};
                run(qk_prepare_kernel(p, isa), p, rows.step(), Split::random);

                // An ulp of n may move a rounding, and rope adds two of them up.
                const auto near = [&](float got, float expected, float size) {
                    const double bound = (c.normed ? 6 : 0) * unit_roundoff(type) * static_cast<double>(size);
                    return std::abs(static_cast<double>(got) - static_cast<double>(expected)) <= bound;
                };
                std::size_t exact = 0, all = 0;
                for (std::size_t r = 0; r < m; ++r) {
                    const float* rope = table.data() + r * 2 * static_cast<std::size_t>(c.rope_half);
                    const auto check = [&](const std::vector<float>& expected, const auto& got, const char* what) {
                        float size = 0;
                        for (const float x : expected) size = std::max(size, std::abs(x));
                        for (std::size_t i = 0; i < d; ++i) {
                            ASSERT_TRUE(near(got(i), expected[i], size))
                                << name_of(isa) << " " << name_of(type) << " " << what << " row " << r << " dim " << i << " of "
                                << d << ": got " << got(i) << ", expected " << expected[i];
                            exact += got(i) == expected[i];
                            ++all;
                        }
                    };
                    for (std::size_t h = 0; h < nq; ++h)
                        check(prepared(c, type, q.data() + (r * nq + h) * d, q_norm.data(), rope, p.eps),
                              [&](std::size_t i) { return out.get((r * nq + h) * d + i); }, "q");
                    for (std::size_t h = 0; h < nkv; ++h) {
                        Array one(type, d), other(type, d);
                        kv_read(p.cache, false, rows.slots[r], static_cast<int>(h), rows.positions[r], one.data());
                        check(prepared(c, type, k.data() + (r * nkv + h) * d, k_norm.data(), rope, p.eps),
                              [&](std::size_t i) { return one.get(i); }, "k");
                        kv_read(p.cache, true, rows.slots[r], static_cast<int>(h), rows.positions[r], other.data());
                        for (std::size_t i = 0; i < d; ++i) ASSERT_EQ(other.get(i), v[(r * nkv + h) * d + i]);
                    }
                }
                if (HasFatalFailure()) return;
                // In 16 bits nearly everything must agree to the bit.
                if (type != DType::f32) {
                    EXPECT_GE(static_cast<double>(exact), 0.97 * static_cast<double>(all)) << name_of(isa);
                }
                // Nothing but the written positions may have changed: the rest is still NaN.
                std::size_t numbers = 0;
                for (std::size_t i = 0; i < keys.bytes() / size_of(type); ++i) numbers += !std::isnan(keys.get(i)) + !std::isnan(values.get(i));
                EXPECT_EQ(numbers, 2 * m * nkv * d);
            }
}

// A gated projection holds query and gate side by side: only queries are read.
TEST(QkPrepareTest, QueriesBesideGates) {
    const Rows rows = Rows().add(0, 3, 2);
    for (const Isa isa : isas())
        for (const DType type : types()) {
            const std::size_t d = 24, heads = 3;
            const std::vector<float> q = normal(2 * heads * d, type, 1), weight = normal(d, type, 2);
            Array plain(type, q), gated(type, 2 * q.size()), first(type, q.size()), second(type, q.size());
            for (std::size_t i = 0; i < q.size(); ++i) gated.set(i / d * 2 * d + i % d, q[i]);  // gates stay NaN
            QkPrepareParams p;
            p.type = type;
            p.n_heads = static_cast<int>(heads);
            p.n_kv_heads = 1;
            p.head_dim = static_cast<int>(d);
            p.q = plain.data();
            p.q_out = first.data();
            p.q_norm = weight.data();
            run(qk_prepare_kernel(p, isa), p, rows.step());
            p.q = gated.data();
            p.q_gated = true;
            p.q_out = second.data();
            run(qk_prepare_kernel(p, isa), p, rows.step(), Split::backwards);
            EXPECT_EQ(first.copy(), second.copy());
            EXPECT_FALSE(std::isnan(second.get(0)));
        }
}

// Values normed without a weight, and values made of the raw keys.
TEST(QkPrepareTest, ValuesNormedAndFromKeys) {
    const Rows rows = Rows().add(0, 7, 3);
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const bool from_keys : {false, true})
                for (const std::size_t d : {std::size_t{10}, std::size_t{72}, std::size_t{128}}) {
                    const std::vector<float> q = normal(3 * d, type, 1), k = normal(3 * d, type, 2, 3), v = normal(3 * d, type, 3, 2),
                                             weight(d, 5.0f);
                    Array qa(type, q), ka(type, k), va(type, v), out(type, q.size());
                    Array keys(type, kv_cache_bytes(16, 1, 1, static_cast<int>(d), type) / size_of(type)), values(type, keys.bytes() / size_of(type));
                    QkPrepareParams p;
                    p.type = type;
                    p.n_heads = p.n_kv_heads = 1;
                    p.head_dim = static_cast<int>(d);
                    p.q = qa.data();
                    p.k = ka.data();
                    p.v = from_keys ? nullptr : va.data();
                    p.v_from_k = from_keys;
                    p.v_norm = true;
                    p.q_out = out.data();
                    p.k_norm = weight.data();  // must not reach the values
                    p.eps = 1e-6f;
                    p.cache = {keys.data(), values.data(), 16, 1, 1, static_cast<int>(d), type};
                    run(qk_prepare_kernel(p, isa), p, rows.step(), Split::random);
                    const std::vector<float>& source = from_keys ? k : v;
                    for (std::size_t r = 0; r < 3; ++r) {
                        double squares = 0;
                        for (std::size_t i = 0; i < d; ++i) squares += static_cast<double>(source[r * d + i]) * static_cast<double>(source[r * d + i]);
                        const double factor = 1 / std::sqrt(squares / static_cast<double>(d) + 1e-6);
                        Array one(type, d);
                        kv_read(p.cache, true, 0, 0, rows.positions[r], one.data());
                        for (std::size_t i = 0; i < d; ++i) {
                            const double expected = static_cast<double>(source[r * d + i]) * factor;
                            ASSERT_NEAR(static_cast<double>(one.get(i)), expected, (1.001 * unit_roundoff(type) + 4e-7) * std::abs(expected) + 1e-7)
                                << name_of(isa) << " " << name_of(type) << " dim " << i;
                        }
                    }
                    p.v = va.data();
                    p.v_from_k = true;
                    EXPECT_ANY_THROW(qk_prepare_kernel(p, isa));
                }
}

TEST(QkPrepareTest, QueriesOnlyAndInPlace) {
    const Rows rows = Rows().add(0, 3, 2);
    for (const Isa isa : isas()) {
        const std::vector<float> q = normal(2 * 2 * 32, DType::bf16, 1);
        const std::vector<float> weight(32, 1.5f);
        Array first(DType::bf16, q), second(DType::bf16, q), out(DType::bf16, q.size());
        QkPrepareParams p;
        p.n_heads = 2;
        p.n_kv_heads = 1;
        p.head_dim = 32;
        p.q = first.data();
        p.q_out = out.data();
        p.q_norm = weight.data();
        p.eps = 1e-5f;
        run(qk_prepare_kernel(p, isa), p, rows.step());
        p.q = p.q_out = second.data();
        run(qk_prepare_kernel(p, isa), p, rows.step());
        EXPECT_EQ(out.copy(), second.copy());
        EXPECT_EQ(qk_prepare_kernel(p, isa).items(&p, rows.step()), 4);
    }
}

}  // namespace
}  // namespace forge::test
