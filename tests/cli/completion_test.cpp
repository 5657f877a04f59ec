#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "run_forge.h"

namespace forge::test {
namespace {

using testing::HasSubstr;

bool have(const std::string& program) { return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0; }

TEST(Completion, KnowsCommandsAndOptions) {
    for (const char* shell : {"bash", "zsh", "fish"}) {
        const auto r = run_forge({"completion", shell});
        EXPECT_EQ(r.status, 0);
        for (const char* word : {"run", "chat", "bench", "tokenize", "top-k", "no-think", "jsonl"}) EXPECT_THAT(r.out, HasSubstr(word)) << shell;
    }
    EXPECT_EQ(run_forge({"completion"}).status, 2);
    EXPECT_EQ(run_forge({"completion", "cmd"}).status, 2);
}

TEST(Completion, ShellsAcceptTheScripts) {
    int checked = 0;
    for (const std::string shell : {"bash", "zsh", "fish"}) {
        if (!have(shell)) continue;
        const std::string script = write_temporary("completion." + shell, run_forge({"completion", shell}).out);
        EXPECT_EQ(std::system((shell + " -n " + script).c_str()), 0) << shell;
        ++checked;
    }
    if (checked == 0) GTEST_SKIP() << "no shell to try the completion scripts with";
}

TEST(Completion, BashCompletes) {
    if (!have("bash")) GTEST_SKIP() << "bash is not installed";
    const std::string script = write_temporary("forge.bash", run_forge({"completion", "bash"}).out);
    const auto complete = [&](const std::string& words, int at) {
        const std::string out = write_temporary("completed", "");
        const std::string test = write_temporary("test.bash", ". " + script + "\nCOMP_WORDS=(" + words + ")\nCOMP_CWORD=" + std::to_string(at) +
                                                                  "\n_forge\nprintf '%s ' \"${COMPREPLY[@]}\"\n");
        EXPECT_EQ(std::system(("bash " + test + " > " + out).c_str()), 0);
        std::string text;
        if (FILE* file = fopen(out.c_str(), "r")) {
            char buffer[4096];
            text.assign(buffer, fread(buffer, 1, sizeof buffer, file));
            fclose(file);
        }
        return text;
    };
    EXPECT_EQ(complete("forge to", 1), "tokenize ");
    EXPECT_EQ(complete("forge run --dty", 2), "--dtype ");
    EXPECT_EQ(complete("forge run --dtype b", 3), "bf16 ");
}

TEST(Manual, DescribesEveryCommandAndOption) {
    const auto r = run_forge({"manual"});
    EXPECT_EQ(r.status, 0);
    EXPECT_THAT(r.out, testing::StartsWith(".TH FORGE 1"));
    for (const char* text : {".SS forge run", ".SS forge eval", "\\-\\-no\\-think", "EXIT STATUS", "FORGE_HOME"}) EXPECT_THAT(r.out, HasSubstr(text));
}

}  // namespace
}  // namespace forge::test
