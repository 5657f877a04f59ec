#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_forge.h"

namespace forge::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::vector<std::string> commands{"run", "chat", "bench", "profile", "tune", "doctor", "eval", "inspect", "tokenize", "template", "quantize", "synth", "pull", "push", "login", "logout", "completion", "manual"};

TEST(Help, ListsEveryCommand) {
    const auto r = run_forge({"--help"});
    EXPECT_EQ(r.status, 0);
    for (const auto& command : commands) EXPECT_THAT(r.out, HasSubstr("\n  " + command + " "));
    EXPECT_THAT(r.out, HasSubstr("Exit status:"));
    EXPECT_EQ(r.err, "");
}

TEST(Help, EveryCommandHasExamples) {
    for (const auto& command : commands) {
        const auto r = run_forge({command, "--help"});
        EXPECT_EQ(r.status, 0) << command;
        EXPECT_THAT(r.out, HasSubstr("Examples:\n  forge " + command)) << command;
        EXPECT_EQ(r.err, "") << command;
    }
}

TEST(Help, Version) {
    const auto r = run_forge({"--version"});
    EXPECT_EQ(r.status, 0);
    EXPECT_THAT(r.out, testing::MatchesRegex("forge [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(Usage, ErrorsExitWith2AndNameTheMistake) {
    EXPECT_EQ(run_forge({}).status, 2);
    auto r = run_forge({"frobnicate"});
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, StartsWith("error: there is no command frobnicate; there are "));
    EXPECT_EQ(r.out, "");
    for (const auto& command : commands) {
        r = run_forge({command, "--no-such-flag"});
        EXPECT_EQ(r.status, 2) << command;
        EXPECT_THAT(r.err, HasSubstr("--no-such-flag")) << command;
        EXPECT_THAT(r.err, HasSubstr("see forge " + command + " --help")) << command;
        EXPECT_EQ(r.out, "") << command;
    }
}

// What follows the value of an option that can be repeated is the model, not another value.
TEST(Usage, OptionsThatCanBeRepeatedTakeOneValueEach) {
    const std::vector<std::vector<std::string>> cases{
        {"bench", "-p", "16"},          {"bench", "-p", "16,32", "-n", "8"}, {"bench", "-t", "1"},         {"run", "--stop", "x"},        {"run", "--logit-bias", "1=2"},
        {"run", "--tune", "off"},       {"run", "--pass", "-all"},           {"run", "--template-var", "a=b"}, {"chat", "--stop", "x"},       {"serve", "--api-key", "k"},
        {"serve", "--cors", "https://a.test"}, {"serve", "--allow-host", "a.test"}, {"serve", "--alias", "a"},    {"quantize", "--recipe", "q4"}, {"pack", "--quantize", "q4"}};
    for (std::vector<std::string> arguments : cases) {
        const std::string what = arguments[0] + " " + arguments[1];
        arguments.emplace_back("/no/such/model.gguf");
        if (arguments[0] == "run") arguments.emplace_back("hello");
        if (arguments[0] == "quantize" || arguments[0] == "pack") arguments.insert(arguments.end(), {"-o", "/no/such/folder/out"});
        const auto r = run_forge(arguments);
        EXPECT_THAT(r.status, testing::AnyOf(1, 2)) << what;
        EXPECT_THAT(r.err, HasSubstr("/no/such/model.gguf")) << what;
        EXPECT_THAT(r.err, testing::AnyOf(HasSubstr("cannot open"), HasSubstr("there is no"), HasSubstr("no such"), HasSubstr("does not exist"), HasSubstr("not found"))) << what << ": " << r.err;
    }
}

TEST(Usage, NoColoursInPipes) {
    EXPECT_THAT(run_forge({"inspect", "/no/such/model"}).err, Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace forge::test
