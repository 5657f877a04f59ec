// Every committed tiny model on a GPU: float logits as the reference's, 16-bit tokens as the CPU backend's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "../runtime/reference_file.h"
#include "base/error.h"
#include "runtime/session.h"
#include "test_device.h"

namespace forge::test {
namespace {

std::shared_ptr<Engine> load(const TinyModel& model, const std::string& device, DType dtype, int rows, std::vector<std::string> passes_off = {}, const std::string& tune = "off") {
    LoadOptions options;
    options.tune = tune;
    options.passes_off = std::move(passes_off);
    options.device = device;
    options.dtype = dtype;
    options.threads = 2;
    options.ctx = 160;
    options.chunk = rows;
    options.max_outputs = rows;
    return Engine::load(model.model.string(), options);
}

// Logits of every position, [positions][vocab].
std::vector<float> score(const std::shared_ptr<Engine>& engine, const std::vector<std::int32_t>& ids) {
    Session session(engine);
    std::vector<float> logits;
    session.score(ids, [&](int, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
    return logits;
}

double largest(std::span<const float> values) {
    double most = 0;
    for (const float v : values) most = std::max(most, std::fabs(static_cast<double>(v)));
    return most;
}

// All over the reference's rows.
double root_mean_square_difference(std::span<const float> found, std::span<const float> reference) {
    double sum = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) sum += std::pow(static_cast<double>(found[i]) - static_cast<double>(reference[i]), 2);
    return std::sqrt(sum / static_cast<double>(reference.size()));
}

// The same for each position, and of these the one in the middle.
double typical_difference(std::span<const float> found, std::span<const float> reference, std::size_t vocab) {
    std::vector<double> each;
    for (std::size_t at = 0; at + vocab <= reference.size(); at += vocab) each.push_back(root_mean_square_difference(found.subspan(at, vocab), reference.subspan(at, vocab)));
    std::nth_element(each.begin(), each.begin() + static_cast<std::ptrdiff_t>(each.size() / 2), each.end());
    return each[each.size() / 2];
}

// Infinite where `found` is no number.
double worst_difference(std::span<const float> found, std::span<const float> reference) {
    double worst = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
        if (std::isnan(found[i])) return INFINITY;
        worst = std::max(worst, std::fabs(static_cast<double>(found[i]) - static_cast<double>(reference[i])));
    }
    return worst;
}

std::size_t arg_max(const float* row, std::size_t n) { return static_cast<std::size_t>(std::max_element(row, row + n) - row); }

class WholeModels : public testing::TestWithParam<TinyModel> {
  protected:
    void SetUp() override {
        std::string reason;
        device_ = test_device(&reason);
        if (device_.empty()) GTEST_SKIP() << reason;
    }
    std::vector<std::int32_t> forced_ids() const {
        for (const ReferenceRecord& r : read_reference(GetParam().folder / "reference.jsonl"))
            if (!r.greedy) return r.ids;
        return {};
    }
    std::string device_;
};

TEST_P(WholeModels, FloatLogitsEqualTheReference) {
    const std::vector<std::int32_t> ids = forced_ids();
    const std::vector<float> expected = read_floats(GetParam().folder / "logits.f32");
    const double bound = 1e-4 * largest(expected);
    for (const int rows : quick() ? std::vector{7, 48} : std::vector{1, 7, 48}) {
        std::shared_ptr<Engine> engine;
        try {
            engine = load(GetParam(), device_, DType::f32, rows);
        } catch (const Error& e) {
            if (e.kind() != ErrorKind::unsupported) throw;
            GTEST_SKIP() << e.what();
        }
        const std::vector<float> found = score(engine, ids);
        ASSERT_GE(found.size(), expected.size());
        EXPECT_LE(worst_difference(found, expected), bound) << "steps of " << rows << " rows";
    }
}

// A prompt's steps have many rows and at most one output.
TEST_P(WholeModels, OneOutputOfManyRowsEqualsTheReference) {
    const std::vector<std::int32_t> ids = forced_ids();
    const std::vector<float> expected = read_floats(GetParam().folder / "logits.f32");
    for (const int rows : quick() ? std::vector{48} : std::vector{7, 48}) {
        LoadOptions options;
        options.device = device_;
        options.dtype = DType::f32;
        options.ctx = 160;
        options.chunk = rows;
        options.max_outputs = 1;
        std::shared_ptr<Engine> engine;
        try {
            engine = Engine::load(GetParam().model.string(), options);
        } catch (const Error& e) {
            if (e.kind() != ErrorKind::unsupported) throw;
            GTEST_SKIP() << e.what();
        }
        const auto vocab = static_cast<std::size_t>(engine->spec().vocab);
        const std::size_t positions = std::min(ids.size(), expected.size() / vocab);
        Session session(engine);
        session.feed(std::span(ids).first(positions));
        EXPECT_LE(worst_difference(session.logits(), std::span(expected).subspan((positions - 1) * vocab, vocab)), 1e-4 * largest(expected)) << "steps of " << rows << " rows";
    }
}

// In 16 bits both backends round, in different places (the CPU's matrix kernels also round weights): so they are
// held against the f32 reference, where the GPU may not be much farther off than the CPU.
TEST_P(WholeModels, SixteenBitTokensEqualTheCpus) {
    const std::vector<std::int32_t> ids = forced_ids();
    const std::vector<float> reference = read_floats(GetParam().folder / "logits.f32");
    for (const DType dtype : {DType::bf16, DType::f16})
        for (const int rows : quick() && dtype == DType::f16 ? std::vector{48} : std::vector{1, 48}) {
            std::shared_ptr<Engine> engine;
            try {
                engine = load(GetParam(), device_, dtype, rows);
            } catch (const Error& e) {
                if (e.kind() != ErrorKind::unsupported) throw;
                GTEST_SKIP() << e.what();
            }
            const std::vector<float> found = score(engine, ids), wanted = score(load(GetParam(), "cpu", dtype, rows), ids);
            ASSERT_EQ(found.size(), wanted.size());
            const std::size_t vocab = wanted.size() / ids.size();
            ASSERT_GE(found.size(), reference.size());
            const double range = largest(wanted), ours_off = worst_difference(found, reference), theirs_off = worst_difference(wanted, reference);
            // Two roundings of the same size would be sqrt(2) times as far off in the root mean square. The largest of so many
            // differences scatters more, the CPU's too, with what instructions it has; most where matrix units take weights
            // rounded to T, which the CPU does for bf16 alone.
            const bool rounds_more = dtype == DType::f16 && rows > 8;
            SCOPED_TRACE(std::string(name_of(dtype)) + ", steps of " + std::to_string(rows));
            EXPECT_LE(typical_difference(found, reference, vocab), 1.5 * typical_difference(wanted, reference, vocab));
            // Where a near tie between experts falls otherwise, a position is as far off as another expert makes it: 2.03 times
            // over all positions of the worst model.
            const std::vector<LayerSpec>& layers = engine->spec().layers;
            const bool experts = std::any_of(layers.begin(), layers.end(), [](const LayerSpec& l) { return l.feed_forward.moe.experts > 0; });
            EXPECT_LE(root_mean_square_difference(found, reference), (experts ? 2.5 : 1.5) * root_mean_square_difference(wanted, reference));
            if (!experts) {
                EXPECT_LE(ours_off, (rounds_more ? 2.5 : 2.0) * theirs_off);
            }
            int ties = 0;
            for (std::size_t p = 0; p < ids.size(); ++p) {
                const float* cpu = &wanted[p * vocab];
                const std::size_t ours = arg_max(&found[p * vocab], vocab), theirs = arg_max(cpu, vocab);
                if (ours == theirs) continue;
                const double gap = static_cast<double>(cpu[theirs]) - static_cast<double>(cpu[ours]);
                ++ties;
                std::printf("near tie: %s %s steps of %d, position %zu: %zu instead of %zu, %.4f apart of %.2f\n", GetParam().name.c_str(),
                            std::string(name_of(dtype)).c_str(), rows, p, ours, theirs, gap, range);
            }
            EXPECT_LE(ties, static_cast<int>(ids.size()) / 10);
        }
}

// A row's bits do not depend on how many rows are in the step (up to eight).
TEST_P(WholeModels, RowsDoNotDependOnTheirNeighbours) {
    const std::vector<std::int32_t> ids = forced_ids();
    std::vector<float> first;
    for (const int rows : quick() ? std::vector{1, 6} : std::vector{1, 2, 3, 5, 8}) {
        std::shared_ptr<Engine> engine;
        try {
            engine = load(GetParam(), device_, DType::bf16, rows);
        } catch (const Error& e) {
            if (e.kind() != ErrorKind::unsupported) throw;
            GTEST_SKIP() << e.what();
        }
        const std::vector<float> found = score(engine, ids);
        if (first.empty()) first = found;
        EXPECT_EQ(found, first) << "steps of " << rows << " rows";
    }
}

// Every pass of the plan leaves the bits as they are.
TEST_P(WholeModels, FusedBitsEqualUnfused) {
    const std::vector<std::int32_t> ids = forced_ids();
    for (const int rows : quick() ? std::vector{1} : std::vector{1, 5, 48}) {
        std::vector<float> fused;
        try {
            fused = score(load(GetParam(), device_, DType::bf16, rows), ids);
        } catch (const Error& e) {
            if (e.kind() != ErrorKind::unsupported) throw;
            GTEST_SKIP() << e.what();
        }
        std::vector<std::string> off{"all"};
        if (!quick() && rows == 1) off.insert(off.end(), {"fuse_conv", "fuse_gated_norm", "fuse_prepare", "fuse_head_gate", "fuse_merge", "skip_take", "order_products"});
        for (const std::string& pass : off) EXPECT_EQ(score(load(GetParam(), device_, DType::bf16, rows, {pass}), ids), fused) << "without " << pass << ", steps of " << rows;
    }
}

// So does whatever the tuner may choose: launches that are taken apart, other tiles.
TEST_P(WholeModels, VariantsKeepEveryBit) {
    if (GetParam().name != "llama-gqa-tied" && GetParam().name != "qwen3.5-moe" && quick()) GTEST_SKIP() << "two models are enough here";
    const std::vector<std::int32_t> ids = forced_ids();
    for (const int rows : {1, 48}) {
        const std::string gemm = device_ == "cuda" ? "gemm=tile 64x64" : "gemm=tile 32x32x32 ahead";
        const std::string forced = rows == 1 ? "off;matvec=normed before;attention_decode=prepared before" : "off;" + gemm;
        std::vector<float> standard, other;
        try {
            standard = score(load(GetParam(), device_, DType::bf16, rows), ids);
            other = score(load(GetParam(), device_, DType::bf16, rows, {}, forced), ids);
        } catch (const Error& e) {
            if (e.kind() == ErrorKind::internal) throw;
            GTEST_SKIP() << e.what();   // not every model has all of them
        }
        EXPECT_EQ(standard, other) << forced;
    }
}

// 48 tokens, each the CPU's choice after the ones before it: the table in docs/numerics.md counts them.
TEST_P(WholeModels, NextTokensEqualTheCpus) {
    const std::vector<std::int32_t> ids = forced_ids();
    const std::span<const std::int32_t> prompt(ids.data(), std::min<std::size_t>(ids.size(), 12));
    const int count = quick() ? 16 : 48;
    for (const DType dtype : quick() ? std::vector{DType::bf16} : std::vector{DType::f32, DType::bf16}) {
        std::shared_ptr<Engine> engine;
        try {
            engine = load(GetParam(), device_, dtype, 8);
        } catch (const Error& e) {
            if (e.kind() != ErrorKind::unsupported) throw;
            GTEST_SKIP() << e.what();
        }
        Session ours(engine), cpus(load(GetParam(), "cpu", dtype, 8));
        ours.feed(prompt);
        cpus.feed(prompt);
        int equal = 0;
        double widest = 0;
        for (int i = 0; i < count; ++i) {
            const std::span<const float> found = ours.logits(), wanted = cpus.logits();
            const std::size_t token = arg_max(wanted.data(), wanted.size()), other = arg_max(found.data(), found.size());
            const double gap = static_cast<double>(wanted[token]) - static_cast<double>(wanted[other]);
            equal += other == token;
            widest = std::max(widest, gap / largest(wanted));
            if (dtype == DType::f32) {
                EXPECT_LE(gap, 2e-4 * largest(wanted)) << "token " << i;
            }
            ours.append(static_cast<std::int32_t>(token));
            cpus.append(static_cast<std::int32_t>(token));
        }
        std::printf("next tokens: %s %s %d of %d as the CPU's, others %.4f of the largest logit apart at most\n", GetParam().name.c_str(), std::string(name_of(dtype)).c_str(), equal, count, widest);
        EXPECT_GE(equal, count - count / 8);
    }
}

// Greedy generation picks its tokens on the device, in runs; a stop inside of one takes the rest back.
TEST_P(WholeModels, GreedyTokensEqualTheHosts) {
    const std::vector<std::int32_t> ids = forced_ids();
    const std::span<const std::int32_t> prompt(ids.data(), std::min<std::size_t>(ids.size(), 12));
    std::shared_ptr<Engine> engine;
    try {
        engine = load(GetParam(), device_, DType::bf16, quick() ? 8 : 48);
    } catch (const Error& e) {
        if (e.kind() != ErrorKind::unsupported) throw;
        GTEST_SKIP() << e.what();
    }
    const auto vocab = static_cast<std::int32_t>(engine->spec().vocab);
    const std::size_t count = quick() ? 16 : 50;
    std::vector<std::int32_t> wanted;
    {
        Session session(engine);
        session.feed(prompt);
        while (wanted.size() < count) {
            wanted.push_back(static_cast<std::int32_t>(arg_max(session.logits().data(), session.logits().size())));
            session.append(wanted.back());
        }
    }
    Session session(engine);
    SamplingOptions greedy;
    greedy.temperature = 0;
    Sampler sampler(greedy, vocab);
    const auto run = [&](std::vector<std::int32_t> stops, std::size_t most) {
        std::vector<std::int32_t> found;
        const FinishReason reason = generate(session, sampler, {static_cast<int>(most), std::move(stops), false}, [&](std::int32_t token) {
            found.push_back(token);
            return true;
        });
        return std::make_pair(found, reason);
    };
    session.feed(prompt);
    EXPECT_EQ(run({}, count).first, wanted);
    // The first token that was not seen before, some way in, as the stop.
    std::size_t at = 6;
    while (at < count && std::find(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(at), wanted[at]) != wanted.begin() + static_cast<std::ptrdiff_t>(at)) ++at;
    if (at == count) return;
    const std::vector<std::int32_t> before(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(at)), after(wanted.begin() + static_cast<std::ptrdiff_t>(at), wanted.end());
    session.clear();
    session.feed(prompt);
    const auto [found, reason] = run({wanted[at]}, count);
    EXPECT_EQ(found, before);
    EXPECT_EQ(reason, FinishReason::stop);
    std::vector<std::int32_t> whole(prompt.begin(), prompt.end());
    whole.insert(whole.end(), before.begin(), before.end());
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), session.tokens().begin(), session.tokens().end()));
    session.feed(whole);
    EXPECT_EQ(run({}, count - at).first, after);
}

// Far into a context with a window, whose parts a step at another position counted.
TEST_P(WholeModels, StepsAfterALongPromptEqualItsScores) {
    if (quick() || (GetParam().name.find("window") == std::string::npos && GetParam().name != "gemma3-new")) GTEST_SKIP() << "for models with windows";
    LoadOptions options;
    options.device = device_;
    options.dtype = DType::f32;
    options.ctx = 320;
    options.chunk = options.max_outputs = 64;
    const auto engine = Engine::load(GetParam().model.string(), options);
    std::vector<std::int32_t> ids = forced_ids();
    while (ids.size() < 300) ids.insert(ids.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), 300 - ids.size())));
    const std::vector<float> scores = score(engine, ids);
    const std::size_t vocab = scores.size() / ids.size();
    Session session(engine);
    session.feed(std::span(ids).first(180));
    for (std::size_t p = 180; p < ids.size(); ++p) {
        session.append(ids[p]);
        const std::span<const float> wanted(&scores[p * vocab], vocab);
        ASSERT_LE(worst_difference(session.logits(), wanted), 1e-4 * largest(scores)) << "position " << p;
    }
}

// Hidden states of every position, for embeddings: floats as the CPU's, 16 bits about as far from them as the CPU's are.
TEST_P(WholeModels, HiddenStatesEqualTheCpus) {
    const std::vector<std::int32_t> ids = forced_ids();
    const auto states = [&](const std::string& device, DType dtype, int rows) {
        const auto engine = load(GetParam(), device, dtype, rows);
        std::vector<float> all;
        for (std::size_t first = 0; first < ids.size(); first += static_cast<std::size_t>(rows)) {
            std::vector<StepInput> step;
            for (std::size_t i = first; i < std::min(ids.size(), first + static_cast<std::size_t>(rows)); ++i) step.push_back({ids[i], 0, static_cast<std::int32_t>(i), true});
            const auto part = engine->embed(step);
            EXPECT_EQ(part.size(), step.size() * static_cast<std::size_t>(engine->spec().hidden));
            all.insert(all.end(), part.begin(), part.end());
        }
        return all;
    };
    for (const int rows : quick() ? std::vector{48} : std::vector{7, 48}) {
        std::vector<float> found;
        try {
            found = states(device_, DType::f32, rows);
        } catch (const Error& e) {
            if (e.kind() != ErrorKind::unsupported) throw;
            GTEST_SKIP() << e.what();
        }
        const std::vector<float> exact = states("cpu", DType::f32, rows);
        ASSERT_EQ(found.size(), exact.size());
        EXPECT_LE(worst_difference(found, exact), 1e-4 * largest(exact)) << "steps of " << rows;
        if (quick()) continue;
        const std::vector<float> ours = states(device_, DType::bf16, rows), cpus = states("cpu", DType::bf16, rows);
        EXPECT_LE(worst_difference(ours, exact), 2 * worst_difference(cpus, exact) + 1e-2 * largest(exact)) << "steps of " << rows;
    }
}

std::vector<TinyModel> sample() {
    std::vector<TinyModel> models = tiny_models();
    std::erase_if(models, [](const TinyModel& m) { return !in_sample(m.name); });
    return models;
}

INSTANTIATE_TEST_SUITE_P(All, WholeModels, testing::ValuesIn(sample()), [](const auto& info) {
    std::string name = info.param.name;
    std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
    return name;
});

}  // namespace
}  // namespace forge::test
