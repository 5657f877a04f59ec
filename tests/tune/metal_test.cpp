// The emulated Metal device: kernels that depend on where a chip keeps the elements of an 8x8 matrix are found wrong where
// it keeps them elsewhere. METAL_EMU_PROFILE says which chip this process has (m1 without it).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "backends/metal.h"
#include "fixture.h"
#include "kernels/gpu/ways.h"
#include "lower/lower.h"
#include "tune/site.h"

namespace forge::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string profile() {
    const char* name = std::getenv("METAL_EMU_PROFILE");
    return name && *name ? name : "m1";
}

bool plain_product(const gpu::Common& c, const gpu::MatvecShape& s) {
    return c.type == DType::bf16 && s.w->format.is_dense() && s.w->format.dense_type == DType::bf16 && !s.w2 && !s.bias && !s.f32_out && s.w->cols % 8 == 0 &&
           s.w->codes.stride == 2 * static_cast<std::size_t>(s.w->cols);
}

// y = x W^T (+ residual) for bf16, a simdgroup for 8 x 8 elements of y. `elements`: statements that put the sums, which
// the simdgroup holds as the matrix d, into the array out[64] row by row. In whole blocks and partial ones alike.
gpu::Kernel matrix_product(const gpu::MatvecShape& s, const std::string& elements) {
    const bool add = s.epilogue == Epilogue::add;
    gpu::Kernel k;
    k.family = "gemm";
    k.params = {{"step", "int"}, {"packed", "ushort"}, {"weight.codes", "uchar"}};
    if (add) k.params.push_back({"residual", "ushort"});
    k.params.push_back({"y", "ushort", true});
    k.arrays = {{"a_tile", "float", 64}, {"b_tile", "float", 64}, {"out", "float", 64}};
    const std::string n = std::to_string(s.w->rows), cols = std::to_string(s.w->cols);
    k.body = "    const uint rows = (uint)step[" + std::string(s.output_rows ? "1" : "0") + "], m0 = id.tg_y * 8, n0 = id.tg_x * 8;\n"
             "    if (m0 >= rows) return;\n"
             "    device const ushort* w = (device const ushort*)weight_codes;\n"
             "    simdgroup_float8x8 a, b, d = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);\n"
             "    for (uint k0 = 0; k0 < " + cols + "; k0 += 8) {\n"
             "        for (uint i = id.lane; i < 64; i += 32) {\n"
             "            const uint r = i / 8, q = i % 8;\n"
             "            a_tile[i] = m0 + r < rows ? fk::Bf16::get(packed[(m0 + r) * " + cols + " + k0 + q]) : 0.0f;\n"
             "            b_tile[q * 8 + r] = n0 + r < " + n + " ? fk::Bf16::get(w[(n0 + r) * " + cols + " + k0 + q]) : 0.0f;\n"
             "        }\n"
             "        simdgroup_barrier(mem_flags::mem_threadgroup);\n"
             "        simdgroup_load(a, a_tile, 8);\n"
             "        simdgroup_load(b, b_tile, 8);\n"
             "        simdgroup_multiply_accumulate(d, a, b, d);\n"
             "        simdgroup_barrier(mem_flags::mem_threadgroup);\n"
             "    }\n" + elements +
             "    simdgroup_barrier(mem_flags::mem_threadgroup);\n"
             "    for (uint i = id.lane; i < 64; i += 32) {\n"
             "        const uint r = m0 + i / 8, c = n0 + i % 8;\n"
             "        if (r >= rows || c >= " + n + ") continue;\n"
             "        y[r * " + n + " + c] = fk::Bf16::put(" + (add ? "fk::Bf16::get(residual[r * " + n + " + c]) + fk::rounded<fk::Bf16>(out[i])" : std::string("out[i]")) + ");\n"
             "    }\n";
    k.threads = 32;
    k.grid = {static_cast<int>((s.w->rows + 7) / 8), 8, 0, 0, s.output_rows};
    k.name = (add ? "test_add_" : "test_") + std::to_string(std::hash<std::string>{}(k.body));
    return k;
}

gpu::Kernel stored(const gpu::Common&, const gpu::MatvecShape& s) { return matrix_product(s, "    simdgroup_store(d, out, 8);\n"); }
// Lane l of an m5 holds row l % 8, columns l / 8 * 2 and the next.
gpu::Kernel of_m5(const gpu::Common&, const gpu::MatvecShape& s) {
    return matrix_product(s, "    for (uint i = 0; i < 2; ++i) out[id.lane % 8 * 8 + id.lane / 8 * 2 + i] = d.thread_elements()[i];\n");
}

class MetalTuner : public testing::Test {
  protected:
    void SetUp() override {
        std::string reason;
        if (!metal_available(&reason)) GTEST_SKIP() << reason;
        gpu::add_gemm_form({"m5 elements", plain_product, of_m5});
        gpu::add_gemm_form({"stored", plain_product, stored});
        model = std::make_unique<TinySubject>("models/qwen3-tied", WeightLayout::rows);
        metal = make_metal_backend();
    }
    std::unique_ptr<TinySubject> model;
    std::unique_ptr<Backend> metal;
};

const tune::SiteReport* site_with(const tune::TuneReport& report, const std::string& start, const std::string& variant) {
    for (const tune::SiteReport& s : report.sites)
        for (const tune::TimedVariant& v : s.variants)
            if (s.site.starts_with(start) && v.name == variant) return &s;
    return nullptr;
}

// Timings under the emulator mean nothing, so they are given: the kernel for m5 is the fastest, the one that is right
// everywhere the second.
TEST_F(MetalTuner, AKernelForAnotherChipsLayoutIsNeverPicked) {
    const auto backend = narrow_backend(*metal, "gemm", {"m5 elements", "stored"});
    GivenTimes times({{"m5 elements", 0.461}, {"stored", 0.533}}, 1.444);
    tune::TuneOptions options;
    options.timer = &times;
    CapturedLog log;
    const tune::TuneReport report = tune::tune(model->on(*backend, 1, 40), options);
    const std::string text = log.text();
    int gemms = 0;
    for (const tune::SiteReport& s : report.sites) {
        if (!site_with(report, s.site, "m5 elements")) continue;
        ++gemms;
        EXPECT_EQ(s.picked, profile() == "m5" ? "m5 elements" : "stored") << s.site;
    }
    EXPECT_GT(gemms, 0);
    if (profile() == "m5") {
        EXPECT_THAT(text, Not(HasSubstr("never picked")));
    } else {
        EXPECT_THAT(text, HasSubstr("16 rows: wrong against plain, never picked: m5 elements ("));   // whole blocks of eight, and nine rows
        EXPECT_THAT(text, HasSubstr("40 rows: wrong against plain, never picked: m5 elements ("));
        EXPECT_THAT(text, HasSubstr("max err"));
        EXPECT_THAT(text, HasSubstr(" ahead 1.444 ms, m5 elements* 0.461 ms, stored 0.533 ms -> stored"));
    }
}

// On whole blocks of eight rows and on partial ones, each by itself.
TEST_F(MetalTuner, WrongOnWholeAndOnPartialBlocks) {
    const tune::Subject subject = model->on(*metal, 1, 40);
    int checked = 0;
    for (const tune::Site& site : tune::sites(subject, true)) {
        if (site.kernel != "gemm" || checked++ > 0) continue;
        const tune::Part part = tune::part_of(subject.plan(true), site.units.front());
        const auto cache = tune::make_cache(*metal, part, subject);
        for (const char* name : {"m5 elements", "stored"}) {
            tune::LoweredPart lowered = tune::lower_part(*metal, subject, subject.weights, part, 40, 2);
            for (const LaunchVariants& b : site.buckets) lowered.choose(site.name, {b.rows, name}, subject.weights);
            tune::Probe probe(*metal, subject, part, lowered, subject.weights, cache);
            for (const int rows : {40, 33, 9}) {
                const tune::Case c = tune::make_case(part, subject, 40, rows, 3);
                const tune::Result got = probe.run(c), wanted = tune::reference_run(subject, part, c, 1e300);
                const std::size_t whole = static_cast<std::size_t>(rows / 8 * 8) * got.width;
                const bool right = std::string(name) == "stored" || profile() == "m5";
                EXPECT_EQ(tune::compare(std::span(got.values).first(whole), std::span(wanted.values).first(whole), DType::bf16, rows).ok(), right) << name << ", " << rows << " rows";
                if (rows % 8 == 0) continue;
                EXPECT_EQ(tune::compare(std::span(got.values).subspan(whole), std::span(wanted.values).subspan(whole), DType::bf16, rows).ok(), right)
                    << name << ", the last of " << rows << " rows";
            }
        }
    }
    EXPECT_GT(checked, 0);
}

// Every variant that is built in, once, is right and has the default's bits.
TEST_F(MetalTuner, BuiltInVariantsHaveTheSameBits) {
    const tune::Subject subject = model->on(*metal, 4, 40);
    std::set<std::string> seen;
    for (const bool many : {false, true})
        for (const tune::Site& site : tune::sites(subject, many))
            for (const LaunchVariants& bucket : site.buckets) {
                const tune::Part part = tune::part_of(subject.plan(many), site.units.front());
                const auto cache = tune::make_cache(*metal, part, subject);
                const int most = part.plan.values[static_cast<std::size_t>(part.output())].rows == RowSpace::outputs ? 2 : 40;
                const tune::Case c = tune::make_case(part, subject, many ? 40 : 4, std::min(bucket.rows, most), 3);
                std::vector<float> first;
                for (const std::string& name : bucket.names) {
                    if (name == "m5 elements" || name == "stored" || !seen.insert(site.kernel + (bucket.rows == 1 ? " one: " : ": ") + name).second) continue;
                    for (const std::string& other : {bucket.names[0], name}) {
                        if (other == bucket.names[0] && !first.empty()) continue;
                        tune::LoweredPart lowered = tune::lower_part(*metal, subject, subject.weights, part, many ? 40 : 4, 2);
                        lowered.choose(site.name, {bucket.rows, other}, subject.weights);
                        tune::Probe probe(*metal, subject, part, lowered, subject.weights, cache);
                        tune::fill_cache(*cache, part, subject, c);
                        const std::vector<float> values = probe.run(c).values;
                        if (first.empty()) {
                            first = values;
                            const tune::Difference d = tune::compare(values, tune::reference_run(subject, part, c, 1e300).values, DType::bf16, c.rows);
                            EXPECT_TRUE(d.ok()) << site.name << ", " << bucket.rows << " rows, " << other << ": " << d.text();
                        }
                        EXPECT_EQ(values, first) << site.name << ", " << bucket.rows << " rows, " << other;
                    }
                }
            }
    EXPECT_GT(seen.size(), 20u);
}

// What take_apart() leaves is lowered to the launches that the fused plan is lowered to, in their order.
TEST_F(MetalTuner, PlansTakenApartMakeTheSameLaunches) {
    for (const char* name : {"models/qwen3-tied", "models-mixed/qwen3.5-moe", "models-mixed/qwen3-next", "models-mixed/gemma4-experts"}) {
        const TinySubject other(name, WeightLayout::rows);
        const tune::Subject subject = other.on(*metal, 1, 40);
        for (const int outputs : {2, 20}) {
            std::vector<std::string> names[2];
            const Plan fused = other.fused(PassTarget::gpu, {});
            for (const Plan* plan : {&fused, &subject.many_plan}) {
                const LowerTarget target = lower_target(*metal, subject.weights, subject.type, subject.capacity);
                const Program program = lower(*plan, subject.ropes, {subject.type, 40, outputs}, target);
                for (const Launch& l : program.launches) names[plan != &fused].push_back(tune::site_name(program, l, subject.weights));
            }
            EXPECT_EQ(names[0], names[1]) << name << ", " << outputs << " outputs";
        }
    }
}

// Products of blocks, experts and recurrent layers too.
TEST_F(MetalTuner, EveryKernelIsAsThePlainOne) {
    for (const char* name : {"models/gguf-llama-q4_0", "models-mixed/qwen3.5-moe", "models-mixed/gemma4-experts"}) {
        const TinySubject other(name, WeightLayout::rows);
        const std::unique_ptr<Backend> own = make_metal_backend();   // it knows weights by where they lie
        for (const tune::Check& c : tune::check_kernels(other.on(*own, 2, 40), {}, true))
            EXPECT_TRUE(c.ok()) << name << ": " << c.kernel << " " << c.shape << ": " << c.error << c.worst.text();
    }
}

}  // namespace
}  // namespace forge::test
