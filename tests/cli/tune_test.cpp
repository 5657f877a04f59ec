// forge tune, forge doctor and --tune.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "run_forge.h"

namespace forge::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const char* const kModel = "gguf-llama-q4_0/model.gguf";

// A home of its own for each test, so that nothing was tuned before.
class TuneCommand : public testing::Test {
  protected:
    TuneCommand() : home(std::filesystem::path(write_temporary("tune/" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + "/home", "")).parent_path()) {}
    Finished run(std::vector<std::string> arguments, const std::string& tune = "") const {
        RunOptions options;
        options.environment = {"FORGE_HOME=" + home.string(), "FORGE_TUNE=" + tune};
        return run_forge(arguments, options);
    }
    std::vector<std::filesystem::path> records() const {
        std::vector<std::filesystem::path> found;
        std::error_code none;
        for (const auto& entry : std::filesystem::directory_iterator(home / "cache" / "tuning", none)) found.push_back(entry.path());
        return found;
    }
    std::filesystem::path home;
};

// Took what an earlier start kept; or a machine that is busy now took twice as long for the sentinel, which tunes again (with
// given times this is tested exactly, in tests/tune).
testing::Matcher<std::string> reused() { return testing::AnyOf(AllOf(HasSubstr("choices from"), Not(HasSubstr("kernels are timed"))), HasSubstr(" ms and takes ")); }

std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> all;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
}

TEST_F(TuneCommand, DoctorListsEveryKernelWithItsCheck) {
    const auto r = run({"doctor", tiny_model(kModel), "--tune", "off"});
    ASSERT_EQ(r.status, 0) << r.err;
    const std::vector<std::string> table = lines(r.out);
    ASSERT_GT(table.size(), 15u);
    for (const char* kernel : {"embed", "matvec", "qk_prepare", "attention_decode", "gemm", "attention_prefill"}) EXPECT_THAT(r.out, HasSubstr(kernel));
    EXPECT_THAT(table.back(), HasSubstr("kernels, all as the plain ones"));
    // Columns line up: the last one begins at the same place in every line.
    const std::size_t at = table[0].rfind("check");
    ASSERT_NE(at, std::string::npos);
    for (std::size_t i = 1; i + 1 < table.size(); ++i) {
        EXPECT_EQ(table[i].substr(at), "ok") << table[i];
        EXPECT_EQ(table[i][at - 1], ' ');
    }
    EXPECT_TRUE(records().empty());
}

TEST_F(TuneCommand, DoctorChecksTheForcedVariant) {
    const auto r = run({"doctor", tiny_model(kModel), "--tune", "off", "--tune", "gemm=items 4", "-o", "csv"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("items 4,"));
    EXPECT_THAT(r.out, Not(HasSubstr("items 1,96x96")));
}

TEST_F(TuneCommand, TunePrintsWhatItMeasuredAndKeepsIt) {
    const auto r = run({"tune", tiny_model(kModel)});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, AllOf(HasSubstr("vs default"), HasSubstr("picked"), HasSubstr("items 2"), HasSubstr("kept in " + home.string())));
    EXPECT_EQ(records().size(), 1u);
}

TEST_F(TuneCommand, SecondStartUsesTheFirstOnesRecord) {
    const std::vector<std::string> bench{"bench", tiny_model(kModel), "-p", "8", "-n", "2", "-r", "1", "--no-limits", "-v"};
    const auto first = run(bench);   // fast is the CPU's default
    ASSERT_EQ(first.status, 0) << first.err;
    EXPECT_THAT(first.err, AllOf(HasSubstr("kernels are timed: nothing was tuned yet"), HasSubstr(" ms -> ")));
    ASSERT_EQ(records().size(), 1u);
    const auto second = run(bench);
    EXPECT_THAT(second.err, reused());
    EXPECT_EQ(records().size(), 1u);
    std::ofstream(records()[0]) << "not JSON";
    const auto third = run(bench);
    EXPECT_EQ(third.status, 0);
    EXPECT_THAT(third.err, AllOf(HasSubstr("warning: " + records()[0].string()), HasSubstr("its record was damaged")));
    EXPECT_THAT(run(bench).err, reused());
}

TEST_F(TuneCommand, OffTimesAndKeepsNothing) {
    const std::vector<std::string> bench{"bench", tiny_model(kModel), "-p", "8", "-n", "2", "-r", "1", "--no-limits", "--tune", "off", "-v"};
    const auto off = run(bench);
    EXPECT_EQ(off.status, 0);
    EXPECT_THAT(off.err, Not(HasSubstr("[tune]")));
    EXPECT_TRUE(records().empty());
}

TEST_F(TuneCommand, MistakesAreNamed) {
    EXPECT_THAT(run({"doctor", tiny_model(kModel), "--tune", "never"}).err, HasSubstr("--tune should be off, fast, full, auto or KERNEL=VARIANT"));
    const auto r = run({"doctor", tiny_model(kModel), "--tune", "gemm=tile 7x7"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("gemm has: items 1, items 2, items 4"));
    EXPECT_EQ(run({"doctor"}).status, 2);
    EXPECT_EQ(run({"tune", tiny_model(kModel), "-o", "xml"}).status, 2);
    EXPECT_EQ(run({"doctor", "/no/such/model"}).status, 1);
}

}  // namespace
}  // namespace forge::test
