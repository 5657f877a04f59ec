#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tune/tuner.h"

namespace forge::tune {
namespace {

TimedVariant variant(std::string name, double milliseconds, bool wrong = false) { return {std::move(name), milliseconds * 1e-3, wrong, false, "", {}}; }

std::string picked(std::vector<TimedVariant> variants) { return pick(variants); }

TEST(Pick, TheFastestThatIsRight) {
    EXPECT_EQ(picked({variant("a", 3), variant("b", 2), variant("c", 4)}), "b");
    EXPECT_EQ(picked({variant("a", 3), variant("b", 2), variant("c", 1, true)}), "b");
    EXPECT_EQ(picked({variant("a", 1, true), variant("b", 2), variant("c", 1.99)}), "c");
    EXPECT_EQ(picked({variant("a", 3), variant("b", 2), variant("c", 1.99)}), "c");
}

TEST(Pick, TheDefaultUnlessAnotherIsClearlyFaster) {
    EXPECT_EQ(picked({variant("a", 2), variant("b", 1.99)}), "a");
    EXPECT_EQ(picked({variant("a", 2), variant("b", 1.9)}), "b");
    TimedVariant unsure = variant("b", 1.5);
    unsure.unsure = true;
    EXPECT_EQ(picked({variant("a", 2), unsure, variant("c", 1.8)}), "c");
    EXPECT_EQ(picked({variant("a", 2, true), unsure}), "b");
}

TEST(Pick, NoneWhereAllAreWrongOrDoNotRun) {
    EXPECT_EQ(picked({variant("a", 2, true), variant("b", 0)}), "");
    EXPECT_EQ(picked({}), "");
}

TEST(TuneOption, ModesAndForcedVariants) {
    EXPECT_EQ(parse_tune("off").mode, Mode::off);
    const TuneOptions o = parse_tune("full;matvec=strip 2, 4 in flight, 256 threads;gemm=tile 64x64");
    EXPECT_EQ(o.mode, Mode::full);
    ASSERT_EQ(o.forced.size(), 2u);
    EXPECT_EQ(o.forced[0].kernel, "matvec");
    EXPECT_EQ(o.forced[0].variant, "strip 2, 4 in flight, 256 threads");
    EXPECT_EQ(parse_tune("gemm=x").mode, Mode::fast);
    EXPECT_EQ(parse_tune("auto;gemm=x").mode, Mode::unasked);
    for (const char* wrong : {"", "slow", "=x", "gemm=", "off;"}) EXPECT_ANY_THROW(parse_tune(wrong)) << wrong;
}

TEST(Compare, WhatWasNotComparedIsNotRight) {
    const std::vector<float> some{1, 2}, unasked{NAN, NAN};
    EXPECT_FALSE(Difference{}.ok());
    EXPECT_FALSE(compare({}, {}, DType::f32, 1).ok());
    EXPECT_FALSE(compare(some, unasked, DType::f32, 1).ok());
    EXPECT_EQ(compare(some, unasked, DType::f32, 1).text(), "nothing was compared");
    EXPECT_TRUE(compare(some, std::vector<float>{NAN, 2}, DType::f32, 1).ok());
    EXPECT_FALSE(worse(compare(some, some, DType::f32, 1), Difference{}).ok());
}

TEST(CheckedRows, TheFullestAndRaggedOnes) {
    EXPECT_EQ(checked_rows(1, 1), (std::vector<int>{1}));
    EXPECT_EQ(checked_rows(1, 8), (std::vector<int>{8, 5, 3, 1}));
    EXPECT_EQ(checked_rows(9, 512), (std::vector<int>{512, 33, 9}));
    EXPECT_EQ(checked_rows(65, 128), (std::vector<int>{128, 65}));
}

}  // namespace
}  // namespace forge::tune
