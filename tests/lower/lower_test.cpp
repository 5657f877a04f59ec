#include "lower/lower.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "../plan/tiny_model.h"
#include "plan/passes.h"

namespace forge {
namespace {

Launch launch(std::vector<Operand> operands) {
    Launch l;
    l.kernel = "test";
    l.operands = std::move(operands);
    return l;
}
Operand reads(std::uint64_t offset, std::uint64_t bytes) { return {"r", {Space::arena, 0, offset, bytes}, Access::read}; }
Operand writes(std::uint64_t offset, std::uint64_t bytes) { return {"w", {Space::arena, 0, offset, bytes}, Access::write}; }

TEST(Barriers, OnlyWhereBytesOverlap) {
    std::vector<Launch> l{
        launch({writes(0, 64)}),
        launch({writes(64, 64)}),               // independent
        launch({reads(0, 8), writes(128, 64)}), // reads what the first wrote
        launch({reads(64, 64), writes(192, 64)}),  // only reads what was written before the barrier
        launch({reads(128, 1)}),                // reads the third's
        launch({writes(128, 1)}),               // writes what the fifth reads
        launch({reads(129, 1)}),                // next to it
        launch({{"k", {Space::keys, 3, 0, 0}, Access::write}}),
        launch({{"k", {Space::keys, 2, 0, 0}, Access::read}}),
        launch({{"k", {Space::keys, 3, 0, 0}, Access::read}}),
        launch({{"w", {Space::weight, 1, 0, 0}, Access::read}}),
    };
    place_barriers(l);
    std::vector<bool> placed;
    for (auto& x : l) placed.push_back(x.barrier);
    EXPECT_EQ(placed, (std::vector<bool>{false, false, true, false, true, true, false, false, false, true, false}));
}

TEST(Arena, LiveBuffersNeverOverlap) {
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
        std::vector<ArenaBuffer> buffers(1 + random() % 40);
        std::uint64_t sum = 0, largest_live = 0;
        for (auto& b : buffers) {
            b.bytes = 64 * (1 + random() % 50);
            b.first = static_cast<int>(random() % 30);
            b.last = b.first + static_cast<int>(random() % 6);
            sum += b.bytes;
        }
        const std::uint64_t total = layout_arena(buffers);
        for (int segment = 0; segment < 40; ++segment) {
            std::uint64_t live = 0;
            for (auto& b : buffers) live += segment >= b.first && segment <= b.last ? b.bytes : 0;
            largest_live = std::max(largest_live, live);
        }
        EXPECT_GE(total, largest_live);
        EXPECT_LE(total, sum);
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            EXPECT_EQ(buffers[i].offset % 64, 0u);
            EXPECT_LE(buffers[i].offset + buffers[i].bytes, total);
            for (std::size_t j = 0; j < i; ++j) {
                const auto &a = buffers[i], &b = buffers[j];
                const bool together = a.first <= b.last && b.first <= a.last;
                const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
                EXPECT_TRUE(!together || apart);
            }
        }
    }
}

const LowerTarget target{[](WeightId, int rows) { return std::uint64_t(rows) * 64; },
                         [](WeightId, WeightId) { return true; },
                         [](int rows, int heads, int head_dim) { return std::uint64_t(rows * heads * (head_dim + 2) * 4); }};

Program lowered(bool fused, int rows) {
    const BoundModel model = test::tiny_model({.sandwich = true, .bias = true, .qk_norm = true, .layers = 3});
    Plan plan = build_plan(model);
    if (fused) run_passes(plan, {});
    return lower(plan, model.spec.ropes, {DType::bf16, rows, 1}, target);
}

TEST(Lower, RowsChooseTheKernels) {
    std::set<std::string> decode, prefill;
    for (auto& l : lowered(true, 8).launches) decode.insert(l.kernel);
    for (auto& l : lowered(true, 9).launches) prefill.insert(l.kernel);
    EXPECT_TRUE(decode.count("matvec") && decode.count("attention_decode") && decode.count("attention_combine"));
    EXPECT_FALSE(decode.count("gemm") || decode.count("pack") || decode.count("attention_prefill"));
    EXPECT_TRUE(prefill.count("gemm") && prefill.count("pack") && prefill.count("attention_prefill"));
    EXPECT_TRUE(prefill.count("matvec"));  // the output rows: one
}

// q, k and v read one packed input; gate and up too.
TEST(Lower, PackedInputsAreShared) {
    int packs = 0, gemms = 0;
    for (auto& l : lowered(false, 64).launches) {
        packs += l.kernel == "pack";
        gemms += l.kernel == "gemm";
    }
    EXPECT_EQ(gemms, 3 * 7);
    EXPECT_EQ(packs, 3 * 4);
}

// Every read of the arena finds what was written for it: between the write and the read no other launch writes there,
// and a barrier stands between them.
TEST(Lower, ReadsFindTheirWrites) {
    for (bool fused : {false, true}) {
        for (int rows : {1, 8, 100}) {
            const Program program = lowered(fused, rows);
            std::vector<int> writer(program.arena_bytes, -1), segment_of(program.launches.size());
            int segment = 0;
            for (std::size_t i = 0; i < program.launches.size(); ++i) {
                segment += program.launches[i].barrier;
                segment_of[i] = segment;
                for (const Operand& o : program.launches[i].operands) {
                    if (o.buffer.space != Space::arena || o.access != Access::read) continue;
                    ASSERT_LE(o.buffer.offset + o.buffer.bytes, program.arena_bytes);
                    const int w = writer[o.buffer.offset];
                    ASSERT_GE(w, 0) << o.name << " of " << program.launches[i].label;
                    for (std::uint64_t b = 0; b < o.buffer.bytes; ++b) ASSERT_EQ(writer[o.buffer.offset + b], w);
                    ASSERT_LT(segment_of[static_cast<std::size_t>(w)], segment);
                }
                for (const Operand& o : program.launches[i].operands) {
                    if (o.buffer.space != Space::arena || o.access == Access::read) continue;
                    for (std::uint64_t b = 0; b < o.buffer.bytes; ++b) writer[o.buffer.offset + b] = static_cast<int>(i);
                }
            }
            EXPECT_EQ(program.launches[static_cast<std::size_t>(writer[program.logits.offset])].label, "logits");
        }
    }
}

TEST(Lower, FusionRemovesBarriers) { EXPECT_LT(lowered(true, 1).barriers(), lowered(false, 1).barriers()); }

}  // namespace
}  // namespace forge
