#include "table.h"

#include <gtest/gtest.h>

namespace forge::cli {
namespace {

Table example() {
    Table table({{"name"}, {"size", Table::Align::right}});
    table.add({"größe", "1"});
    table.add({"a,\"b\"", "1234567"});
    return table;
}

TEST(Table, Text) {
    EXPECT_EQ(example().text(),
              "name      size\n"
              "größe        1\n"
              "a,\"b\"  1234567\n");
}

TEST(Table, Markdown) {
    EXPECT_EQ(example().markdown(),
              "| name  |    size |\n"
              "| ----- | ------: |\n"
              "| größe |       1 |\n"
              "| a,\"b\" | 1234567 |\n");
}

TEST(Table, Csv) { EXPECT_EQ(example().csv(), "name,size\ngröße,1\n\"a,\"\"b\"\"\",1234567\n"); }

TEST(Table, Counts) {
    EXPECT_EQ(format_count(999), "999");
    EXPECT_EQ(format_count(134515008), "134.5 M");
    EXPECT_EQ(format_count(7.62e9), "7.62 B");
}

}  // namespace
}  // namespace forge::cli
