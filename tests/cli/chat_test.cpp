#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "run_forge.h"
#include "tiny_chat.h"

namespace forge::test {
namespace {

using testing::HasSubstr;
using testing::Not;

Finished chat(const std::string& input, std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(), {"chat", tiny_chat_model(), "--dtype", "f32", "--temp", "0", "-n", "8", "-t", "1"});
    return run_forge(arguments, {.input = input});
}

TEST(Chat, AnswersEachLineOfAPipeLikeRun) {
    const auto r = chat("Hello\n\nHow are you?\n");
    EXPECT_EQ(r.status, 0) << r.err;
    const auto first = run_forge({"run", tiny_chat_model(), "--dtype", "f32", "--temp", "0", "-n", "8", "Hello"});
    EXPECT_EQ(r.out.compare(0, first.out.size(), first.out), 0) << r.out;
    EXPECT_GT(r.out.size(), first.out.size());
    EXPECT_EQ(r.err, "");
}

TEST(Chat, ClearForgets) {
    const auto once = chat("Hello\n"), again = chat("Hello\n/clear\nHello\n");
    EXPECT_EQ(again.out, once.out + once.out);
    const auto kept = chat("Hello\nHello\n");
    EXPECT_NE(kept.out, once.out + once.out);
}

TEST(Chat, SystemMessageChangesTheAnswer) {
    EXPECT_EQ(chat("/system Be brief.\nHello\n").out, chat("Hello\n", {"--system", "Be brief."}).out);
    EXPECT_EQ(chat("/system off\nHello\n", {"--system", "Be brief."}).out, chat("Hello\n").out);
}

TEST(Chat, LinesJoinedByBackslashAndBlocks) {
    const auto joined = chat("one\\\ntwo\n"), block = chat("\"\"\"one\ntwo\"\"\"\n");
    EXPECT_EQ(joined.status, 0) << joined.err;
    EXPECT_EQ(joined.out, block.out);
    EXPECT_NE(joined.out, chat("one\ntwo\n").out);
}

TEST(Chat, SettingsAreShownAndChecked) {
    auto r = chat("/set temp 0.5\n/set top-k 7\n/set max-tokens 3\n/set\n");
    EXPECT_EQ(r.status, 0);
    EXPECT_EQ(r.out, "");
    EXPECT_THAT(r.err, HasSubstr("temp is 0.5\ntop-k is 7\nmax-tokens is 3\n"));
    EXPECT_THAT(r.err, HasSubstr("min-p "));
    for (const char* wrong : {"/set temp", "/set temp warm", "/set top-p 2", "/set colour 1", "/set top-k 1.5", "/set seed -1", "/frobnicate", "/think maybe", "/save", "/load"}) {
        r = chat(std::string(wrong) + "\n");
        EXPECT_THAT(r.err, HasSubstr(std::string(wrong) == "/set temp" ? "temp is 0" : "error: ")) << wrong;
        EXPECT_EQ(r.out, "");
    }
}

TEST(Chat, SaveAndLoadGoOnWithTheConversation) {
    const std::string path = write_temporary("saved.json", "");
    const auto straight = chat("Hello\nMore\n");
    const auto first = chat("Hello\n/save " + path + "\n");
    EXPECT_EQ(first.status, 0) << first.err;
    const auto saved = nlohmann::json::parse(std::ifstream(path));
    EXPECT_EQ(saved["messages"].size(), 2u);
    const auto second = chat("/load " + path + "\nMore\n/stats\n");
    EXPECT_EQ(second.status, 0) << second.err;
    EXPECT_EQ(first.out + second.out, straight.out);
    EXPECT_THAT(second.err, HasSubstr("known from before"));  // the saved cache was used
    std::filesystem::remove(path + ".cache");
    EXPECT_EQ(chat("/load " + path + "\nMore\n").out, second.out);
    std::ofstream(path + ".cache") << "FORGESES but damaged";
    const auto damaged = chat("/load " + path + "\nMore\n");
    EXPECT_EQ(damaged.out, second.out);
    EXPECT_THAT(damaged.err, HasSubstr("warning: the conversation is read again"));
    for (const char* wrong : {"", "[]", "{\"format\":\"forge-chat-1\",\"messages\":[1]}"}) {
        const auto r = chat("/load " + write_temporary("wrong.json", wrong) + "\n");
        EXPECT_EQ(r.status, 1);
        EXPECT_THAT(r.err, HasSubstr("error: "));
    }
}

TEST(Chat, FullContextIsSaidAndClearHelps) {
    auto r = chat("Hello\n", {"-c", "40"});  // the rendered prompt takes 28
    EXPECT_EQ(r.status, 0) << r.err;
    r = chat("Hello\n", {"-c", "36", "-n", "-1", "--logit-bias", "2=-inf"});
    EXPECT_THAT(r.err, HasSubstr("the context of 36 tokens is full"));
    EXPECT_THAT(r.err, HasSubstr("/clear starts afresh"));
    const auto long_one = chat(std::string(200, 'x') + "\n/clear\nHello\n", {"-c", "60"});
    EXPECT_THAT(long_one.err, HasSubstr("error: the prompt has "));
    EXPECT_EQ(long_one.out, chat("Hello\n").out);
    EXPECT_EQ(long_one.status, 1);
}

TEST(Chat, StatsAndHelpGoToStandardError) {
    const auto r = chat("Hello\n/stats\n/help\n");
    EXPECT_EQ(r.out, chat("Hello\n").out);
    EXPECT_THAT(r.err, HasSubstr("prompt eval:"));
    for (const char* command : {"/help", "/clear", "/system", "/set", "/save", "/load", "/stats", "/exit"}) EXPECT_THAT(r.err, HasSubstr(command));
    EXPECT_THAT(r.err, Not(HasSubstr("\033")));
}

TEST(Chat, ExitLeavesTheRestUnread) { EXPECT_EQ(chat("/exit\nHello\n").out, ""); }

TEST(Chat, ModelsWithoutATemplateAreRefused) {
    const std::string folder = tiny_chat_model() + "-plain";
    std::filesystem::create_directories(folder);
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"})
        std::filesystem::copy_file(tiny_chat_model() + "/" + name, folder + "/" + name, std::filesystem::copy_options::skip_existing);
    auto r = run_forge({"chat", folder}, {.input = "Hello\n"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("has no chat template"));
    r = run_forge({"run", folder, "Hello", "-n", "2", "--temp", "0"});  // continues the text instead
    EXPECT_EQ(r.status, 0) << r.err;
}

}  // namespace
}  // namespace forge::test
