#include "transport/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"

namespace forge {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kCommit(40, 'a');

class HubCacheTest : public testing::Test {
  protected:
    HubCacheTest() : cache_(root()) {}
    ~HubCacheTest() override {
        std::error_code ignored;
        fs::remove_all(cache_.root(), ignored);
    }
    static fs::path root() {
        std::string name = (fs::temp_directory_path() / "forge-hub-XXXXXX").string();
        if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
        return name;
    }
    void add(const std::string& path, const std::string& content) {
        const std::string blob = "blob-of-" + std::to_string(std::hash<std::string>()(path));
        fs::create_directories(cache_.blob("o/n", blob).parent_path());
        std::ofstream(cache_.blob("o/n", blob)) << content;
        cache_.link("o/n", kCommit, path, blob);
    }
    HubCache cache_;
};

TEST_F(HubCacheTest, LayoutOfOtherTools) {
    add("sub/folder/x.json", "{}");
    const fs::path place = cache_.root() / "models--o--n" / "snapshots" / kCommit / "sub/folder/x.json";
    EXPECT_TRUE(fs::is_symlink(place));
    EXPECT_THAT(fs::read_symlink(place).string(), testing::StartsWith("../../../../blobs/"));
    cache_.write_ref("o/n", "refs/pr/1", kCommit);
    EXPECT_TRUE(fs::is_regular_file(cache_.root() / "models--o--n/refs/refs/pr/1"));
    EXPECT_EQ(cache_.commit_of("o/n", "refs/pr/1"), kCommit);
    EXPECT_EQ(cache_.commit_of("o/n", kCommit), kCommit);
    EXPECT_EQ(cache_.commit_of("o/n", "main"), std::nullopt);
    cache_.write_ref("o/n", kCommit, kCommit);
    EXPECT_FALSE(fs::exists(cache_.root() / "models--o--n/refs" / kCommit));
}

TEST_F(HubCacheTest, FindsAFolderOnlyWhenItIsComplete) {
    const HubReference reference = parse_hub_reference("hf:o/n");
    EXPECT_THAT([&] { find_in_hub_cache(cache_, reference); }, ThrowsMessage<Error>(HasSubstr("forge pull hf:o/n")));
    cache_.write_ref("o/n", "main", kCommit);
    add("model.safetensors.index.json", R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
    add("1.safetensors", "x");
    add("config.json", "{}");
    EXPECT_THAT([&] { find_in_hub_cache(cache_, reference); }, ThrowsMessage<Error>(HasSubstr("without 2.safetensors")));
    add("2.safetensors", "y");
    EXPECT_EQ(find_in_hub_cache(cache_, reference), cache_.snapshot("o/n", kCommit));
    // A link whose blob was removed is not there.
    fs::remove(fs::canonical(cache_.snapshot("o/n", kCommit) / "1.safetensors"));
    EXPECT_THAT([&] { find_in_hub_cache(cache_, reference); }, ThrowsMessage<Error>(HasSubstr("without 1.safetensors")));
}

TEST_F(HubCacheTest, FindsGgufFiles) {
    cache_.write_ref("o/n", "main", kCommit);
    add("M-Q4_0.gguf", "x");
    EXPECT_EQ(find_in_hub_cache(cache_, parse_hub_reference("hf:o/n")).filename(), "M-Q4_0.gguf");
    add("M-Q8_0-00001-of-00002.gguf", "x");
    EXPECT_EQ(find_in_hub_cache(cache_, parse_hub_reference("hf:o/n:Q4_0")).filename(), "M-Q4_0.gguf");
    EXPECT_THAT([&] { find_in_hub_cache(cache_, parse_hub_reference("hf:o/n:Q8_0")); }, ThrowsMessage<Error>(HasSubstr("without M-Q8_0-00002-of-00002.gguf")));
    EXPECT_THAT([&] { find_in_hub_cache(cache_, parse_hub_reference("hf:o/n:Q5_0")); }, ThrowsMessage<Error>(HasSubstr("Q5_0")));
}

TEST_F(HubCacheTest, FoldersFromTheEnvironment) {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
    setenv("HOME", "/home/ada", 1);
    EXPECT_EQ(HubCache::from_environment().root(), "/home/ada/.cache/huggingface/hub");
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    EXPECT_EQ(HubCache::from_environment().root(), "/xdg/huggingface/hub");
    setenv("HF_HOME", "~/hf", 1);
    EXPECT_EQ(HubCache::from_environment().root(), "/home/ada/hf/hub");
    setenv("HF_HUB_CACHE", "/cache", 1);
    EXPECT_EQ(HubCache::from_environment().root(), "/cache");
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
}

}  // namespace
}  // namespace forge
