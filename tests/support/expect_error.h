// EXPECT_ERROR(statement, kind, "part of the sentence"): the statement throws a
// forge::Error of that kind whose message holds the text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.h"

#define EXPECT_ERROR(statement, wanted_kind, text)                                  \
    do {                                                                            \
        try {                                                                       \
            statement;                                                              \
            ADD_FAILURE() << #statement " was accepted; wanted: " << (text);        \
        } catch (const forge::Error& error) {                                       \
            EXPECT_EQ(error.kind(), forge::ErrorKind::wanted_kind) << error.what(); \
            EXPECT_THAT(std::string(error.what()), testing::HasSubstr(text));       \
        }                                                                           \
    } while (false)

namespace forge {

// A folder of its own for the running test, empty at the start and removed at the end.
class TestFolder {
  public:
    TestFolder() {
        const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
        path_ = std::filesystem::path(testing::TempDir()) /
                (std::string("forge-") + info->test_suite_name() + "-" + info->name());
        std::filesystem::remove_all(path_);
        std::filesystem::create_directories(path_);
    }
    ~TestFolder() { std::filesystem::remove_all(path_); }
    std::string operator/(const std::string& name) const { return (path_ / name).string(); }
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

}  // namespace forge
