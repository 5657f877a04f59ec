// Every component against the reference: tests/data/tokenizer holds small
// tokenizers with the ids that the reference implementation gives
// (tools/make_tokenizer_fixtures.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tokenizer/tokenizer.h"

namespace forge {
namespace {

using Ids = std::vector<std::int32_t>;

std::vector<std::string> fixture_names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(FORGE_TEST_DATA "/tokenizer"))
        if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    std::sort(names.begin(), names.end());
    return names;
}

class Fixture : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        std::ifstream in(std::string(FORGE_TEST_DATA "/tokenizer/") + GetParam() + ".json");
        data_ = nlohmann::json::parse(in);
        tokenizer_ = Tokenizer::from_json(data_["tokenizer"].dump(), "", GetParam());
    }
    nlohmann::json data_;
    std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_P(Fixture, matches_the_reference) {
    ASSERT_GE(data_["cases"].size(), 20u);
    for (const auto& c : data_["cases"]) {
        auto text = c["text"].get<std::string>();
        SCOPED_TRACE(c["text"].dump());
        EXPECT_EQ(tokenizer_->encode(text, {false, true}), c["ids"].get<Ids>());
        EXPECT_EQ(tokenizer_->encode(text, {false, false}), c["untrusted"].get<Ids>());
        EXPECT_EQ(tokenizer_->encode(text, {true, true}), c["added"].get<Ids>());
        EXPECT_EQ(tokenizer_->decode(c["ids"].get<Ids>()), c["decoded"].get<std::string>());
        EXPECT_EQ(tokenizer_->decode(c["ids"].get<Ids>(), true), c["decoded_skip"].get<std::string>());
    }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Fixture, ::testing::ValuesIn(fixture_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace forge
