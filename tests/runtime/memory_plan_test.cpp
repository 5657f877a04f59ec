#include "runtime/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace forge {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t GiB = std::uint64_t{1} << 30;

// What is said on standard error; the message of the error when there is one.
std::string said(const MemoryPlan& plan, const MachineMemory& memory) {
    testing::internal::CaptureStderr();
    std::string error;
    try {
        check_fit("m.gguf", plan, memory);
    } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::out_of_memory);
        error = e.what();
    }
    const std::string warnings = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(error.empty() || warnings.empty());
    return error.empty() ? warnings : error;
}

TEST(MemoryPlan, NothingIsSaidOfWhatFits) {
    EXPECT_THAT(said({{0, 4 * GiB}, GiB, 1, 4096}, {16 * GiB, 8 * GiB}), IsEmpty());
    EXPECT_THAT(said({{6 * GiB, GiB}, GiB, 1, 4096}, {16 * GiB, 8 * GiB}), IsEmpty());   // to the last byte
    EXPECT_THAT(said({{0, 400 * GiB}, GiB, 1, 4096}, {}), IsEmpty());                    // unknown memory
}

TEST(MemoryPlan, WhatCannotFitIsRefusedWithTheFigures) {
    EXPECT_THAT(said({{0, 20 * GiB}, GiB, 1, 4096}, {16 * GiB, 8 * GiB}),
                AllOf(HasSubstr("its weights take 20.0 GiB"), HasSubstr("this machine has 16.0 GiB"), HasSubstr("forge pack")));
    EXPECT_THAT(said({{0, 10 * GiB}, 8 * GiB, 2, 4096}, {16 * GiB, 8 * GiB}),
                AllOf(HasSubstr("18.0 GiB"), HasSubstr("10.0 GiB of weights and 8.00 GiB of cache for 2 sequences of 4096 positions"), HasSubstr("--ctx")));
}

TEST(MemoryPlan, WhatIsTightIsWarnedOfWithTheFigures) {
    EXPECT_THAT(said({{0, 8 * GiB}, GiB, 1, 4096}, {16 * GiB, 8 * GiB}), AllOf(HasSubstr("9.00 GiB"), HasSubstr("only 8.00 GiB of 16.0 GiB are free")));
    // Mapped weights are never refused, however large.
    EXPECT_THAT(said({{200 * GiB, 0}, GiB, 1, 4096}, {16 * GiB, 8 * GiB}), AllOf(HasSubstr("200 GiB of weights stay in the file"), HasSubstr("only 7.00 GiB are free")));
}

}  // namespace
}  // namespace forge
