// Hidden states and pooled vectors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <future>
#include <memory>

#include "base/float16.h"
#include "reference_file.h"
#include "runtime/batcher.h"

namespace forge {
namespace {

std::shared_ptr<Engine> engine(DType dtype, int chunk = 16) {
    return Engine::load(test::tiny_model("qwen3-tied").model.string(), {.dtype = dtype, .threads = 2, .ctx = 128, .parallel = 2, .chunk = chunk, .max_outputs = 64});
}

std::vector<std::int32_t> prompt(int length) {
    std::vector<std::int32_t> p;
    for (int i = 0; i < length; ++i) p.push_back((7 + i * 17 + i * i) % 64);
    return p;
}

std::vector<StepInput> rows_of(const std::vector<std::int32_t>& ids) {
    std::vector<StepInput> rows;
    for (std::size_t i = 0; i < ids.size(); ++i) rows.push_back({ids[i], 0, static_cast<std::int32_t>(i), true});
    return rows;
}

// The table that is embedding and head at once, in floats.
std::vector<float> table(const Engine& engine) {
    const Tensor& t = engine.file().get("model.embed_tokens.weight");
    std::vector<float> out(static_cast<std::size_t>(t.shape[0] * t.shape[1]));
    for (std::size_t i = 0; i < out.size(); ++i) {
        if (t.dtype == DType::f32) {
            std::memcpy(&out[i], t.data.data() + 4 * i, 4);
        } else {
            std::uint16_t bits;
            std::memcpy(&bits, t.data.data() + 2 * i, 2);
            out[i] = t.dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
        }
    }
    return out;
}

// The head's product with the hidden states is the logits, for one row and for matrix kernels.
TEST(Embedding, TheHeadMakesLogitsOfIt) {
    for (const int count : {1, 5, 16}) {
        const auto e = engine(DType::f32);
        const auto ids = prompt(count);
        const std::size_t hidden = static_cast<std::size_t>(e->spec().hidden), vocab = static_cast<std::size_t>(e->spec().vocab), n = ids.size();
        const auto states_view = e->embed(rows_of(ids));
        const std::vector<float> states(states_view.begin(), states_view.end());
        ASSERT_EQ(states.size(), n * hidden);
        const auto logits = e->step(rows_of(ids));
        ASSERT_EQ(logits.size(), n * vocab);
        const std::vector<float> head = table(*e);
        for (std::size_t r = 0; r < n; ++r)
            for (std::size_t v = 0; v < vocab; ++v) {
                double sum = 0;
                for (std::size_t k = 0; k < hidden; ++k) sum += double(states[r * hidden + k]) * head[v * hidden + k];
                ASSERT_NEAR(sum, logits[r * vocab + v], 2e-4) << r << " " << v;
            }
    }
}

std::vector<float> pooled(Batcher& batcher, const std::vector<std::int32_t>& ids, Pooling pooling) {
    const auto promise = std::make_shared<std::promise<std::vector<float>>>();   // of both threads
    std::vector<float> vector;
    BatchRequest request;
    request.prompt = ids;
    request.pooling = pooling;
    request.on_embedding = [&](std::span<const float> v) { vector.assign(v.begin(), v.end()); };
    request.on_done = [&vector, promise](FinishReason, const BatchStats& stats) {
        EXPECT_EQ(stats.cached_tokens, 0);
        promise->set_value(vector);
    };
    request.on_error = [promise](const std::string& error) { promise->set_exception(std::make_exception_ptr(std::runtime_error(error))); };
    batcher.submit(std::move(request));
    return promise->get_future().get();
}

// One chunk or several, last and mean: as computed from all hidden states at once, and of length 1.
TEST(Embedding, PoolsTheLastStateOrTheMean) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        const auto ids = prompt(53);
        const auto whole = engine(dtype, 64);
        const std::size_t hidden = static_cast<std::size_t>(whole->spec().hidden);
        const auto states = whole->embed(rows_of(ids));
        for (const Pooling pooling : {Pooling::last, Pooling::mean}) {
            std::vector<double> expected(hidden, 0);
            for (std::size_t i = pooling == Pooling::last ? states.size() - hidden : 0; i < states.size(); ++i) expected[i % hidden] += states[i];
            double squares = 0;
            for (const double x : expected) squares += x * x;
            Batcher batcher(engine(dtype), 4, 1 << 20);
            const auto vector = pooled(batcher, ids, pooling);
            ASSERT_EQ(vector.size(), hidden);
            double length = 0;
            for (std::size_t k = 0; k < hidden; ++k) {
                EXPECT_NEAR(vector[k], expected[k] / std::sqrt(squares), dtype == DType::f32 ? 1e-5 : 0.02);
                length += double(vector[k]) * vector[k];
            }
            EXPECT_NEAR(length, 1, 1e-5);
            EXPECT_EQ(pooled(batcher, ids, pooling), vector);
        }
    }
}

}  // namespace
}  // namespace forge
