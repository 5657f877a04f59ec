// Properties of engine and session that hold for any model.
#include "runtime/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "allocation_count.h"
#include "base/error.h"
#include "plan/passes.h"
#include "reference_file.h"

namespace forge {
namespace {

const std::vector<std::int32_t> text{5, 17, 3, 60, 22, 9, 41, 33, 8, 12, 50, 2, 2, 19, 7, 44, 61, 13, 27, 30, 1, 6, 39, 55, 21,
                                     14, 10, 18, 47, 36, 4, 62, 11, 25, 58, 29, 16, 40, 53, 20, 35, 48, 15, 57, 38, 23, 45, 59};

std::shared_ptr<Engine> load(const std::string& name, LoadOptions options) {
    if (options.ctx == 0) options.ctx = 128;
    if (options.threads == 0) options.threads = 2;
    return Engine::load(test::tiny_model(name).model.string(), options);
}

std::vector<float> copy(std::span<const float> s) { return {s.begin(), s.end()}; }

double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double worst = 0, most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        worst = std::max(worst, std::fabs(double(a[i]) - b[i]));
        most = std::max(most, std::fabs(double(a[i])));
    }
    return worst / most;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// Logits after the text, then after each of a few appended tokens.
std::vector<float> run(const std::shared_ptr<Engine>& engine, std::span<const std::int32_t> tokens = text) {
    Session session(engine);
    session.feed(tokens);
    std::vector<float> all = copy(session.logits());
    for (std::int32_t token : {3, 50, 12}) {
        session.append(token);
        all.insert(all.end(), session.logits().begin(), session.logits().end());
    }
    return all;
}

class Families : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Some, Families,
                         testing::Values("llama-gqa-tied", "mistral-window", "qwen2-bias", "qwen3-tied", "gemma3-old", "gguf-llama-kquants",
                                         "qwen3.5-text", "qwen3.5-moe", "gemma4-per-layer", "gemma4-experts", "mixtral"),
                         [](const auto& info) {
                             std::string name = info.param;
                             for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                             return name;
                         });

TEST_P(Families, ThreadsDoNotChangeBits) {
    for (DType dtype : {DType::bf16, DType::f32}) {
        const auto one = run(load(GetParam(), {.dtype = dtype, .threads = 1}));
        for (int threads : {2, 3}) EXPECT_TRUE(same_bits(one, run(load(GetParam(), {.dtype = dtype, .threads = threads}))));
    }
}

TEST_P(Families, ChunksOfAnySizeAgree) {
    const auto single = run(load(GetParam(), {.dtype = DType::f32, .chunk = 1}));
    for (int chunk : {2, 5, 8, 9, 16, 31, 64})
        EXPECT_LT(worst_difference(single, run(load(GetParam(), {.dtype = DType::f32, .chunk = chunk}))), 2e-5) << chunk;
    // Up to eight rows the same kernels run, so the bits are the same.
    for (int chunk : {2, 5, 8}) EXPECT_TRUE(same_bits(single, run(load(GetParam(), {.dtype = DType::f32, .chunk = chunk})))) << chunk;
}

TEST_P(Families, FusionsKeepBits) {
    for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
        for (int chunk : {4, 64}) {
            // trim_outputs runs the last layer on fewer rows and so, in a large chunk, on other kernels.
            std::vector<std::string> always;
            if (chunk > 8) always.push_back("trim_outputs");
            const auto fused = run(load(GetParam(), {.dtype = dtype, .chunk = chunk, .passes_off = always}));
            for (const Pass& pass : all_passes()) {
                std::vector<std::string> off = always;
                off.push_back(std::string(pass.name));
                EXPECT_TRUE(same_bits(fused, run(load(GetParam(), {.dtype = dtype, .chunk = chunk, .passes_off = off}))))
                    << pass.name << " " << name_of(dtype) << " chunk " << chunk;
            }
        }
    }
}

// Four sequences in one step get what each gets alone.
TEST_P(Families, RowsOfOtherSequencesDoNotChangeBits) {
    for (DType dtype : {DType::bf16, DType::f32}) {
        auto engine = load(GetParam(), {.dtype = dtype, .parallel = 4, .chunk = 8});
        auto other = load(GetParam(), {.dtype = dtype, .parallel = 4, .chunk = 8});   // up to the last row
        const std::size_t vocab = static_cast<std::size_t>(engine->spec().vocab);
        std::vector<std::vector<float>> alone;
        for (int s = 0; s < 4; ++s) {
            for (int i = 0; i < 20 + s; ++i) {
                const StepInput row{text[static_cast<std::size_t>(i + s)], s, i, true};
                const auto logits = engine->step({&row, 1});
                if (i < 19 + s) other->step({&row, 1});
                if (i == 19 + s) alone.push_back(copy(logits));
            }
        }
        std::vector<StepInput> rows;
        for (int s = 0; s < 4; ++s) rows.push_back({text[static_cast<std::size_t>(19 + 2 * s)], s, 19 + s, true});
        const auto together = copy(other->step(rows));
        for (std::size_t s = 0; s < 4; ++s)
            EXPECT_TRUE(same_bits(alone[s], {together.begin() + static_cast<long>(s * vocab), together.begin() + static_cast<long>((s + 1) * vocab)}))
                << "sequence " << s << " " << name_of(dtype);
    }
}

TEST_P(Families, DecodeDoesNotAllocate) {
    auto engine = load(GetParam(), {});
    const auto allocated = [&] {
        Session session(engine);
        Sampler sampler({.temperature = 0.7f}, engine->spec().vocab);
        session.feed(text);
        int made = 0;
        generate(session, sampler, {.max_tokens = 3, .stop_ids = {}, .ignore_stop = true}, [](std::int32_t) { return true; });
        const std::size_t before = test::allocations();
        for (; made < 20; ++made) session.append(sampler.sample(session.logits(), session.tokens(), session.tokens().size()));
        return test::allocations() - before;
    };
    // All threads are counted, the one that warms up after loading too; a second session comes after its end.
    if (allocated() != 0) {
        EXPECT_EQ(allocated(), 0u);
    }
}

TEST_P(Families, PrefixesAreReused) {
    auto engine = load(GetParam(), {.dtype = DType::f32});
    Session session(engine);
    const std::span<const std::int32_t> all(text);
    EXPECT_EQ(session.feed(all.first(30)), 0);
    const auto at30 = copy(session.logits());
    EXPECT_EQ(session.feed(all), 30);
    const auto at48 = copy(session.logits());
    EXPECT_EQ(session.feed(all), 48);                 // an exact repeat computes nothing
    EXPECT_TRUE(same_bits(copy(session.logits()), at48));
    EXPECT_EQ(session.feed(all.first(30)), 29);       // shorter: the last token again, for its logits
    EXPECT_LT(worst_difference(at30, copy(session.logits())), 2e-5);
    std::vector<std::int32_t> edited(text);
    edited[10] = 63;
    // A recurrent state goes back to a snapshot only, and there is none before the tenth token.
    EXPECT_EQ(session.feed(edited), engine->state_bytes() > 0 ? 0 : 10);
    EXPECT_LT(worst_difference(run(engine = load(GetParam(), {.dtype = DType::f32}), edited),
                               [&] {
                                   std::vector<float> l = copy(session.logits());
                                   for (std::int32_t token : {3, 50, 12}) {
                                       session.append(token);
                                       l.insert(l.end(), session.logits().begin(), session.logits().end());
                                   }
                                   return l;
                               }()),
              2e-5);
}

TEST_P(Families, SavedSessionsContinueWithTheSameBits) {
    const std::string path = testing::TempDir() + "forge_session_" + GetParam();
    auto engine = load(GetParam(), {.parallel = 2});
    std::vector<float> expected;
    {
        Session session(engine);
        session.feed(text);
        session.save(path);
        session.append(7);
        expected = copy(session.logits());
    }
    Session other(load(GetParam(), {}));
    other.restore(path);
    EXPECT_EQ(other.tokens().size(), text.size());
    other.append(7);
    EXPECT_TRUE(same_bits(expected, copy(other.logits())));
    Session wrong(load(GetParam(), {.dtype = DType::f32}));
    EXPECT_THROW(wrong.restore(path), Error);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
    EXPECT_THROW(other.restore(path), Error);
    std::filesystem::remove(path);
}

// Ids without a pattern; id 63 is left out, it begins messages below.
std::vector<std::int32_t> long_text(std::size_t count, std::uint32_t seed) {
    std::vector<std::int32_t> ids;
    for (std::uint32_t state = seed; ids.size() < count;) {
        state = state * 1664525u + 1013904223u;
        const auto id = static_cast<std::int32_t>(3 + (state >> 16) % 80);
        if (id != 63) ids.push_back(id);
    }
    return ids;
}

TEST(Session, PromptsThatDifferInTheLastWordShareTheRest) {
    for (const char* model : {"qwen3.5-text", "qwen3.5-moe", "llama-gqa-tied"})
        for (const std::size_t end : {std::size_t{1}, std::size_t{7}}) {   // the word, and what a template puts behind it
            auto engine = load(model, {.dtype = DType::f32, .ctx = 1100});
            Session session(engine);
            std::vector<std::int32_t> prompt = long_text(1000, 5);
            prompt.push_back(7);
            for (std::size_t i = 1; i < end; ++i) prompt.push_back(static_cast<std::int32_t>(10 + i));
            EXPECT_EQ(session.feed(prompt), 0);
            prompt[1000] = 9;
            const int cached = session.feed(prompt);
            EXPECT_LT(static_cast<int>(prompt.size()) - cached, 100) << model << " end " << end;
            const auto resumed = copy(session.logits());
            session.clear();
            EXPECT_EQ(session.feed(prompt), 0);
            EXPECT_LT(worst_difference(copy(session.logits()), resumed), 2e-5) << model;
        }
}

TEST(Session, AHybridsSecondTurnComputesOnlyNewTokens) {
    const std::string path = testing::TempDir() + "forge_session_turns";
    auto engine = load("qwen3.5-moe", {.dtype = DType::f32, .ctx = 600});
    engine->set_message_starts(std::vector<std::int32_t>{63});
    Session session(engine);
    std::vector<std::int32_t> first = long_text(190, 5);
    first.push_back(63);
    for (const std::int32_t id : long_text(9, 8)) first.push_back(id);
    EXPECT_EQ(session.feed(first), 0);
    std::vector<std::int32_t> second = first;
    for (const std::int32_t id : long_text(20, 9)) {
        session.append(id);
        second.push_back(id);
    }
    session.save(path);
    for (const std::int32_t id : long_text(30, 10)) second.push_back(id);
    EXPECT_EQ(session.feed(second), 220);   // of 250: the first prompt and the answer
    const auto expected = copy(session.logits());

    // The same after a restart.
    Session restored(load("qwen3.5-moe", {.dtype = DType::f32, .ctx = 600}));
    restored.restore(path);
    EXPECT_EQ(restored.feed(second), 220);
    EXPECT_TRUE(same_bits(copy(restored.logits()), expected));

    // A template that writes the last message anew: from its beginning on, also after a restart.
    std::vector<std::int32_t> other(first.begin(), first.begin() + 192);
    for (const std::int32_t id : long_text(40, 11)) other.push_back(id);
    EXPECT_EQ(session.feed(other), 190);
    Session again(load("qwen3.5-moe", {.dtype = DType::f32, .ctx = 600}));
    again.restore(path);
    EXPECT_EQ(again.feed(other), 190);
    EXPECT_TRUE(same_bits(copy(again.logits()), copy(session.logits())));
    std::filesystem::remove(path);
}

TEST(Session, FullContextAndLongPromptsAreSentences) {
    auto engine = load("llama-gqa-tied", {.ctx = 20});
    Session session(engine);
    try {
        session.feed(text);
        FAIL();
    } catch (const Error& e) {
        EXPECT_THAT(e.what(), testing::HasSubstr("48 tokens, and the context holds 20"));
    }
    session.feed(std::span(text).first(18));
    Sampler sampler({.temperature = 0}, engine->spec().vocab);
    int tokens = 0;
    EXPECT_EQ(generate(session, sampler, {.max_tokens = -1, .stop_ids = {}, .ignore_stop = true}, [&](std::int32_t) { return ++tokens > 0; }), FinishReason::length);
    EXPECT_EQ(tokens, 3);   // two that fit and one whose successor nobody can compute
    EXPECT_THROW(session.append(1), Error);
    EXPECT_THROW(Session{engine}, Error);   // one sequence was reserved
}

TEST(Session, ProgressMayStopBetweenChunks) {
    auto engine = load("llama-gqa-tied", {.chunk = 10});
    Session session(engine);
    int calls = 0;
    EXPECT_THROW(session.feed(text, [&](int, int) { return ++calls < 3; }), Session::Stopped);
    EXPECT_EQ(session.tokens().size(), 20u);
    EXPECT_EQ(session.feed(text), 20);
}

TEST(Engine, WrongOptionsAreSentences) {
    EXPECT_THROW(load("llama-gqa-tied", {.device = "tpu"}), Error);
    EXPECT_THROW(load("llama-gqa-tied", {.parallel = 0}), Error);
    EXPECT_THROW(load("llama-gqa-tied", {.passes_off = {"nothing"}}), Error);
    EXPECT_THROW(Engine::load("/nonexistent/model.gguf", {}), Error);
    auto engine = load("llama-gqa-tied", {});
    const StepInput outside{100000, 0, 0, true};
    EXPECT_THROW(engine->step({&outside, 1}), Error);
}

}  // namespace
}  // namespace forge
