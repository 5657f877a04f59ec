// Reference vectors: texts and ids of two real vocabularies. They are not part
// of the repository; the tests skip without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "formats/model_file.h"
#include "tokenizer/tokenizer.h"

namespace forge {
namespace {

std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
}

// Texts between separator lines; nothing follows the last separator.
std::vector<std::string> texts_of(const std::string& content) {
    const std::string separator = "\n__ggml_vocab_test__\n";
    std::vector<std::string> out;
    std::size_t from = 0;
    for (std::size_t at; (at = content.find(separator, from)) != std::string::npos;
         from = at + separator.size())
        out.push_back(content.substr(from, at - from));
    return out;
}

class Vectors : public ::testing::TestWithParam<const char*> {};

TEST_P(Vectors, ids) {
    std::string base = std::string(FORGE_SHARED_DATA) + "/data/vocab/ggml-vocab-" + GetParam() + ".gguf";
    if (!std::filesystem::exists(base)) GTEST_SKIP() << base << " is not there";
    auto tokenizer = Tokenizer::from_gguf(open_gguf(base)->metadata);
    std::vector<std::string> texts = texts_of(read(base + ".inp"));
    ASSERT_GT(texts.size(), 40u);
    std::istringstream lines(read(base + ".out"));
    std::size_t i = 0;
    for (std::string line; std::getline(lines, line); ++i) {
        ASSERT_LT(i, texts.size());
        std::istringstream numbers(line);
        std::vector<std::int32_t> wanted;
        for (std::int32_t id; numbers >> id;) wanted.push_back(id);
        EXPECT_EQ(tokenizer->encode(texts[i], {false, true}), wanted) << "text " << i << ": " << texts[i];
        EXPECT_EQ(tokenizer->decode(wanted), texts[i]);
    }
    EXPECT_EQ(i, texts.size());
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Vectors, ::testing::Values("gpt-2", "llama-spm"), [](const auto& info) {
    std::string name = info.param;
    for (char& c : name)
        if (c == '-') c = '_';
    return name;
});

}  // namespace
}  // namespace forge
