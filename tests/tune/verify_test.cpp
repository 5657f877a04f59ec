// Variants that are wrong in one corner only: each is named and none is picked, however fast it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu.h"
#include "fixture.h"
#include "tune/site.h"

namespace forge::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tune::Mode;

const Weight& weight_of(const TinySubject& model, const Launch& launch) {
    return model.model().weights[static_cast<std::size_t>(launch.operand("weight").buffer.index)];
}

// Runs the tuner on one kernel with a right variant and these, which claim to be ever faster.
tune::TuneReport tuned(const tune::Subject& subject, std::string* log, Mode mode = Mode::fast) {
    GivenTimes times({{"right", 3}, {"slow and right", 4}}, 0.5);
    tune::TuneOptions options;
    options.mode = mode;
    options.timer = &times;
    CapturedLog captured;
    tune::TuneReport report = tune::tune(subject, options);
    *log = captured.text();
    return report;
}

// Sites whose variant of that name was found wrong.
std::vector<std::string> rejected(const tune::TuneReport& report, const std::string& name) {
    std::vector<std::string> sites;
    for (const tune::SiteReport& s : report.sites)
        for (const tune::TimedVariant& v : s.variants)
            if (v.name == name && v.wrong) sites.push_back(tune::short_name(s.site));
    return sites;
}

void expect_right_everywhere(const tune::TuneReport& report) {
    EXPECT_FALSE(report.sites.empty());
    for (const tune::SiteReport& s : report.sites) EXPECT_EQ(s.picked, "right") << s.site;
}

// The last columns of y, past the last whole block of 64.
Fault ragged_rows_of_the_matrix(const TinySubject& model) {
    return {"ragged N", {}, [&model](Executable& e, const Program&, const Launch& l, const StepRows& step) {
                if (l.number("f32_out") != 0) return;
                const std::int64_t n = weight_of(model, l).rows;
                change_elements(e, l.operand("y"), step.m, n, [&](int, std::int64_t c, float v) { return c >= n / 64 * 64 ? 0.9f * v + 0.2f : v; });
            }};
}

// Columns past the last whole 64 are left out of the sums.
Fault tail_of_the_sum(const TinySubject& model) {
    return {"K tail", [&model](Executable& e, const Program&, const Launch& l, const StepRows& step) {
                const std::int64_t k = weight_of(model, l).cols;
                change_elements(e, l.operand("x"), step.m, k, [&](int, std::int64_t c, float v) { return c >= k / 64 * 64 ? 0.0f : v; });
            }};
}

TEST(Verify, WrongInRaggedRowsOfTheMatrixOnly) {
    const TinySubject model("models/gguf-llama-q4_0", WeightLayout::tiles);   // 96 and 64 rows
    const auto cpu = make_cpu_backend(model.pool()), backend = faulty_backend(*cpu, "matvec", {ragged_rows_of_the_matrix(model)});
    std::string log;
    const tune::TuneReport report = tuned(model.on(*backend, 8, 0), &log);
    const std::vector<std::string> sites = rejected(report, "ragged N");
    EXPECT_THAT(sites, testing::Contains(HasSubstr("96x96")));
    for (const std::string& site : sites) EXPECT_THAT(site, testing::Not(HasSubstr("64x96")));
    for (const tune::SiteReport& s : report.sites)   // where there is no ragged end it may win
        EXPECT_EQ(s.picked, std::count(sites.begin(), sites.end(), tune::short_name(s.site)) ? "right" : "ragged N") << s.site;
    EXPECT_THAT(log, HasSubstr("wrong against plain, never picked: ragged N ("));
}

TEST(Verify, WrongInTheTailOfSumsOnly) {
    const TinySubject model("models/gguf-llama-q4_0", WeightLayout::tiles);   // 96 columns, and 64 in one matrix
    const auto cpu = make_cpu_backend(model.pool()), backend = faulty_backend(*cpu, "matvec", {tail_of_the_sum(model)});
    std::string log;
    const tune::TuneReport report = tuned(model.on(*backend, 8, 0), &log);
    const std::vector<std::string> sites = rejected(report, "K tail");
    EXPECT_THAT(sites, testing::Contains(HasSubstr("96x96")));
    for (const tune::SiteReport& s : report.sites) {
        const bool no_tail = tune::short_name(s.site).find("96x64") != std::string::npos;
        EXPECT_EQ(s.picked, no_tail ? "K tail" : "right") << s.site;
    }
}

TEST(Verify, WrongInPartialBlocksOnly) {
    const TinySubject model("models/qwen3-tied", WeightLayout::tiles);
    const auto cpu = make_cpu_backend(model.pool());
    const Fault partial{"partial", {}, [&](Executable& e, const Program&, const Launch& l, const StepRows& step) {
                            if (l.number("f32_out") != 0) return;
                            const int whole = step.m / 32 * 32;
                            change_elements(e, l.operand("y"), step.m, weight_of(model, l).rows, [&](int r, std::int64_t, float v) { return r >= whole ? -v : v; });
                        }};
    const auto backend = faulty_backend(*cpu, "gemm", {partial});
    std::string log;
    const tune::TuneReport report = tuned(model.on(*backend, 8, 64), &log);
    expect_right_everywhere(report);
    EXPECT_THAT(log, AllOf(HasSubstr("gemm"), HasSubstr("64 rows: wrong against plain, never picked: partial (")));
}

TEST(Verify, WhatNobodyWroteShows) {
    const TinySubject model("models/qwen3-tied", WeightLayout::tiles);
    const auto cpu = make_cpu_backend(model.pool());
    const Fault one{"one left out", {}, [&](Executable& e, const Program&, const Launch& l, const StepRows& step) {
                        if (l.number("f32_out") != 0) return;
                        change_elements(e, l.operand("y"), step.m, weight_of(model, l).rows, [&](int r, std::int64_t c, float v) { return r == step.m - 1 && c == 7 ? NAN : v; });
                    }};
    const auto backend = faulty_backend(*cpu, "gemm", {one});
    std::string log;
    expect_right_everywhere(tuned(model.on(*backend, 8, 64), &log));
    EXPECT_THAT(log, HasSubstr("one left out (64 rows: 1 elements are not numbers)"));
}

TEST(Verify, ManySmallErrorsAreWrongToo) {
    const TinySubject model("models/qwen3-tied", WeightLayout::tiles);
    const auto cpu = make_cpu_backend(model.pool());
    // Every element off by less than 1/64 of the largest, as sums in 16 bits would be.
    const Fault coarse{"coarse", {}, [&](Executable& e, const Program&, const Launch& l, const StepRows& step) {
                           if (l.number("f32_out") != 0) return;
                           change_elements(e, l.operand("y"), step.m, weight_of(model, l).rows, [](int r, std::int64_t c, float v) { return v + ((r + c) % 2 ? 0.06f : -0.06f); });
                       }};
    const auto backend = faulty_backend(*cpu, "gemm", {coarse});
    std::string log;
    const tune::TuneReport report = tuned(model.on(*backend, 8, 64), &log);
    EXPECT_FALSE(rejected(report, "coarse").empty());
    EXPECT_THAT(log, HasSubstr("rms"));
}

// More rows, sorted by expert, than a signed 16-bit index reaches: what lies beyond is not written.
TEST(Verify, WrongBeyond32767GroupedRowsOnly) {
    const TinySubject model("models-mixed/qwen3-moe", WeightLayout::tiles);
    const auto cpu = make_cpu_backend(model.pool());
    const Fault narrow{"16-bit places", {}, [&](Executable& e, const Program& p, const Launch& l, const StepRows& step) {
                           const int per_token = static_cast<int>(l.integer("k"));
                           if (step.m * per_token <= 32767) return;
                           const Launch& combine = p.launches.back();
                           change_elements(e, combine.operand("y"), step.m, combine.integer("width"), [&](int r, std::int64_t, float v) { return r * per_token > 32767 ? 0.0f : v; });
                       }};
    const auto backend = faulty_backend(*cpu, "expert_gemm", {narrow});
    std::string log;
    const int per_token = model.model().spec.layers[1].feed_forward.moe.per_token;
    // In steps that stay below it the variant is right and wins.
    const tune::TuneReport small = tuned(model.on(*backend, 8, 64), &log);
    for (const tune::SiteReport& s : small.sites) EXPECT_EQ(s.picked, "16-bit places");
    const tune::TuneReport large = tuned(model.on(*backend, 8, 32768 / per_token + 40), &log);
    expect_right_everywhere(large);
    EXPECT_THAT(log, HasSubstr("never picked: 16-bit places ("));
}

// Where the plain kernels make no number nothing is known, and nothing is right.
TEST(Verify, AReferenceWithoutNumbersIsNoProof) {
    const TinySubject model("models/qwen3-tied", WeightLayout::tiles);
    const auto cpu = make_cpu_backend(model.pool());
    tune::Subject subject = model.on(*cpu, 8, 0);
    const std::vector<std::size_t> unit = tune::units(subject.few_plan).back();
    const tune::Part part = tune::part_of(subject.few_plan, unit);
    tune::Case c = tune::make_case(part, subject, 8, 1, 3);
    EXPECT_NO_THROW(tune::reference_run(subject, part, c, 1e300));
    c.inputs.at(0).at(0) = NAN;
    EXPECT_THAT([&] { tune::reference_run(subject, part, c, 1e300); }, testing::ThrowsMessage<std::exception>(HasSubstr("no number")));
}

TEST(Verify, NothingIsPickedWhereAllAreWrong) {
    const TinySubject model("models/qwen3-tied", WeightLayout::tiles);
    const auto cpu = make_cpu_backend(model.pool());
    const Fault negative{"right", {}, [&](Executable& e, const Program&, const Launch& l, const StepRows& step) {
                             if (l.number("f32_out") == 0) change_elements(e, l.operand("y"), step.m, weight_of(model, l).rows, [](int, std::int64_t, float v) { return -v; });
                         }};
    const auto backend = faulty_backend(*cpu, "gemm", {negative});
    std::string log;
    EXPECT_THAT([&] { tuned(model.on(*backend, 8, 64), &log); }, testing::ThrowsMessage<std::exception>(HasSubstr("every kernel gives wrong results")));
}

}  // namespace
}  // namespace forge::test
