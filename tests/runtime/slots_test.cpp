// Slots in files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>

#include "reference_file.h"
#include "runtime/batcher.h"

namespace forge {
namespace {

std::shared_ptr<Engine> engine() { return Engine::load(test::tiny_model("qwen3-tied").model.string(), {.threads = 1, .ctx = 128, .parallel = 2, .chunk = 16}); }

struct Answer { std::vector<std::int32_t> tokens; int cached = 0; };

Answer ask(Batcher& batcher, const std::vector<std::int32_t>& prompt, int count = 8) {
    const auto done = std::make_shared<std::promise<void>>();   // of both threads
    Answer answer;
    BatchRequest request;
    request.prompt = prompt;
    request.sampling.temperature = 0;
    request.generate = {count, {}, true};
    request.on_token = [&](std::int32_t token, std::span<const float>) { return answer.tokens.push_back(token), true; };
    request.on_done = [&answer, done](FinishReason, const BatchStats& stats) { answer.cached = stats.cached_tokens, done->set_value(); };
    request.on_error = [done](const std::string& error) { done->set_exception(std::make_exception_ptr(std::runtime_error(error))); };
    batcher.submit(std::move(request));
    done->get_future().get();
    return answer;
}

std::vector<std::int32_t> prompt(int seed, int length) {
    std::vector<std::int32_t> p;
    for (int i = 0; i < length; ++i) p.push_back((seed * 31 + i * 17 + i * i) % 64);
    return p;
}

TEST(Slots, AreSavedRestoredAndErased) {
    const std::string file = (std::filesystem::temp_directory_path() / ("forge-slot-" + std::to_string(::getpid()))).string();
    std::vector<std::int32_t> expected;
    {
        Batcher batcher(engine(), 4);
        expected = ask(batcher, prompt(1, 60)).tokens;
        const auto slots = batcher.slots();
        ASSERT_EQ(slots.size(), 2u);
        const int used = slots[0].tokens > 0 ? 0 : 1;
        EXPECT_FALSE(slots[static_cast<std::size_t>(used)].busy);
        EXPECT_EQ(batcher.save_slot(used, file), 67u);    // the last token was never computed
        EXPECT_EQ(batcher.erase_slot(used), 67u);
        EXPECT_EQ(batcher.slots()[static_cast<std::size_t>(used)].tokens, 0u);
        EXPECT_EQ(ask(batcher, prompt(1, 60)).cached, 0);
        EXPECT_THROW(batcher.save_slot(2, file), Error);
        EXPECT_THROW(batcher.erase_slot(-1), Error);
        EXPECT_THROW(batcher.restore_slot(0, file + ".none"), Error);
    }
    Batcher batcher(engine(), 4);   // another server
    EXPECT_EQ(batcher.restore_slot(1, file), 67u);
    const Answer answer = ask(batcher, prompt(1, 60));
    EXPECT_EQ(answer.tokens, expected);
    EXPECT_EQ(answer.cached, 59);
    // What is no saved slot leaves the slot as it was.
    std::ofstream(file, std::ios::binary | std::ios::trunc) << "nonsense";
    EXPECT_THROW(batcher.restore_slot(1, file), Error);
    EXPECT_EQ(ask(batcher, prompt(1, 60)).cached, 59);
    std::filesystem::remove(file);
}

}  // namespace
}  // namespace forge
