#include "tune/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "fixture.h"

namespace forge::tune {
namespace {

using testing::HasSubstr;

class RecordTest : public testing::Test {
  protected:
    RecordTest() {
        std::string name = (std::filesystem::temp_directory_path() / "forge-tune-XXXXXX").string();
        folder = mkdtemp(name.data());
        record.key = {"GPU", "driver 5", "1.2.3", "0123456789abcdef", "bf16"};
        record.choices = {{"matvec 3x4 q4 | bf16", 1, "strip 2", 1.5e-3, true}, {"gemm 3x4 q4 | bf16", 512, "tile \"64\"", 2e-3, false}};
        record.sentinel = {"gemm 3x4 q4 | bf16", 512, 2e-3};
    }
    ~RecordTest() override { std::filesystem::remove_all(folder); }
    std::filesystem::path folder;
    Record record;
    std::string why;
};

TEST_F(RecordTest, ComesBackAsItWas) {
    save_record(folder / "new", record);
    const auto found = load_record(folder / "new", record.key, &why);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->key, record.key);
    EXPECT_EQ(found->choices, record.choices);
    EXPECT_EQ(found->sentinel.site, record.sentinel.site);
    EXPECT_EQ(found->sentinel.seconds, record.sentinel.seconds);
    EXPECT_FALSE(found->full);
    // Beside it nothing is left.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "new"), {}), 1);
}

TEST_F(RecordTest, AnotherDriverVersionOrShapeIsAnotherRecord) {
    EXPECT_FALSE(load_record(folder, record.key, &why));
    EXPECT_THAT(why, HasSubstr("nothing was tuned"));
    save_record(folder, record);
    RecordKey key = record.key;
    key.driver = "driver 6";
    EXPECT_FALSE(load_record(folder, key, &why));
    EXPECT_EQ(why, "the driver was 'driver 5' and is 'driver 6'");
    key = record.key;
    key.version = "1.2.4";
    EXPECT_FALSE(load_record(folder, key, &why));
    EXPECT_THAT(why, HasSubstr("version of Forge was '1.2.3'"));
    for (std::string RecordKey::*field : {&RecordKey::shape, &RecordKey::device, &RecordKey::dtype}) {
        key = record.key;
        key.*field = "other";
        EXPECT_FALSE(load_record(folder, key, &why));
        EXPECT_THAT(why, HasSubstr("nothing was tuned"));
    }
    EXPECT_TRUE(load_record(folder, record.key, &why));
}

TEST_F(RecordTest, DamagedOnesAreIgnoredWithAWarning) {
    save_record(folder, record);
    const std::filesystem::path path = record_path(folder, record.key);
    std::string whole;
    {
        std::ifstream in(path);
        whole.assign(std::istreambuf_iterator<char>(in), {});
    }
    const std::string damaged[] = {"", "{", whole.substr(0, whole.size() / 2), "[1, 2]", "null", "{\"device\": 3}", std::string(200000, '['), std::string("\0\1\2", 3)};
    for (const std::string& text : damaged) {
        std::ofstream(path) << text;
        test::CapturedLog log;
        EXPECT_FALSE(load_record(folder, record.key, &why));
        EXPECT_EQ(why, "its record was damaged");
        const std::string said = log.text();
        EXPECT_THAT(said, HasSubstr("warning: ")) << text.substr(0, 20);
        EXPECT_THAT(said, HasSubstr(path.string()));
    }
}

TEST_F(RecordTest, AFolderThatCannotBeWrittenIsAWarning) {
    std::ofstream(folder / "file") << "no folder";
    test::CapturedLog log;
    save_record(folder / "file", record);
    EXPECT_THAT(log.text(), HasSubstr("is not kept"));
}

}  // namespace
}  // namespace forge::tune
