#include "base/paths.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/metadata.h"

namespace forge {
namespace {

TEST(Paths, AtomicWriteReplacesAndMaps) {
    const auto folder = std::filesystem::temp_directory_path() / "forge_paths_test";
    std::filesystem::create_directories(folder);
    write_file_atomically(folder / "a", "one");
    write_file_atomically(folder / "a", "three");
    EXPECT_EQ(read_file(folder / "a"), "three");
    EXPECT_EQ(MappedFile::open((folder / "a").string())->bytes().size(), 5u);
    int files = 0;
    for ([[maybe_unused]] auto& entry : std::filesystem::directory_iterator(folder)) ++files;
    EXPECT_EQ(files, 1);
    EXPECT_THROW(write_file_atomically(folder / "no" / "b", "x"), Error);
    std::filesystem::remove_all(folder);
}

TEST(Metadata, ErrorsNameKeyAndTypes) {
    Metadata meta;
    meta.source = "m.gguf";
    meta.set("a", std::string("x"));
    meta.set("n", std::uint64_t{7});
    EXPECT_EQ(meta.integer("n"), 7);
    EXPECT_EQ(meta.integers("n", 3, 0), (std::vector<std::int64_t>{7, 7, 7}));
    try {
        meta.integer("a");
        FAIL();
    } catch (const Error& e) {
        EXPECT_STREQ(e.what(), "m.gguf: metadata key 'a' should be an integer, but it is a string");
    }
    EXPECT_THROW(meta.integer("missing"), Error);
}

}  // namespace
}  // namespace forge
