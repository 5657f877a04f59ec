#include "tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "backends/cpu.h"
#include "fixture.h"
#include "lower/lower.h"
#include "tune/site.h"

namespace forge::test {
namespace {

using testing::HasSubstr;
using tune::Mode;

class TunerTest : public testing::Test {
  protected:
    TunerTest() : model("models/gguf-llama-q4_0", WeightLayout::tiles), cpu(make_cpu_backend(model.pool())) {
        std::string name = (std::filesystem::temp_directory_path() / "forge-tune-XXXXXX").string();
        options.folder = mkdtemp(name.data());
        options.timer = &times;
    }
    ~TunerTest() override { std::filesystem::remove_all(options.folder); }
    tune::TuneReport run() { return tune::tune(model.on(*cpu), options); }

    TinySubject model;
    std::unique_ptr<Backend> cpu;
    GivenTimes times{{{"items 2", 0.4}, {"items 4", 0.9}}};
    tune::TuneOptions options;
};

TEST_F(TunerTest, SecondStartSkipsTuning) {
    const tune::TuneReport first = run();
    EXPECT_FALSE(first.cached);
    EXPECT_GT(times.asked, 0);
    ASSERT_FALSE(first.choices.empty());
    for (const tune::SiteReport& s : first.sites)
        if (s.site.starts_with("gemm")) {
            EXPECT_EQ(s.picked, "items 2");
        }
    // Only the sentinel is timed, and checks of what was picked.
    times.asked = 0;
    const tune::TuneReport second = run();
    EXPECT_TRUE(second.cached);
    EXPECT_LE(times.asked, 7);
    EXPECT_EQ(second.choices, first.choices);
    EXPECT_TRUE(second.sites.empty());
}

TEST_F(TunerTest, ChangesTuneAgain) {
    run();
    tune::Subject subject = model.on(*cpu);
    options.version = "another";
    EXPECT_THAT(run().why, HasSubstr("version of Forge"));
    EXPECT_TRUE(run().cached);
    subject.capacity += 64;
    EXPECT_TRUE(tune::tune(subject, options).cached);
    subject.capacity = 10000;
    EXPECT_FALSE(tune::tune(subject, options).cached);
    EXPECT_TRUE(tune::tune(subject, options).cached);
    EXPECT_FALSE(tune::tune(model.on(*cpu, 8, 48), options).cached);
    EXPECT_FALSE(tune::tune(model.on(*cpu, 8, 64, DType::f16), options).cached);
    const TinySubject other("models/gguf-qwen3-kquants", WeightLayout::tiles);
    EXPECT_FALSE(tune::tune(other.on(*cpu), options).cached);
    // Another number of threads is another device for the CPU, and each keeps its record.
    ThreadPool one(1);
    const auto narrow = make_cpu_backend(one);
    EXPECT_THAT(tune::tune(model.on(*narrow), options).why, HasSubstr("nothing was tuned"));
    EXPECT_TRUE(run().cached);
    EXPECT_TRUE(tune::tune(model.on(*narrow), options).cached);
    options.anew = true;
    EXPECT_FALSE(run().cached);
}

TEST_F(TunerTest, FullIsMoreThanFast) {
    run();
    options.mode = Mode::full;
    EXPECT_THAT(run().why, HasSubstr("only the fast way"));
    EXPECT_TRUE(run().cached);
    options.mode = Mode::fast;
    EXPECT_TRUE(run().cached);
}

TEST_F(TunerTest, ADamagedRecordIsMadeAnew) {
    const tune::TuneReport first = run();
    std::ofstream(first.file) << "{\"device\": ";
    CapturedLog log;
    const tune::TuneReport second = run();
    EXPECT_FALSE(second.cached);
    EXPECT_EQ(second.choices, first.choices);
    EXPECT_THAT(log.text(), HasSubstr("warning: " + first.file.string()));
    EXPECT_TRUE(run().cached);
}

TEST_F(TunerTest, ADriftOfTheSentinelTunesAgain) {
    run();
    times.factor = 1.3;   // within what clocks do
    EXPECT_TRUE(run().cached);
    times.factor = 2.5;
    const tune::TuneReport report = run();
    EXPECT_FALSE(report.cached);
    EXPECT_THAT(report.why, HasSubstr("takes"));
    EXPECT_TRUE(run().cached);
    times.factor = 1;
    EXPECT_FALSE(run().cached);
}

TEST_F(TunerTest, OffChoosesNothing) {
    options.mode = Mode::off;
    EXPECT_TRUE(run().choices.empty());
    EXPECT_EQ(times.asked, 0);
    EXPECT_TRUE(std::filesystem::is_empty(options.folder));
}

TEST_F(TunerTest, OnlyTheRecord) {
    options.only_record = true;
    EXPECT_TRUE(run().choices.empty());
    EXPECT_EQ(times.asked, 0);
    options.only_record = false;
    const tune::TuneReport measured = run();
    options.only_record = true;
    EXPECT_TRUE(run().cached);
    EXPECT_EQ(run().choices, measured.choices);
    options.version = "another";
    EXPECT_TRUE(run().choices.empty());
}

TEST_F(TunerTest, AForcedVariantRunsUnasked) {
    options.mode = Mode::off;
    options.forced = {{"gemm", "items 4"}};
    const tune::TuneReport report = run();
    ASSERT_FALSE(report.choices.empty());
    const tune::Subject subject = model.on(*cpu);
    Program program = lower(model.plan(), model.model().spec.ropes, {DType::bf16, 64, 2}, lower_target(*cpu, model.model().weights, DType::bf16, subject.capacity));
    tune::apply(report.choices, program, model.model().weights);
    int forced = 0;
    for (const Launch& l : program.launches)
        if (l.kernel == "gemm") {
            ASSERT_NE(l.variant(64), nullptr);
            EXPECT_EQ(*l.variant(64), "items 4");
            ++forced;
        }
    EXPECT_GT(forced, 0);
    EXPECT_THAT(print(program), HasSubstr("[64 rows: items 4]"));
    options.forced = {{"gemm", "items 3"}};
    EXPECT_THAT([&] { run(); }, testing::ThrowsMessage<std::exception>(HasSubstr("items 1, items 2, items 4")));
    options.forced = {{"gemv", "items 2"}};
    EXPECT_THAT([&] { run(); }, testing::ThrowsMessage<std::exception>(HasSubstr("has no variants here")));
}

// A record can name what this build has not (edited by hand, say): it does not serve.
TEST_F(TunerTest, UnknownVariantsTuneAgain) {
    const tune::TuneReport first = run();
    std::string text;
    {
        std::ifstream in(first.file);
        text.assign(std::istreambuf_iterator<char>(in), {});
    }
    const std::size_t at = text.find("items 2");
    ASSERT_NE(at, std::string::npos);
    std::ofstream(first.file) << text.replace(at, 7, "items 9");
    EXPECT_THAT(run().why, HasSubstr("no variant 'items 9'"));
}

TEST_F(TunerTest, LogsEveryTiming) {
    CapturedLog log;
    run();
    const std::string text = log.text();
    EXPECT_THAT(text, HasSubstr("[tune] gemm 96x96 q4/32 f16 z8"));
    EXPECT_THAT(text, HasSubstr(", 64 rows: items 1 1.000 ms, items 2 0.400 ms, items 4 0.900 ms -> items 2"));
}

// Every variant of the CPU has the default's bits.
TEST_F(TunerTest, VariantsOfTheCpuHaveTheSameBits) {
    for (const bool many : {false, true})
        for (const tune::Site& site : tune::sites(model.on(*cpu), many)) {
            const tune::Subject subject = model.on(*cpu);
            const tune::Part part = tune::part_of(subject.plan(many), site.units.front());
            const int rows = many ? subject.many_rows : subject.few_rows;
            const tune::LoweredPart lowered = tune::lower_part(*cpu, subject, subject.weights, part, rows, 2);
            const auto cache = tune::make_cache(*cpu, part, subject);
            std::vector<float> first;
            for (const std::string& name : site.buckets[0].names) {
                tune::LoweredPart own = lowered;
                own.choose(site.name, {site.buckets[0].rows, name}, subject.weights);
                tune::Probe probe(*cpu, subject, part, own, subject.weights, cache);
                const tune::Case c = tune::make_case(part, subject, rows, 2, 3);
                tune::fill_cache(*cache, part, subject, c);
                const std::vector<float> values = probe.run(c).values;
                if (first.empty()) first = values;
                EXPECT_EQ(values, first) << site.name << ": " << name;
            }
        }
}

TEST(CheckKernels, EveryKernelOfEveryFamily) {
    for (const char* name : {"models/qwen3-tied", "models/gemma3-new", "models-mixed/qwen3.5-moe", "models-mixed/gemma4-experts"}) {
        const TinySubject model(name, WeightLayout::tiles);
        const auto cpu = make_cpu_backend(model.pool());
        const std::vector<tune::Check> checks = tune::check_kernels(model.on(*cpu), {}, true);
        EXPECT_GT(checks.size(), 10u);
        for (const tune::Check& c : checks) EXPECT_TRUE(c.ok()) << name << ": " << c.kernel << " " << c.shape << ": " << c.error << c.worst.text();
    }
}

// A kernel that serves long contexts only, as those of GPUs that cut them into parts.
TEST(CheckKernels, LongContextsToo) {
    const TinySubject model("models/qwen3-tied", WeightLayout::tiles);
    const auto cpu = make_cpu_backend(model.pool());
    int border = 0;
    const Fault far{"far", {}, [&](Executable& e, const Program&, const Launch& l, const StepRows& step) {
                        const auto width = static_cast<std::int64_t>(l.number("n_heads") * l.number("head_dim"));
                        change_elements(e, l.operand("y"), step.m, width, [&](int r, std::int64_t, float v) { return step.positions[r] > border ? v + 1 : v; });
                    }};
    const auto faulty = faulty_backend(*cpu, "attention_combine", {far});
    for (const auto& [capacity, from, seen] : {std::tuple{512, 1000, false}, {4096, 1000, true}, {8192, 8200, false}, {10000, 8200, true}}) {
        border = from;
        tune::Subject subject = model.on(*faulty, 8, 0);
        subject.capacity = capacity;
        std::vector<tune::Choice> choices;
        for (const tune::Site& s : tune::sites(subject, false)) choices.push_back({s.name, 8, "far", 0, false});
        ASSERT_FALSE(choices.empty());
        int failed = 0;
        for (const tune::Check& c : tune::check_kernels(subject, choices, true)) {
            EXPECT_TRUE(c.error.empty()) << c.error;
            failed += !c.ok();
        }
        EXPECT_EQ(failed > 0, seen) << capacity;
    }
}

TEST(CheckKernels, NamesWhatIsWrong) {
    const TinySubject model("models/qwen3-tied", WeightLayout::tiles);
    const auto cpu = make_cpu_backend(model.pool());
    const Fault wrong{"wrong", {}, [&](Executable& e, const Program&, const Launch& l, const StepRows& step) {
                          if (l.number("f32_out") == 0)
                              change_elements(e, l.operand("y"), step.m, model.model().weights[static_cast<std::size_t>(l.operand("weight").buffer.index)].rows,
                                              [](int r, std::int64_t c, float v) { return r == 2 && c == 3 ? v + 1 : v; });
                      }};
    const auto faulty = faulty_backend(*cpu, "gemm", {wrong});
    const tune::Subject subject = model.on(*faulty);
    std::vector<tune::Choice> choices;
    for (const tune::Site& s : tune::sites(subject, true)) choices.push_back({s.name, 64, "wrong", 0, false});
    int failed = 0;
    for (const tune::Check& c : tune::check_kernels(subject, choices, true))
        if (!c.ok()) {
            ++failed;
            EXPECT_THAT(c.kernel, HasSubstr("gemm"));
            EXPECT_EQ(c.variant, "wrong");
            EXPECT_GT(c.worst.max_error, c.worst.max_bound());
        }
    EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace forge::test
