#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "transport/hub_choose.h"
#include "transport/hub_reference.h"

namespace forge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(HubReference, Forms) {
    const auto check = [](const char* text, const char* repo, const char* revision, const char* select) {
        const HubReference r = parse_hub_reference(text);
        EXPECT_EQ(r.repo, repo) << text;
        EXPECT_EQ(r.revision, revision) << text;
        EXPECT_EQ(r.select, select) << text;
        EXPECT_EQ(parse_hub_reference(r.text()).text(), r.text());
    };
    check("hf:org/name", "org/name", "main", "");
    check("hf:gpt2", "gpt2", "main", "");
    check("hf:org/name@v1.0", "org/name", "v1.0", "");
    check("hf:org/name@refs/pr/12", "org/name", "refs/pr/12", "");
    check("hf:org/name:Q4_K_M", "org/name", "main", "Q4_K_M");
    check("hf:org/name@v1:Q4_K_M", "org/name", "v1", "Q4_K_M");
    check("hf:org/name:Q4_K_M@v1", "org/name", "v1", "Q4_K_M");
    check("hf:org/na.me_-x:UD/model.gguf", "org/na.me_-x", "main", "UD/model.gguf");
}

TEST(HubReference, RefusesWhatIsNone) {
    for (const char* text : {"hf:", "hf:/name", "hf:org/", "hf:org/a/b", "hf:../name", "hf:org/..", "hf:org/a..b", "hf:org/a--b", "hf:org/name@", "hf:org/name:", "hf:o/n@a@b",
                             "hf:o/n:a:b", "hf:o/n@../../x", "hf:o/n@/x", "hf:o/n@a//b", "hf:o/n@a/.b", "hf:o/n@a b", "hf:o/n@-x", "hf:o n/x", "org/name"})
        EXPECT_THROW(parse_hub_reference(text), Error) << text;
}

TEST(Choose, Folder) {
    const std::vector<std::string> names{"README.md", "config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "consolidated.safetensors",
                                         "onnx/model.safetensors", "pytorch_model.bin", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "LICENSE", "original/params.json"};
    EXPECT_TRUE(has_folder_model(names));
    EXPECT_THAT(choose_safetensors(names), ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
    EXPECT_TRUE(is_companion("tokenizer_config.json"));
    EXPECT_TRUE(is_companion("LICENSE.txt"));
    EXPECT_FALSE(is_companion("README.md"));
    EXPECT_FALSE(is_companion("original/config.json"));
    EXPECT_FALSE(is_companion("pytorch_model.bin"));
    EXPECT_THAT(choose_safetensors({"model.safetensors", "model-extra.safetensors"}), ElementsAre("model.safetensors"));
    EXPECT_FALSE(has_folder_model({"config.json", "a.gguf"}));
}

TEST(Choose, IndexNamesFiles) {
    EXPECT_THAT(files_of_index(R"({"weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}})", "index"), ElementsAre("1.safetensors", "2.safetensors"));
    EXPECT_THROW(files_of_index(R"({"weight_map": {"a": "../../etc/passwd"}})", "index"), Error);
    EXPECT_THROW(files_of_index(R"({"weight_map": {"a": 1}})", "index"), Error);
    EXPECT_THROW(files_of_index("{}", "index"), Error);
    EXPECT_THROW(files_of_index("nonsense", "index"), Error);
}

const std::vector<std::string> kQuantised{"M-BF16-00001-of-00002.gguf", "M-BF16-00002-of-00002.gguf", "M-Q4_0.gguf", "M-Q4_K_M.gguf", "UD/M-UD-Q4_K_M.gguf", "mmproj-F16.gguf", "imatrix.gguf", "README.md"};

TEST(Choose, GgufByWhatItsNameEndsWith) {
    EXPECT_THAT(choose_gguf(kQuantised, {"o/n", "main", "q4_0"}), ElementsAre("M-Q4_0.gguf"));
    EXPECT_THAT(choose_gguf(kQuantised, {"o/n", "main", "BF16"}), ElementsAre("M-BF16-00001-of-00002.gguf", "M-BF16-00002-of-00002.gguf"));
    EXPECT_THAT(choose_gguf(kQuantised, {"o/n", "main", "UD-Q4_K_M"}), ElementsAre("UD/M-UD-Q4_K_M.gguf"));
    EXPECT_THAT(choose_gguf(kQuantised, {"o/n", "main", "UD"}), ElementsAre("UD/M-UD-Q4_K_M.gguf"));
    EXPECT_THAT(choose_gguf(kQuantised, {"o/n", "main", "M-Q4_K_M.gguf"}), ElementsAre("M-Q4_K_M.gguf"));
    EXPECT_THAT(choose_gguf(kQuantised, {"o/n", "main", "mmproj-F16.gguf"}), ElementsAre("mmproj-F16.gguf"));
    EXPECT_THAT(choose_gguf({"only.gguf"}, {"o/n", "main", ""}), ElementsAre("only.gguf"));
}

TEST(Choose, GgufRefusalsListTheChoices) {
    EXPECT_THAT([] { choose_gguf(kQuantised, {"o/n", "main", ""}); }, ThrowsMessage<Error>(testing::AllOf(HasSubstr("several"), HasSubstr("M-Q4_0"))));
    EXPECT_THAT([] { choose_gguf(kQuantised, {"o/n", "main", "Q4_K_M"}); }, ThrowsMessage<Error>(HasSubstr("M-UD-Q4_K_M")));
    EXPECT_THAT([] { choose_gguf(kQuantised, {"o/n", "main", "4_0"}); }, ThrowsMessage<Error>(HasSubstr("ends with 4_0")));
    EXPECT_THAT([] { choose_gguf({"README.md"}, {"o/n", "main", ""}); }, ThrowsMessage<Error>(HasSubstr("neither")));
}

TEST(Choose, PartsOfAModel) {
    EXPECT_EQ(missing_gguf_part({"a.gguf"}), "");
    EXPECT_EQ(missing_gguf_part({"a-00001-of-00003.gguf", "a-00003-of-00003.gguf"}), "a-00002-of-00003.gguf");
    EXPECT_EQ(missing_gguf_part({"a-00001-of-00001.gguf"}), "");
    EXPECT_EQ(missing_gguf_part({}), "a GGUF file");
}

TEST(Choose, PathsStayInside) {
    for (const char* path : {"a", "a/b.c", "...", "a/.b"}) EXPECT_TRUE(is_safe_repo_path(path)) << path;
    for (const char* path : {"", "/a", "a/", "../a", "a/../b", ".", "a//b", "a\\b", "a\nb", "a/."}) EXPECT_FALSE(is_safe_repo_path(path)) << path;
    EXPECT_FALSE(is_safe_repo_path(std::string_view("a\0b", 3)));
}

TEST(Choose, Globs) {
    EXPECT_TRUE(matches_glob("*.json", "a/b.json"));
    EXPECT_TRUE(matches_glob("a*b*c", "aXbYbZc"));
    EXPECT_TRUE(matches_glob("a?c", "abc"));
    EXPECT_TRUE(matches_glob("*", ""));
    EXPECT_FALSE(matches_glob("a?c", "ac"));
    EXPECT_FALSE(matches_glob("*.json", "b.jsonl"));
    EXPECT_FALSE(matches_glob("", "a"));
    EXPECT_FALSE(matches_glob(std::string(60, '*') + "b", std::string(5000, 'a')));  // and in no time
}

}  // namespace
}  // namespace forge
