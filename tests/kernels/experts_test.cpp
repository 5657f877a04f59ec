// Routing, grouping, experts' products and their sum, against plain references.
#include "kernels/experts/experts.h"

#include <numeric>

#include "kernel_test.h"
#include "weights.h"

namespace forge::test {
namespace {

std::string label(const char* kernel, Isa isa, DType type) { return std::string(kernel) + " " + std::string(name_of(isa)) + " " + std::string(name_of(type)); }

TEST(ExpertsTest, RouteChoosesTheLargest) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const auto& [experts, k] : {std::pair{1, 1}, std::pair{5, 2}, std::pair{17, 8}, std::pair{128, 8}, std::pair{256, 10}})
                for (const bool scaled : {false, true}) {
                    const Rows rows = Rows().add(0, 0, 9);
                    const auto n = static_cast<std::size_t>(experts), chosen = static_cast<std::size_t>(k);
                    auto logits = normal(9 * n, type, 7, 2);
                    for (std::size_t e = 0; e < n; ++e) logits[e] = 0.5f;   // all equal: the lower ids win
                    const auto factors = normal(n, DType::f32, 8);
                    Array la(type, logits), route(DType::f32, 9 * 2 * chosen);
                    RouteParams p;
                    p.type = type;
                    p.logits = la.data();
                    p.logit_scale = scaled ? 0.25f : 1;
                    p.experts = experts;
                    p.k = k;
                    p.normalise = !scaled || experts == 17;
                    p.round_weights = !scaled;
                    p.expert_scale = scaled ? factors.data() : nullptr;
                    p.route = static_cast<std::uint32_t*>(route.data());
                    run(route_kernel(p, isa), p, rows.step(), Split::random);
                    for (std::size_t r = 0; r < 9; ++r) {
                        std::vector<double> probability(n);
                        double sum = 0, largest = -1e30;
                        for (std::size_t e = 0; e < n; ++e) largest = std::max<double>(largest, logits[r * n + e]);
                        for (std::size_t e = 0; e < n; ++e) sum += probability[e] = std::exp((logits[r * n + e] - largest) * p.logit_scale);
                        std::vector<std::size_t> order(n);
                        std::iota(order.begin(), order.end(), std::size_t{0});
                        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[r * n + a] > logits[r * n + b]; });
                        double of_chosen = 0;
                        for (std::size_t i = 0; i < chosen; ++i) of_chosen += probability[order[i]];
                        for (std::size_t i = 0; i < chosen; ++i) {
                            ASSERT_EQ(p.route[r * 2 * chosen + i], order[i]) << label("route", isa, type) << " row " << r;
                            float weight;
                            std::memcpy(&weight, &p.route[r * 2 * chosen + chosen + i], 4);
                            const double expected = probability[order[i]] / (p.normalise ? of_chosen : sum) * (scaled ? factors[order[i]] : 1.0);
                            ASSERT_NEAR(weight, expected, (p.round_weights ? 1.01 * unit_roundoff(type) : 0) * std::abs(expected) + 2e-6 * std::abs(expected) + 1e-9) << label("route", isa, type);
                        }
                    }
                }
}

TEST(ExpertsTest, ADamagedRowStaysInsideTheTable) {
    for (const Isa isa : isas()) {
        const std::vector<float> logits(12, std::numeric_limits<float>::quiet_NaN());
        Array la(DType::f32, logits), route(DType::f32, 6);
        RouteParams p;
        p.type = DType::f32;
        p.logits = la.data();
        p.experts = 12;
        p.k = 3;
        p.route = static_cast<std::uint32_t*>(route.data());
        run(route_kernel(p, isa), p, Rows().add(0, 0, 1).step());
        for (int i = 0; i < 3; ++i) EXPECT_LT(p.route[i], 12u);
    }
}

// Distinct choices for every row, uneven across experts.
std::vector<std::uint32_t> some_route(int rows, int experts, int k, unsigned seed) {
    std::mt19937 rng(seed);
    std::vector<std::uint32_t> route;
    for (int r = 0; r < rows; ++r) {
        std::vector<std::uint32_t> ids(static_cast<std::size_t>(experts));
        std::iota(ids.begin(), ids.end(), 0u);
        std::shuffle(ids.begin() + (r % 2 ? 0 : std::min(experts - k, 1)), ids.end(), rng);   // every other row keeps expert 0
        for (int i = 0; i < k; ++i) route.push_back(ids[static_cast<std::size_t>(i)]);
        for (int i = 0; i < k; ++i) {
            const float weight = std::uniform_real_distribution<float>(0.05f, 0.6f)(rng);
            std::uint32_t bits;
            std::memcpy(&bits, &weight, 4);
            route.push_back(bits);
        }
    }
    return route;
}

struct Grouped {
    Grouped(std::vector<std::uint32_t>& route, int rows, int experts, int k, int max_rows, int panel, Isa isa)
        : memory(DType::i32, group_bytes(experts, k, max_rows) / 4), table(static_cast<std::int32_t*>(memory.data()), experts, max_rows * k) {
        GroupParams p;
        p.route = route.data();
        p.experts = experts;
        p.k = k;
        p.panel = panel;
        p.max_rows = max_rows;
        p.table = static_cast<std::int32_t*>(memory.data());
        run(group_kernel(p, isa), p, Rows().add(0, 0, rows).step());
    }
    Array memory;
    GroupTable table;
};

TEST(ExpertsTest, GroupSortsPairsByExpertAndKeepsTheirOrder) {
    for (const auto& [rows, experts, k, panel] : {std::tuple{1, 1, 1, 8}, std::tuple{9, 5, 2, 4}, std::tuple{64, 3, 3, 16}, std::tuple{37, 128, 8, 16}}) {
        auto route = some_route(rows, experts, k, 3);
        Grouped g(route, rows, experts, k, rows + 3, panel, isas().front());
        EXPECT_EQ(g.table.starts[0], 0);
        EXPECT_EQ(g.table.starts[experts], rows * k);
        for (int e = 0; e < experts; ++e) {
            const int count = g.table.starts[e + 1] - g.table.starts[e];
            EXPECT_EQ(g.table.panel_starts[e + 1] - g.table.panel_starts[e], (count + panel - 1) / panel);
            for (int place = g.table.starts[e]; place < g.table.starts[e + 1]; ++place) {
                const int pair = g.table.pair_of[place];
                EXPECT_EQ(route[static_cast<std::size_t>(pair / k * 2 * k + pair % k)], static_cast<std::uint32_t>(e));
                EXPECT_EQ(g.table.place_of[pair], place);
                EXPECT_TRUE(place == g.table.starts[e] || g.table.pair_of[place - 1] < pair);
            }
        }
    }
}

// Row by row and grouped into matrix products: every pair's product with its own expert's matrix.
void check_products(const WeightFormat& format, int multiple, bool per_pair, bool fused, int rows, Isa isa, DType type) {
    constexpr int experts = 5, k = 2, n = 37;
    const int cols = 2 * multiple;
    std::vector<Weight> gates, ups;
    for (unsigned e = 0; e < experts; ++e) {
        gates.push_back(random_weight(format, n, cols, 10 + e));
        ups.push_back(random_weight(format, n, cols, 50 + e));
    }
    auto route = some_route(rows, experts, k, 5);
    const auto width = static_cast<std::size_t>(cols), pairs = static_cast<std::size_t>(rows * k);
    const bool grouped = rows > 8;
    const auto x = normal((per_pair ? pairs : static_cast<std::size_t>(rows)) * width, type, 6, 0.5f);
    Array xa(type, x), y(type, pairs * n);
    ExpertMatmulParams p;
    p.type = type;
    p.isa = isa;
    p.w = gates.data();
    p.w2 = fused ? ups.data() : nullptr;
    p.epilogue = fused ? Epilogue::act_mul : Epilogue::none;
    p.experts = experts;
    p.k = k;
    p.x_per_pair = per_pair;
    p.x = xa.data();
    p.y = y.data();
    p.route = route.data();
    p.max_rows = rows;
    p.input_tag = rows % 2 ? 7 : 0;   // inputs prepared once a thread, or anew for each block
    const Rows step = Rows().add(0, 0, rows);
    std::unique_ptr<Grouped> table;
    std::vector<std::byte> packed;
    if (grouped) {
        table = std::make_unique<Grouped>(route, rows, experts, k, rows, expert_panel(isa), isa);
        p.table = static_cast<std::int32_t*>(table->memory.data());
        packed.resize(expert_pack_bytes(p, isa) + 64);
        p.packed = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(packed.data()) + 63) / 64 * 64);
        run(expert_pack_kernel(p, isa), p, step.step(), Split::random);
        run(expert_gemm_kernel(p, isa), p, step.step(), Split::random, 2);
    } else {
        run(expert_matvec_kernel(p, isa), p, step.step(), Split::random);
    }
    std::vector<float> row(width);
    for (std::size_t pair = 0; pair < pairs; ++pair) {
        const std::size_t place = grouped ? static_cast<std::size_t>(table->table.place_of[pair]) : pair;
        const std::uint32_t e = route[pair / k * 2 * k + pair % k];
        // With one row a choice, rows lie where the product before left them: by place when grouped.
        const float* in = &x[(per_pair ? place : pair / k) * width];
        for (std::size_t c = 0; c < n; ++c) {
            const auto product = [&](const Weight& w, double& bound) {
                decode_row(w, static_cast<std::int64_t>(c), row.data());
                double sum = 0;
                for (std::size_t i = 0; i < width; ++i) {
                    sum += double(row[i]) * w.global_scale * in[i];
                    bound += std::abs(double(row[i]) * w.global_scale * in[i]);
                }
                return sum;
            };
            double size = 0, expected = product(gates[e], size);
            // Weight tiles may be rounded once; products and sums in f32.
            double slack = (unit_roundoff(type) + 2e-6) * size + 1.01 * unit_roundoff(type) * std::abs(expected);
            if (fused) {
                double up_size = 0;
                const double up = product(ups[e], up_size), act = expected / (1 + std::exp(-expected));
                slack = 1.2 * slack * std::abs(up) + (std::abs(act) + slack) * ((unit_roundoff(type) + 2e-6) * up_size + 4 * unit_roundoff(type) * std::abs(up));
                expected = act * up;
            }
            ASSERT_NEAR(y.get(place * n + c), expected, slack + 1e-6) << label(grouped ? "grouped" : "row by row", isa, type) << " " << describe(format) << " pair " << pair << " column " << c;
        }
    }
}

TEST(ExpertsTest, ProductsOfChosenExperts) {
    for (const NamedFormat& format : all_formats()) {
        const std::string name = describe(format.format);
        if (name != "bf16" && name != "q4/32 f16 z8" && name != "q4/32 u8 -min" && name != "q4/64 bf16 +bias" && name != "e2m1/32 e8m0" && name != "q6/16 i8 z32") continue;
        for (const Isa isa : isas())
            for (const DType type : types())
                for (const int rows : {1, 3, 8, 9, 40})
                    for (const bool per_pair : {false, true}) check_products(format.format, format.multiple, per_pair, !per_pair, rows, isa, type);
    }
}

TEST(ExpertsTest, CombineSumsInTheOrderOfChoices) {
    constexpr int experts = 6, k = 3, rows = 10;
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const int width : {5, 64, 70, 129})
                for (const bool grouped : {false, true})
                    for (const bool shared : {false, true}) {
                        auto route = some_route(rows, experts, k, 9);
                        Grouped table(route, rows, experts, k, rows, 8, isa);
                        const auto w = static_cast<std::size_t>(width);
                        const auto x = normal(rows * k * w, type, 1), extra = normal(rows * w, type, 2), gate = normal(rows, type, 3);
                        Array xa(type, x), sa(type, extra), ga(type, gate), y(type, rows * w);
                        CombineParams p;
                        p.type = type;
                        p.x = xa.data();
                        p.route = route.data();
                        p.table = grouped ? static_cast<std::int32_t*>(table.memory.data()) : nullptr;
                        p.experts = experts;
                        p.k = k;
                        p.max_rows = rows;
                        p.width = width;
                        p.shared = shared ? sa.data() : nullptr;
                        p.shared_gate = shared ? ga.data() : nullptr;
                        p.y = y.data();
                        run(combine_kernel(p, isa), p, Rows().add(0, 0, rows).step(), Split::random);
                        for (std::size_t r = 0; r < rows; ++r)
                            for (std::size_t c = 0; c < w; ++c) {
                                double sum = 0, size = 0;
                                for (std::size_t i = 0; i < k; ++i) {
                                    const std::size_t pair = r * k + i, place = grouped ? static_cast<std::size_t>(table.table.place_of[pair]) : pair;
                                    float weight;
                                    std::memcpy(&weight, &route[r * 2 * k + k + i], 4);
                                    sum += double(x[place * w + c]) * weight;
                                    size += std::abs(double(x[place * w + c]) * weight);
                                }
                                if (shared) {
                                    const double part = extra[r * w + c] / (1 + std::exp(-double(gate[r])));
                                    sum += part;
                                    size += 3 * std::abs(part);
                                }
                                ASSERT_NEAR(y.get(r * w + c), sum, 3.1 * unit_roundoff(type) * size + 1e-6) << label("combine", isa, type) << " width " << width;
                            }
                    }
}

}  // namespace
}  // namespace forge::test
