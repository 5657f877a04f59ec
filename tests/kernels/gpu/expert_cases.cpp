// Routing, grouping, products of chosen experts and their sum.
#include <fmt/format.h>

#include <numeric>

#include "cases.h"
#include "kernels/experts/experts.h"

namespace forge::test {
namespace {

struct Shape {
    int experts = 5, per_token = 2, rows = 1, n = 37, k = 0;
    DType type = DType::bf16;
    bool fused = false, per_choice = false, scaled = false;
    gpu::Tensor tensor = gpu::Tensor::none;
    gpu::SimdTile simd{};   // with simdgroup: a tile of its own instead of the chosen one
    int tile = 1;           // with tensor cores: which of gpu::tensor_tiles()
};

// Distinct choices for every row, uneven across experts: every other row keeps expert 0.
std::shared_ptr<std::vector<std::uint32_t>> some_route(const Shape& s) {
    std::mt19937 rng(5);
    const auto route = std::make_shared<std::vector<std::uint32_t>>();
    for (int r = 0; r < s.rows; ++r) {
        std::vector<std::uint32_t> ids(static_cast<std::size_t>(s.experts));
        std::iota(ids.begin(), ids.end(), 0u);
        std::shuffle(ids.begin() + (r % 2 ? 0 : std::min(s.experts - s.per_token, 1)), ids.end(), rng);
        route->insert(route->end(), ids.begin(), ids.begin() + s.per_token);
        for (int i = 0; i < s.per_token; ++i) {
            const float weight = std::uniform_real_distribution<float>(0.05f, 0.6f)(rng);
            std::uint32_t bits;
            std::memcpy(&bits, &weight, 4);
            route->push_back(bits);
        }
    }
    return route;
}

std::vector<std::int32_t> plain_table(const std::vector<std::uint32_t>& route, const Shape& s, int max_rows) {
    std::vector<std::int32_t> memory(group_bytes(s.experts, s.per_token, max_rows) / 4), table(gpu::group_table_words(s.experts, s.per_token, max_rows), -1);
    GroupParams p;
    p.route = route.data();
    p.experts = s.experts;
    p.k = s.per_token;
    p.max_rows = max_rows;
    p.table = memory.data();
    run_plain(group_kernel, p, Rows().add(0, 0, s.rows).step());
    const GroupTable t(memory.data(), s.experts, max_rows * s.per_token);
    std::copy_n(t.starts, s.experts + 1, table.begin());
    std::copy_n(t.pair_of, s.rows * s.per_token, table.begin() + s.experts + 1);
    std::copy_n(t.place_of, s.rows * s.per_token, table.begin() + s.experts + 1 + max_rows * s.per_token);
    return table;
}

GpuCase route_case(const Shape& s, bool scaled, bool damaged) {
    gpu::RouteShape g{s.experts, s.per_token, !scaled || s.experts == 17, !scaled, scaled, scaled ? 0.25f : 1.0f};
    const gpu::Kernel kernel = gpu::route(common(s.type, s.rows), g);
    return {fmt::format("route {} of {} {}", s.per_token, s.experts, name_of(s.type)), {kernel}, [=](GpuDevice& device, int order) {
                const auto n = static_cast<std::size_t>(s.experts), words = static_cast<std::size_t>(2 * s.per_token);
                auto values = normal(static_cast<std::size_t>(s.rows) * n, s.type, 7, 2);
                for (std::size_t e = 0; e < n; ++e) values[e] = damaged ? std::numeric_limits<float>::quiet_NaN() : 0.5f;   // all equal: the lower ids win
                Array logits(s.type, values), wanted(DType::f32, static_cast<std::size_t>(s.rows) * words), got(DType::f32, static_cast<std::size_t>(s.rows) * words);
                const std::vector<float> factors = normal(n, DType::f32, 8);
                RouteParams p;
                p.type = s.type;
                p.logits = logits.data();
                p.logit_scale = g.logit_scale;
                p.experts = s.experts;
                p.k = s.per_token;
                p.normalise = g.normalise;
                p.round_weights = g.round_weights;
                p.expert_scale = scaled ? factors.data() : nullptr;
                p.route = static_cast<std::uint32_t*>(wanted.data());
                const Rows rows = Rows().add(0, 0, s.rows);
                run_plain(route_kernel, p, rows.step());
                Bindings b;
                b.add("logits", logits).add("route", got).floats("expert_scale.codes", factors);
                EXPECT_EQ(device.run(kernel, b, rows.step(), s.rows, order), "");
                for (std::size_t i = 0; i < static_cast<std::size_t>(s.rows) * words; ++i) {
                    const bool id = i % words < words / 2;
                    std::uint32_t x, y;
                    std::memcpy(&x, got.floats() + i, 4);
                    std::memcpy(&y, wanted.floats() + i, 4);
                    if (damaged && i < words) {
                        if (id) {
                            EXPECT_LT(x, n);
                        }
                    } else if (id) EXPECT_EQ(x, y) << i;
                    else EXPECT_NEAR(got.floats()[i], wanted.floats()[i], (2 * unit_roundoff(s.type) + 2e-6) * std::fabs(wanted.floats()[i]) + 1e-9) << i;
                }
            }};
}

GpuCase group_case(const Shape& s) {
    const int max_rows = s.rows + 3;
    const gpu::Kernel kernel = gpu::group(common(s.type, max_rows), s.experts, s.per_token);
    return {fmt::format("group {} rows, {} of {}", s.rows, s.per_token, s.experts), {kernel}, [=](GpuDevice& device, int order) {
                const auto routes = some_route(s);
                const std::vector<std::int32_t> wanted = plain_table(*routes, s, max_rows);
                std::vector<std::int32_t> got(wanted.size(), -1);
                const Rows rows = Rows().add(0, 0, s.rows);
                Bindings b;
                b.add("route", routes->data(), routes->size() * 4).add("table", got.data(), got.size() * 4);
                EXPECT_EQ(device.run(kernel, b, rows.step(), max_rows, order), "");
                EXPECT_EQ(got, wanted);
            }};
}

// Matrices of all experts one after the other in every plane, as the backends lay them out.
struct Stacked {
    std::vector<Weight> weights;
    std::vector<std::vector<std::byte>> planes{6};
    Stacked(const WeightFormat& format, int experts, int rows, int cols, unsigned seed, bool scaled, DType round_to) {
        for (int e = 0; e < experts; ++e) {
            weights.push_back(random_weight(format, rows, cols, seed + static_cast<unsigned>(e)));
            if (scaled) weights.back().global_scale = 0.5f + 0.125f * static_cast<float>(e);
        }
        for (int plane = 0; plane < 6; ++plane) {
            const std::size_t stride = gpu::expert_stride(weights[0], plane);
            auto& block = planes[static_cast<std::size_t>(plane)];
            block.resize(stride * static_cast<std::size_t>(experts));
            for (int e = 0; e < experts; ++e) {
                const Weight& w = weights[static_cast<std::size_t>(e)];
                const Plane* const all[] = {&w.codes, &w.codes_high, &w.scales, &w.offsets, &w.super_scales, &w.super_mins};
                if (all[plane]->data) std::memcpy(block.data() + stride * static_cast<std::size_t>(e), all[plane]->data, all[plane]->stride * static_cast<std::size_t>(rows));
            }
        }
        if (round_to == DType::f32) return;
        for (Weight& w : weights) {   // the reference of matrix units: elements rounded to T
            const auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(rows * cols));
            Weight plain = w;
            plain.global_scale = 1;
            for (std::int64_t r = 0; r < rows; ++r) decode_row(plain, r, values->data() + r * cols);
            for (float& v : *values) v = rounded(round_to, v);
            Weight dense;
            dense.name = w.name;
            dense.rows = rows;
            dense.cols = cols;
            dense.codes = {reinterpret_cast<const std::byte*>(values->data()), static_cast<std::size_t>(cols) * 4};
            dense.global_scale = w.global_scale;
            dense.owner = values;
            w = dense;
        }
    }
    void bind(Bindings& b, const std::string& operand) const {
        static const char* const names[] = {"codes", "high", "scales", "offsets", "super_scales", "super_mins"};
        for (std::size_t i = 0; i < 6; ++i)
            if (!planes[i].empty()) b.add(operand + "." + names[i], planes[i].data(), planes[i].size());
    }
};

GpuCase product_case(const NamedFormat& format, Shape s) {
    const bool matrix = s.rows > 8, tensor = s.tensor != gpu::Tensor::none;
    const int max_rows = s.rows + 1;
    const int multiple = format.format.is_dense() ? 8 : std::max(32, format.multiple);
    if (s.k == 0) s.k = std::max(multiple, 160 / multiple * multiple);
    const Weight one = random_weight(format.format, s.n, s.k, 1);   // shapes alone
    gpu::Common c = common(s.type, max_rows);
    c.limits.tensor = s.tensor;
    const gpu::ExpertShape g{&one, s.fused ? &one : nullptr, s.experts, s.per_token, s.per_choice, s.scaled, ActKind::silu};
    const bool other_tile = tensor && s.tile != 1;
    const gpu::Kernel kernel = other_tile ? gpu::expert_gemm_tensor(c, g, gpu::tensor_tiles(c, gpu::one_matrix(g)).at(static_cast<std::size_t>(s.tile))) : s.simd.rows > 0 ? gpu::expert_gemm_simd(c, g, s.simd) : matrix ? gpu::expert_gemm(c, g) : gpu::expert_matvec(c, g);
    const DType rounds = tensor && !s.simd.wide ? s.type : DType::f32;
    return {fmt::format("experts {} {} rows {}{}{}", format.name, s.rows, name_of(s.type), s.fused ? " fused" : "", tensor ? " tensor" : ""), {kernel}, [=](GpuDevice& device, int order) {
                const Stacked gates(format.format, s.experts, s.n, s.k, 10, s.scaled, rounds), ups(format.format, s.experts, s.n, s.k, 50, s.scaled, rounds);
                const auto routes = some_route(s);
                const std::vector<std::int32_t> table = plain_table(*routes, s, max_rows);
                const std::size_t pairs = static_cast<std::size_t>(s.rows * s.per_token), count = pairs * static_cast<std::size_t>(s.n);
                Array x(s.type, normal((s.per_choice ? pairs : static_cast<std::size_t>(s.rows)) * static_cast<std::size_t>(s.k), s.type, 6, 0.5f)), y(s.type, count), wanted(s.type, count);
                // Choice by choice, as single rows of the expert's product.
                for (int pair = 0; pair < static_cast<int>(pairs); ++pair) {
                    const int place = matrix ? table[static_cast<std::size_t>(s.experts + 1 + max_rows * s.per_token + pair)] : pair;
                    const std::size_t e = (*routes)[static_cast<std::size_t>(pair / s.per_token * 2 * s.per_token + pair % s.per_token)];
                    MatmulParams p;
                    p.type = s.type;
                    p.w = &gates.weights[e];
                    p.w2 = s.fused ? &ups.weights[e] : nullptr;
                    p.epilogue = s.fused ? Epilogue::act_mul : Epilogue::none;
                    p.max_rows = 1;
                    p.x = static_cast<std::byte*>(x.data()) + static_cast<std::size_t>((s.per_choice ? place : pair / s.per_token) * s.k) * size_of(s.type);
                    p.y = static_cast<std::byte*>(wanted.data()) + static_cast<std::size_t>(place * s.n) * size_of(s.type);
                    run_plain(matvec_kernel, p, Rows().add(0, 0, 1).step());
                }
                std::vector<float> globals;
                for (const Stacked* all : {&gates, &ups})
                    for (const Weight& w : all->weights) globals.push_back(w.global_scale);
                const Rows rows = Rows().add(0, 0, s.rows);
                Bindings b;
                b.add("route", routes->data(), routes->size() * 4).add("table", table.data(), table.size() * 4).add("x", x).add("y", y).floats("globals", globals);
                gates.bind(b, "weight");
                ups.bind(b, "weight2");
                EXPECT_EQ(device.run(kernel, b, rows.step(), max_rows, order), "");
                expect_close(y, wanted, count, s.type, s.fused ? 3 : 1.01, s.type == DType::f32 ? 4e-6 : 3e-5);
            }};
}

GpuCase combine_case(const Shape& s, bool grouped, bool shared) {
    const int max_rows = s.rows + 2;
    const gpu::Kernel kernel = gpu::combine(common(s.type, max_rows), {s.per_token, s.n, s.experts, grouped, shared});
    return {fmt::format("combine {} rows {}", s.rows, name_of(s.type)), {kernel}, [=](GpuDevice& device, int order) {
                const auto routes = some_route(s);
                const std::vector<std::int32_t> table = plain_table(*routes, s, max_rows);
                const std::size_t count = static_cast<std::size_t>(s.rows * s.n);
                std::vector<std::int32_t> cpu_table(group_bytes(s.experts, s.per_token, max_rows) / 4);
                GroupParams g;
                g.route = routes->data();
                g.experts = s.experts;
                g.k = s.per_token;
                g.max_rows = max_rows;
                g.table = cpu_table.data();
                const Rows rows = Rows().add(0, 0, s.rows);
                run_plain(group_kernel, g, rows.step());
                Array x(s.type, normal(count * static_cast<std::size_t>(s.per_token), s.type, 3)), sh(s.type, normal(count, s.type, 4)), gate(s.type, normal(static_cast<std::size_t>(s.rows), s.type, 5)),
                    y(s.type, count), wanted(s.type, count);
                CombineParams p;
                p.type = s.type;
                p.x = x.data();
                p.table = grouped ? cpu_table.data() : nullptr;
                p.experts = s.experts;
                p.max_rows = max_rows;
                p.route = routes->data();
                p.k = s.per_token;
                p.width = s.n;
                p.shared = shared ? sh.data() : nullptr;
                p.shared_gate = shared ? gate.data() : nullptr;
                p.y = wanted.data();
                run_plain(combine_kernel, p, rows.step());
                Bindings b;
                b.add("x", x).add("table", table.data(), table.size() * 4).add("route", routes->data(), routes->size() * 4).add("shared", sh).add("shared_gate", gate).add("y", y);
                EXPECT_EQ(device.run(kernel, b, rows.step(), max_rows, order), "");
                expect_close(y, wanted, count, s.type, 1, 2 * unit_roundoff(s.type));
            }};
}

}  // namespace

std::vector<GpuCase> expert_cases(bool full) {
    std::vector<GpuCase> cases;
    for (const DType type : types())
        for (const auto& [experts, k] : {std::pair{1, 1}, std::pair{5, 2}, std::pair{17, 8}, std::pair{128, 8}, std::pair{256, 10}}) {
            Shape s{experts, k, 5};
            s.type = type;
            cases.push_back(route_case(s, experts % 2 == 0, false));
            if (experts == 17) cases.push_back(route_case(s, true, true));
        }
    for (const auto& [rows, experts, k] : {std::tuple{1, 1, 1}, std::tuple{9, 5, 2}, std::tuple{64, 3, 3}, std::tuple{37, 128, 8}}) {
        cases.push_back(group_case({experts, k, rows}));
        for (const DType type : types())
            for (const bool grouped : {false, true}) {
                Shape s{experts, k, rows};
                s.type = type;
                if (full || type == DType::bf16) cases.push_back(combine_case(s, grouped, rows % 2 == 1));
            }
    }
    for (const NamedFormat& f : all_formats()) {
        if (f.tiled || (!full && f.name.find("gguf") != 0 && f.name.find("mxfp8") == std::string::npos && f.name.find("/64 bf16") == std::string::npos)) continue;
        Shape s;
        s.rows = 3;
        s.scaled = f.name.find("nvfp4") != std::string::npos;
        cases.push_back(product_case(f, s));
        s.rows = 40;
        s.per_choice = true;
        cases.push_back(product_case(f, s));
    }
    for (const NamedFormat& f : all_formats())
        if (f.name == "gguf bf16" || f.name == "gguf q4_0")
            for (const DType type : types())
                for (const int rows : {1, 8, 90}) {
                    Shape s;
                    s.rows = rows;
                    s.type = type;
                    s.fused = true;
                    s.scaled = rows == 8;
                    cases.push_back(product_case(f, s));
                    s.fused = false;
                    s.per_choice = true;
                    cases.push_back(product_case(f, s));
                }
    for (const NamedFormat& f : all_formats())
        if (full && f.name == "gguf bf16") {   // more grouped rows than 16 bits count
            Shape s;
            s.experts = s.per_token = 4;
            s.rows = 8200;
            s.n = s.k = 8;
            s.type = DType::f32;
            s.per_choice = true;
            cases.push_back(product_case(f, s));
        }
    return cases;
}

std::vector<GpuCase> expert_tensor_cases(bool) {
    std::vector<GpuCase> cases;
    for (const gpu::Tensor tensor : {gpu::Tensor::mma_sync, gpu::Tensor::wgmma})
        for (const NamedFormat& f : all_formats())
            if (f.name == "gguf bf16" || f.name == "gguf q4_0" || f.name == "gguf q6_k" || f.name == "gguf nvfp4")
                for (const int rows : {9, 300}) {
                    Shape s;
                    s.tensor = tensor;
                    s.rows = rows;
                    s.n = rows == 9 ? 37 : 150;
                    s.fused = true;
                    cases.push_back(product_case(f, s));
                    s.fused = false;
                    s.per_choice = true;
                    s.scaled = rows == 9;
                    cases.push_back(product_case(f, s));
                    for (s.tile = 0; s.tile < 3; s.tile += 2)   // what the tuner may take
                        if (f.name == "gguf bf16" || f.name == "gguf q4_0") cases.push_back(product_case(f, s));
                }
    return cases;
}

std::vector<GpuCase> simd_expert_cases(bool full) {
    std::vector<GpuCase> cases;
    std::size_t turn = 0;
    const auto add = [&](const NamedFormat& f, Shape s, bool every) {
        s.tensor = gpu::Tensor::simdgroup;
        gpu::Common c = common(s.type, 9);
        c.limits.tensor = s.tensor;
        Weight w;
        w.format = f.format;
        gpu::MatvecShape g;
        g.w = &w;
        g.epilogue = s.fused ? Epilogue::act_mul : Epilogue::none;
        in_turns(gpu::simd_tiles(c, g), every, turn, [&](const gpu::SimdTile& tile) {
            s.simd = tile;
            cases.push_back(product_case(f, s));
        });
    };
    for (const NamedFormat& f : all_formats()) {
        if (f.tiled || (!full && f.name != "gguf bf16" && f.name != "gguf f32" && f.name != "gguf q4_0" && f.name != "gguf q6_k" && f.name != "gguf nvfp4" && f.name != "mlx mxfp8")) continue;
        for (const int rows : {9, 90}) {
            Shape s;
            s.rows = rows;
            s.n = rows == 9 ? 37 : 100;
            s.type = rows == 9 ? DType::bf16 : DType::f16;
            s.fused = true;
            add(f, s, full && rows == 9 && f.name.find("gguf") == 0);
            s.fused = false;
            s.per_choice = true;
            s.scaled = rows == 9;
            add(f, s, false);
        }
        if (f.name != "gguf bf16") continue;
        Shape s;   // the tile that is chosen; more grouped rows than 16 bits count
        s.tensor = gpu::Tensor::simdgroup;
        s.rows = 40;
        cases.push_back(product_case(f, s));
        s.experts = 4;
        s.per_token = 4;
        s.rows = 8200;
        s.n = s.k = 8;
        s.per_choice = true;
        cases.push_back(product_case(f, s));
    }
    return cases;
}

}  // namespace forge::test
