#include "runtime/batcher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <thread>

#include "base/error.h"
#include "reference_file.h"

namespace forge {
namespace {

struct Answer { std::vector<std::int32_t> tokens; FinishReason reason; BatchStats stats; };

std::shared_ptr<Engine> engine(int parallel) {
    return Engine::load(test::tiny_model("qwen3-tied").model.string(), {.threads = 2, .ctx = 128, .parallel = parallel, .chunk = 16});
}

std::vector<std::int32_t> prompt(int seed, int length) {
    std::vector<std::int32_t> p;
    for (int i = 0; i < length; ++i) p.push_back((seed * 31 + i * 17 + i * i) % 64);
    return p;
}

std::future<Answer> ask(Batcher& batcher, std::vector<std::int32_t> tokens, int count, std::uint64_t seed) {
    auto promise = std::make_shared<std::promise<Answer>>();
    auto answer = std::make_shared<Answer>();
    BatchRequest request;
    request.prompt = std::move(tokens);
    request.sampling.temperature = 1.5f;
    request.sampling.seed = seed;
    request.generate.max_tokens = count;
    request.on_token = [=](std::int32_t token, std::span<const float>) { return answer->tokens.push_back(token), true; };
    request.on_done = [=](FinishReason reason, const BatchStats& stats) {
        answer->reason = reason;
        answer->stats = stats;
        promise->set_value(*answer);
    };
    request.on_error = [=](const std::string& error) { promise->set_exception(std::make_exception_ptr(std::runtime_error(error))); };
    auto future = promise->get_future();
    batcher.submit(std::move(request));
    return future;
}

// The same seed gives the same text, whoever else is being served.
TEST(Batcher, CompanyDoesNotChangeAnswers) {
    std::vector<std::vector<std::int32_t>> alone;
    {
        Batcher batcher(engine(1), 100);
        for (int i = 0; i < 10; ++i) alone.push_back(ask(batcher, prompt(i, 5 + 7 * i), 20, 100 + static_cast<std::uint64_t>(i)).get().tokens);
    }
    Batcher batcher(engine(4), 100);
    std::vector<std::future<Answer>> together;
    for (int i = 0; i < 10; ++i) together.push_back(ask(batcher, prompt(i, 5 + 7 * i), 20, 100 + static_cast<std::uint64_t>(i)));
    for (std::size_t i = 0; i < 10; ++i) {
        const Answer answer = together[i].get();
        EXPECT_EQ(answer.tokens, alone[i]) << i;
        EXPECT_EQ(answer.reason, FinishReason::length);
        EXPECT_EQ(answer.stats.generated_tokens, 20);
    }
    EXPECT_EQ(batcher.load().running, 0);
}

TEST(Batcher, AConversationFindsItsPrefix) {
    Batcher batcher(engine(2), 4);
    auto tokens = prompt(1, 40);
    const Answer first = ask(batcher, tokens, 10, 1).get();
    EXPECT_EQ(first.stats.cached_tokens, 0);
    ask(batcher, prompt(2, 30), 5, 1).get();     // takes the other slot
    tokens.insert(tokens.end(), first.tokens.begin(), first.tokens.end());
    tokens.push_back(3);
    EXPECT_EQ(ask(batcher, tokens, 5, 1).get().stats.cached_tokens, 49);   // the last token was never computed
}

TEST(Batcher, RefusesAndCancels) {
    Batcher batcher(engine(1), 1);
    EXPECT_THROW(ask(batcher, prompt(0, 200), 5, 1), Error);
    EXPECT_THROW(ask(batcher, {}, 5, 1), Error);
    std::promise<void> started, cancelled;
    std::promise<FinishReason> ended;
    const std::shared_future<void> go_on = cancelled.get_future().share();
    std::atomic<int> tokens{0};
    BatchRequest request;
    request.prompt = prompt(3, 4);
    request.generate.ignore_stop = true;
    request.on_token = [&](std::int32_t, std::span<const float>) {
        if (++tokens == 1) started.set_value();
        go_on.wait();
        return true;
    };
    request.on_done = [&](FinishReason reason, const BatchStats&) { ended.set_value(reason); };
    const std::uint64_t id = batcher.submit(request);
    started.get_future().wait();
    auto waiting = ask(batcher, prompt(4, 4), 2, 1);                  // waits: one slot
    EXPECT_THROW(ask(batcher, prompt(5, 4), 2, 1), Error);            // the queue holds one
    batcher.cancel(id);
    cancelled.set_value();
    EXPECT_EQ(ended.get_future().get(), FinishReason::cancelled);
    EXPECT_EQ(waiting.get().tokens.size(), 2u);
}

TEST(Batcher, DestructionCancelsWhatRuns) {
    std::future<Answer> running;
    {
        Batcher batcher(engine(1), 4);
        running = ask(batcher, prompt(3, 40), 80, 1);
    }
    const Answer answer = running.get();
    EXPECT_TRUE(answer.reason == FinishReason::cancelled || answer.reason == FinishReason::length);
}

// What is wrong with a request is told to who asked, and the thread that serves the others goes on.
TEST(Batcher, WhatIsWrongWithOneRequestEndsNoOther) {
    Batcher batcher(engine(1), 4);
    BatchRequest bad;
    bad.prompt = prompt(1, 4);
    bad.sampling.logit_bias = {{1 << 20, 1.0f}};
    EXPECT_THROW(batcher.submit(bad), Error);
    for (const bool again : {false, true}) {
        const auto told = std::make_shared<std::promise<std::string>>();   // of both threads
        BatchRequest request;
        request.prompt = prompt(2, 4);
        request.generate.max_tokens = 2;
        request.on_done = [](FinishReason, const BatchStats&) { throw std::runtime_error("nobody listens"); };
        request.on_error = [told, again](const std::string& error) {
            told->set_value(error);
            if (again) throw std::runtime_error("not even to this");
        };
        batcher.submit(std::move(request));
        EXPECT_EQ(told->get_future().get(), "nobody listens");
    }
    EXPECT_EQ(ask(batcher, prompt(3, 4), 2, 1).get().tokens.size(), 2u);
}

// A prompt asked again starts from the logits kept of it, and answers the same.
TEST(Batcher, RepeatedPromptComputesNothing) {
    Batcher batcher(engine(1), 10);
    const Answer first = ask(batcher, prompt(3, 50), 10, 5).get(), again = ask(batcher, prompt(3, 50), 10, 5).get();
    EXPECT_EQ(first.stats.cached_tokens, 0);
    EXPECT_EQ(again.stats.cached_tokens, 50);
    EXPECT_EQ(again.tokens, first.tokens);
    // A longer prompt in the slot ends that; a shorter one keeps what both share.
    EXPECT_EQ(ask(batcher, prompt(3, 40), 1, 5).get().stats.cached_tokens, 39);
    EXPECT_EQ(ask(batcher, prompt(3, 50), 10, 5).get().tokens, first.tokens);
}

// Requests with one prefix share its prefill: a later one waits for an earlier one and copies.
TEST(Batcher, ParallelRequestsShareAPrefix) {
    std::vector<std::vector<std::int32_t>> prompts;
    for (int i = 0; i < 4; ++i) {
        prompts.push_back(prompt(1, 64));
        for (std::int32_t t : prompt(10 + i, 9)) prompts.back().push_back(t);
    }
    std::vector<Answer> alone;
    for (const auto& p : prompts) {
        Batcher batcher(engine(1), 1);
        alone.push_back(ask(batcher, p, 8, 7).get());
    }
    Batcher batcher(engine(4), 10);
    std::vector<std::future<Answer>> together;
    for (const auto& p : prompts) together.push_back(ask(batcher, p, 8, 7));
    int computed = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        const Answer answer = together[i].get();
        EXPECT_EQ(answer.tokens, alone[i].tokens) << i;
        computed += answer.stats.prompt_tokens - answer.stats.cached_tokens;
    }
    EXPECT_EQ(computed, 64 + 4 * 9);
}

// Two requests that arrive together with the same long beginning, of a length that is no multiple of the chunk: it is
// computed once, and both answers are what each is alone. `cancel`: the first goes away while it computes it.
void share_a_long_beginning(const char* model, int chunk, bool cancel, std::size_t prefix_bytes) {
    const auto load = [&](int parallel) {
        auto e = Engine::load(test::tiny_model(model).model.string(), {.dtype = DType::f32, .threads = 2, .ctx = 1200, .parallel = parallel, .chunk = chunk});
        e->set_message_starts(std::vector<std::int32_t>{63});
        return e;
    };
    std::vector<std::int32_t> beginning;
    for (std::uint32_t i = 0, state = 9; i < 1000; ++i) {
        state = state * 1664525u + 1013904223u;
        beginning.push_back(static_cast<std::int32_t>((state >> 16) % 60));
    }
    beginning.push_back(63);   // the second message begins
    std::vector<std::vector<std::int32_t>> prompts(2, beginning);
    for (int i = 0; i < 2; ++i)
        for (int t = 0; t < 20 + 7 * i; ++t) prompts[static_cast<std::size_t>(i)].push_back((5 + 11 * i + 3 * t) % 60);
    std::vector<Answer> alone;
    for (const auto& p : prompts) {
        Batcher batcher(load(1), 1);
        alone.push_back(ask(batcher, p, 12, 7).get());
    }
    Batcher batcher(load(2), 10, prefix_bytes);
    std::promise<void> ended;
    BatchRequest first;
    first.prompt = prompts[0];
    first.generate.max_tokens = 150;   // so slowly that it is cancelled long before its end
    first.on_token = [](std::int32_t, std::span<const float>) {
        std::this_thread::sleep_for(std::chrono::milliseconds(4));
        return true;
    };
    first.on_done = [&](FinishReason reason, const BatchStats&) {
        EXPECT_EQ(reason, FinishReason::cancelled);
        ended.set_value();
    };
    std::uint64_t id = 0;
    std::future<Answer> other;
    if (cancel) id = batcher.submit(std::move(first));
    else other = ask(batcher, prompts[0], 12, 7);
    auto second = ask(batcher, prompts[1], 12, 7);
    if (cancel) {
        while (batcher.slots()[0].tokens + batcher.slots()[1].tokens < 400) std::this_thread::yield();
        batcher.cancel(id);
        other = ask(batcher, prompt(40, 300), 12, 7);   // takes the slot of the first
        ended.get_future().wait();
    }
    const Answer answer = second.get(), company = other.get();
    EXPECT_EQ(answer.tokens, alone[1].tokens);
    if (cancel) {
        EXPECT_GE(answer.stats.cached_tokens, 300);
    } else {
        EXPECT_EQ(company.tokens, alone[0].tokens);
        EXPECT_EQ(company.stats.cached_tokens, 0);
        EXPECT_GE(answer.stats.cached_tokens, 1000);
        EXPECT_LE(answer.stats.cached_tokens, 1001);
        // Later ones of the same beginning have it at once.
        std::vector<std::int32_t> third = beginning;
        for (int t = 0; t < 40; ++t) third.push_back((7 * t) % 60);
        EXPECT_GE(ask(batcher, third, 3, 7).get().stats.cached_tokens, 1000);
    }
}

TEST(Batcher, ALongBeginningIsComputedOnce) {
    for (const char* model : {"qwen3-tied", "qwen3.5-moe"})
        for (const int chunk : {64, 256}) share_a_long_beginning(model, chunk, false, 1 << 24);
}

TEST(Batcher, CancellingTheFirstLosesNothingForTheSecond) {
    for (const char* model : {"qwen3-tied", "qwen3.5-moe"})
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1} << 24}) share_a_long_beginning(model, 64, true, bytes);
}

// A short request does not cost a long conversation its slot, where another one was unused for longer.
TEST(Batcher, AConversationOutlivesAStrangerWithItsFirstWords) {
    Batcher batcher(engine(2), 10);
    auto conversation = prompt(1, 100);
    ask(batcher, prompt(9, 20), 2, 5).get();
    ask(batcher, conversation, 4, 5).get();
    std::vector<std::int32_t> stranger(conversation.begin(), conversation.begin() + 40);
    for (const std::int32_t t : prompt(30, 20)) stranger.push_back(t);
    EXPECT_EQ(ask(batcher, stranger, 2, 5).get().stats.cached_tokens, 40);   // copied to the other slot
    EXPECT_EQ(ask(batcher, conversation, 4, 5).get().stats.cached_tokens, 100);
}

// What a slot held comes back from the store when another request had taken the slot.
TEST(Batcher, FinishedSequencesAreFoundAgain) {
    for (const bool store : {false, true}) {
        Batcher batcher(engine(1), 10, store ? 1 << 20 : 0);
        const Answer first = ask(batcher, prompt(1, 70), 10, 5).get();
        ask(batcher, prompt(2, 70), 10, 5).get();
        const Answer again = ask(batcher, prompt(1, 70), 10, 5).get();
        EXPECT_EQ(again.tokens, first.tokens);
        EXPECT_EQ(again.stats.cached_tokens, store ? 69 : 0);
        EXPECT_LE(batcher.load().prefix_bytes, 1u << 20);
    }
    // Hybrids come back to a snapshot.
    {
        auto hybrid = Engine::load(test::tiny_model("qwen3.5-moe").model.string(), {.dtype = DType::f32, .threads = 2, .ctx = 128, .parallel = 1, .chunk = 16});
        Batcher batcher(hybrid, 10, 1 << 24);
        const Answer first = ask(batcher, prompt(1, 70), 10, 5).get();
        ask(batcher, prompt(2, 70), 10, 5).get();
        const Answer again = ask(batcher, prompt(1, 70), 10, 5).get();
        EXPECT_EQ(again.tokens, first.tokens);
        EXPECT_EQ(again.stats.cached_tokens, 69);
        EXPECT_LE(batcher.load().prefix_bytes, 1u << 24);
        EXPECT_GT(batcher.load().prefix_bytes, 0u);
    }
    // A budget that nothing fits in keeps nothing.
    Batcher batcher(engine(1), 10, 100);
    ask(batcher, prompt(1, 70), 1, 5).get();
    ask(batcher, prompt(2, 70), 1, 5).get();
    EXPECT_EQ(batcher.load().prefix_bytes, 0u);
}

}  // namespace
}  // namespace forge
