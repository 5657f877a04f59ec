#include "api/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "run_forge.h"
#include "tiny_chat.h"

namespace forge {
namespace {

TEST(DefaultSampling, TakesWhatTheModelRecommends) {
    ModelFile file;
    EXPECT_EQ(default_sampling(file).top_k, SamplingOptions().top_k);
    file.generation_config = {{"temperature", 0.6}, {"top_k", 20}, {"top_p", 0.9}, {"repetition_penalty", 1.05}};
    auto o = default_sampling(file);
    EXPECT_FLOAT_EQ(o.temperature, 0.6f);
    EXPECT_EQ(o.top_k, 20);
    EXPECT_FLOAT_EQ(o.top_p, 0.9f);
    EXPECT_FLOAT_EQ(o.repetition_penalty, 1.05f);
    file.generation_config["do_sample"] = false;
    EXPECT_EQ(default_sampling(file).temperature, 0);
    ModelFile gguf;
    gguf.metadata.set("general.sampling.temp", 0.25);
    EXPECT_FLOAT_EQ(default_sampling(gguf).temperature, 0.25f);
    file.generation_config = {{"top_p", 7}};
    EXPECT_THROW(default_sampling(file), Error);
}

TEST(ModelText, PromptsFromTextAndMessages) {
    const auto text = ModelText::load(test::tiny_chat_model());
    EXPECT_TRUE(text->has_chat_template());
    const Prompt chat = text->chat_prompt({{{"role", "user"}, {"content", "Hi"}}});
    EXPECT_EQ(chat.text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(chat.ids[0], 1);
    EXPECT_TRUE(chat.chat);
    EXPECT_EQ(text->raw_prompt("Hi<|im_end|>").ids.back(), 2);
    EXPECT_THROW(text->raw_prompt(""), Error);
    EXPECT_THROW(text->chat_prompt(nlohmann::ordered_json::array()), Error);
    try {
        text->chat_prompt({{{"role", "tool"}, {"content", "x"}}});
        FAIL() << "the template's refusal was swallowed";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "no tools here");
    }
}

}  // namespace
}  // namespace forge
