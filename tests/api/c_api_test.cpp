#include <forge/forge.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tiny_chat.h"

// The header is used as a program outside would, against the shared library. forge.hpp is compiled and
// run by the examples; here its functions are the C ones.
namespace {

using testing::HasSubstr;

forge_model* load(const char* dtype = "f32", int sessions = 1) {
    forge_load_options options;
    forge_load_options_init(&options);
    options.dtype = dtype;
    options.threads = 1;
    options.context = 100;
    options.sessions = sessions;
    return forge_model_load(forge::test::tiny_chat_model().c_str(), &options);
}

int append(void* user, forge_piece, const char* text, size_t length) {
    static_cast<std::string*>(user)->append(text, length);
    return 0;
}

forge_generate_options greedy(const forge_model* model, int tokens) {
    forge_generate_options options;
    forge_generate_options_init(&options, model);
    options.temperature = 0;
    options.max_tokens = tokens;
    return options;
}

TEST(CApi, VersionAndErrors) {
    EXPECT_THAT(forge_version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
    EXPECT_EQ(forge_model_load("/no/such/model", nullptr), nullptr);
    EXPECT_EQ(forge_last_status(), FORGE_NOT_FOUND);
    EXPECT_STREQ(forge_last_error(), "there is no file or folder /no/such/model");
    EXPECT_EQ(forge_model_load(nullptr, nullptr), nullptr);
    EXPECT_EQ(forge_last_status(), FORGE_INVALID_INPUT);
    EXPECT_EQ(load("int8"), nullptr);
    EXPECT_THAT(forge_last_error(), HasSubstr("int8"));
    forge_load_options empty{};
    EXPECT_EQ(forge_model_load(forge::test::tiny_chat_model().c_str(), &empty), nullptr);
    EXPECT_THAT(forge_last_error(), HasSubstr("_init function first"));
    EXPECT_EQ(forge_generate(nullptr, "x", nullptr, nullptr, nullptr, nullptr), FORGE_INVALID_INPUT);
    forge_model_free(nullptr);
    forge_session_free(nullptr);
}

TEST(CApi, GeneratesAndChats) {
    forge_model* model = load();
    ASSERT_NE(model, nullptr) << forge_last_error();
    EXPECT_EQ(forge_model_context(model), 100);
    EXPECT_EQ(forge_model_can_chat(model), 1);
    forge_session* session = forge_session_new(model);
    ASSERT_NE(session, nullptr) << forge_last_error();
    EXPECT_EQ(forge_session_new(model), nullptr);  // memory for one was reserved
    EXPECT_THAT(forge_last_error(), HasSubstr("all 1 sequences are in use"));

    forge_generate_options options = greedy(model, 5);
    std::string text;
    forge_result result;
    forge_result_init(&result);
    const forge_message messages[] = {{"user", "Hello"}};
    ASSERT_EQ(forge_chat(session, messages, 1, &options, append, &text, &result), FORGE_OK) << forge_last_error();
    EXPECT_EQ(result.prompt_tokens, 24);
    EXPECT_EQ(result.cached_tokens, 0);
    EXPECT_EQ(result.new_tokens, result.reason == FORGE_LENGTH ? 5 : result.new_tokens);
    EXPECT_GE(forge_session_tokens(session), 24);

    std::string again;
    ASSERT_EQ(forge_chat_json(session, R"([{"role": "user", "content": "Hello"}])", &options, append, &again, &result), FORGE_OK);
    EXPECT_EQ(again, text);
    EXPECT_EQ(result.cached_tokens, 23);  // all but the last, whose logits are wanted

    forge_session_clear(session);
    EXPECT_EQ(forge_session_tokens(session), 0);
    again.clear();
    ASSERT_EQ(forge_generate(session, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", &options, append, &again, nullptr), FORGE_OK);
    EXPECT_EQ(again, text);

    EXPECT_EQ(forge_chat_json(session, "{", &options, append, &text, nullptr), FORGE_INVALID_INPUT);
    const forge_message refused[] = {{"tool", "x"}};
    EXPECT_EQ(forge_chat(session, refused, 1, &options, append, &text, nullptr), FORGE_INVALID_INPUT);
    EXPECT_STREQ(forge_last_error(), "no tools here");

    // A session keeps its model alive.
    forge_model_free(model);
    again.clear();
    EXPECT_EQ(forge_generate(session, "Hi", &options, append, &again, nullptr), FORGE_OK);
    forge_session_free(session);
}

TEST(CApi, CallbackStops) {
    forge_model* model = load();
    forge_session* session = forge_session_new(model);
    ASSERT_NE(session, nullptr) << forge_last_error();
    forge_generate_options options = greedy(model, 50);
    int calls = 0;
    forge_result result;
    forge_result_init(&result);
    const auto stop = [](void* user, forge_piece, const char*, size_t) -> int { return ++*static_cast<int*>(user) == 3; };
    ASSERT_EQ(forge_generate(session, "Hello", &options, stop, &calls, &result), FORGE_OK);
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(result.reason, FORGE_CANCELLED);
    forge_session_free(session);
    forge_model_free(model);
}

TEST(CApi, OlderStructsKeepWorking) {
    forge_model* model = load();
    forge_session* session = forge_session_new(model);
    ASSERT_NE(session, nullptr) << forge_last_error();
    // A program that only knew the members up to top_k.
    forge_generate_options options = greedy(model, 7);
    options.size = offsetof(forge_generate_options, top_p);
    options.top_p = -1;       // not part of its struct: must not be read
    options.max_tokens = -5;
    options.stop_count = 99;
    forge_result result;
    forge_result_init(&result);
    result.size = offsetof(forge_result, new_tokens);
    result.new_tokens = 1234;
    std::string text;
    EXPECT_EQ(forge_generate(session, "Hello", &options, append, &text, &result), FORGE_OK) << forge_last_error();
    EXPECT_EQ(result.prompt_tokens, 5);
    EXPECT_EQ(result.new_tokens, 1234);  // beyond its struct: must not be written
    forge_session_free(session);
    forge_model_free(model);
}

TEST(CApi, TokenizeReportsTheWholeCount) {
    forge_model* model = load();
    ASSERT_NE(model, nullptr) << forge_last_error();
    int32_t ids[3] = {-1, -1, -1};
    EXPECT_EQ(forge_tokenize(model, "Hello", 0, 0, ids, 2), 5);
    EXPECT_EQ(ids[2], -1);
    EXPECT_EQ(forge_tokenize(model, "Hello", 0, 0, nullptr, 0), 5);
    char text[4] = "...";
    EXPECT_EQ(forge_detokenize(model, ids, 2, text, 1), 2);
    EXPECT_STREQ(text, "H..");
    const int32_t wrong = 1000;
    EXPECT_EQ(forge_detokenize(model, &wrong, 1, text, 3), -1);
    EXPECT_THAT(forge_last_error(), HasSubstr("1000"));
    forge_model_free(model);
}

}  // namespace
