// The command around the server: its signals. What it answers is tested in tests/server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "run_forge.h"
#include "slow_model.h"
#include "tiny_chat.h"

namespace forge::test {
namespace {

TEST(Serve, ASignalEndsItWhileItIsLoading) {
    for (const int number : {SIGTERM, SIGINT}) {
        SlowModel model("slow-to-serve");
        std::atomic<bool> loading{false};
        std::thread watcher([&] {
            model.wait_until_read();
            loading = true;
        });
        RunOptions options;
        options.on_wait = [&] { return loading.exchange(false) ? number : 0; };
        options.timeout_seconds = 60;
        const Finished r = run_forge({"serve", model.path(), "--port", "0", "-t", "1"}, options);
        model.let_go();
        watcher.join();
        EXPECT_EQ(r.status, number == SIGTERM ? 0 : 130) << r.err;
        EXPECT_EQ(r.out, "");
    }
}

TEST(Serve, ASignalEndsItWhenItIsReady) {
    RunOptions options;
    options.on_output = [](const std::string& out) { return out.find("ready: ") != std::string::npos ? SIGTERM : 0; };
    const Finished r = run_forge({"serve", tiny_chat_model(), "--port", "0", "-t", "1", "--ctx", "128"}, options);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, testing::HasSubstr(" on http://127.0.0.1:"));
}

}  // namespace
}  // namespace forge::test
