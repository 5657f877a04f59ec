// Ranges of a download that lie beside its partial file: what of them is used again, and what is not.
#include "transport/range_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "../support/expect_error.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

class Ranges : public testing::Test {
  protected:
    void put(const std::string& name, std::size_t bytes) {
        fs::create_directories(path);
        std::ofstream(path / name, std::ios::binary) << std::string(bytes, 'x');
    }
    TestFolder folder;
    const fs::path path = folder.path() / "x.ranges";
    const RangeFolder ranges{path};
};

using Plan = std::vector<FileRange>;

TEST_F(Ranges, ANewFileIsCutIntoPieces) {
    EXPECT_EQ(ranges.plan(0, 25, 10), (Plan{{0, 10, 0}, {10, 20, 0}, {20, 25, 0}}));
    EXPECT_EQ(ranges.plan(7, 25, 10), (Plan{{7, 17, 0}, {17, 25, 0}}));
    EXPECT_EQ(ranges.plan(25, 25, 10), Plan{});
    EXPECT_EQ(ranges.plan(0, 0, 10), Plan{});
    EXPECT_FALSE(fs::exists(path));
}

TEST_F(Ranges, WhatArrivedIsNotFetchedAgain) {
    put("10-20", 10);  // whole
    put("30-40", 4);   // begun
    EXPECT_EQ(ranges.plan(0, 45, 10), (Plan{{0, 10, 0}, {10, 20, 10}, {20, 30, 0}, {30, 40, 4}, {40, 45, 0}}));
    // With another size of pieces, what lies between them is cut anew.
    EXPECT_EQ(ranges.plan(3, 45, 4), (Plan{{3, 7, 0}, {7, 10, 0}, {10, 20, 10}, {20, 24, 0}, {24, 28, 0}, {28, 30, 0}, {30, 40, 4}, {40, 44, 0}, {44, 45, 0}}));
}

TEST_F(Ranges, TheRangeAtTheFrontMayBeAppendedInPart) {
    put("0-10", 8);
    EXPECT_EQ(ranges.plan(5, 20, 10), (Plan{{0, 10, 8}, {10, 20, 0}}));
    EXPECT_EQ(ranges.plan(8, 20, 10), (Plan{{0, 10, 8}, {10, 20, 0}}));
    // Somebody else went further with the file: the range has nothing to give.
    EXPECT_EQ(ranges.plan(9, 20, 10), (Plan{{9, 19, 0}, {19, 20, 0}}));
    EXPECT_FALSE(fs::exists(path / "0-10"));
    put("0-10", 10);
    EXPECT_EQ(ranges.plan(10, 20, 10), (Plan{{10, 20, 0}}));
    EXPECT_FALSE(fs::exists(path / "0-10"));
}

TEST_F(Ranges, WhatDoesNotFitIsRemoved) {
    put("0-10", 10);
    put("5-15", 10);     // overlaps
    put("20-30", 11);    // longer than itself
    put("30-50", 3);     // beyond the file
    put("30-40", 0);     // nothing in it
    for (const char* name : {"10", "-", "x-y", "10-", "20-10", "+1-2", "01-5", "7-18446744073709551616"}) put(name, 3);
    fs::create_directories(path / "12-14");
    EXPECT_EQ(ranges.plan(0, 40, 20), (Plan{{0, 10, 10}, {10, 30, 0}, {30, 40, 0}}));
    std::vector<std::string> left;
    for (const auto& entry : fs::directory_iterator(path)) left.push_back(entry.path().filename());
    EXPECT_EQ(left, std::vector<std::string>{"0-10"});
}

TEST_F(Ranges, AlwaysCoverTheRestWithoutGapOrOverlap) {
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        ranges.remove();
        for (int i = 0; i < 6; ++i) {
            const unsigned first = random() % 100, length = 1 + random() % 30;
            put(std::to_string(first) + "-" + std::to_string(first + length), random() % (length + 1));
        }
        const std::uint64_t size = random() % 110, front = size == 0 ? 0 : random() % (size + 1);
        const Plan plan = ranges.plan(front, size, 1 + random() % 20);
        std::uint64_t at = front;
        for (std::size_t i = 0; i < plan.size(); ++i) {
            EXPECT_LE(plan[i].first, at);
            if (i > 0) { EXPECT_EQ(plan[i].first, at); }
            EXPECT_GT(plan[i].end, at);
            EXPECT_LE(plan[i].have, plan[i].end - plan[i].first);
            if (i == 0) { EXPECT_GE(plan[i].first + plan[i].have, front); }
            at = plan[i].end;
        }
        EXPECT_EQ(at, size);
        EXPECT_EQ(ranges.plan(front, size, 7).empty(), front == size);
    }
}

TEST_F(Ranges, FilesAreReadWhereTheyWereWritten) {
    ranges.create();
    const FileRange range{10, 20, 0};
    const std::string text = "abcdef";
    {
        RangeFile file(ranges.file(range));
        file.write(0, std::as_bytes(std::span(text)).first(4));
        file.write(4, std::as_bytes(std::span(text)).subspan(4));
    }
    EXPECT_EQ(ranges.plan(10, 20, 10), (Plan{{10, 20, 6}}));
    RangeFile again(ranges.file(range));
    std::string part(3, ' ');
    again.read(2, std::as_writable_bytes(std::span(part)));
    EXPECT_EQ(part, "cde");
    EXPECT_ERROR(again.read(4, std::as_writable_bytes(std::span(part))), io, "the file ends");
    ranges.remove(range);
    EXPECT_EQ(ranges.plan(10, 20, 10), (Plan{{10, 20, 0}}));
}

}  // namespace
}  // namespace forge
