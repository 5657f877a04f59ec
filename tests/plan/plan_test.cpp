#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/passes.h"
#include "tiny_model.h"

namespace forge {
namespace {

using test::tiny_model;
using testing::HasSubstr;

std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> out;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        out.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return out;
}

// The op names of a plan in order; plans are compared as text.
std::string kinds(const Plan& plan) {
    std::string s;
    for (const Op& op : plan.ops) s += (s.empty() ? "" : " ") + std::string(name_of(op));
    return s;
}

TEST(Plan, UnfusedOneLayer) {
    const Plan plan = build_plan(tiny_model({.layers = 1}));
    EXPECT_EQ(kinds(plan), "rope_table embed norm matmul matmul matmul qk_prepare attention matmul add "
                           "norm matmul matmul act_mul matmul add take_rows norm matmul");
}

TEST(Plan, PrintsOneLineAnOp) {
    const Plan plan = build_plan(tiny_model({.layers = 1}));
    const auto text = lines(print(plan));
    ASSERT_EQ(text.size(), plan.ops.size());
    EXPECT_THAT(text[3], HasSubstr("%q.0 act[M, 18] = matmul(%attn_norm.0) 0.attn_q<bf16>"));
    EXPECT_THAT(text.back(), HasSubstr("%logits f32[R, 50] = matmul(%final_norm)"));
}

TEST(Passes, FuseAPlainLayer) {
    Plan plan = build_plan(tiny_model({.layers = 2}));
    run_passes(plan, {});
    // The last layer's projections run on output rows; norms and residuals are inside the matmuls.
    EXPECT_EQ(kinds(plan), "rope_table embed matmul matmul matmul qk_prepare attention matmul matmul matmul "
                           "take_rows matmul matmul matmul qk_prepare attention take_rows matmul matmul matmul matmul");
}

TEST(Passes, AGpusAttentionPreparesWhatItReads) {
    Plan plan = build_plan(tiny_model({.layers = 1}));
    run_passes(plan, std::vector<std::string>{"trim_outputs"}, PassTarget::gpu);
    EXPECT_EQ(kinds(plan), "rope_table embed matmul matmul matmul attention matmul matmul matmul take_rows matmul");
}

TEST(Passes, SandwichNormsAddTheResidual) {
    Plan plan = build_plan(tiny_model({.sandwich = true, .layers = 1}));
    run_passes(plan, {});
    EXPECT_EQ(kinds(plan), "rope_table embed take_rows matmul matmul matmul qk_prepare attention take_rows matmul norm "
                           "matmul matmul norm matmul");
    int with_residual = 0;
    for (const Op& op : plan.ops)
        if (std::holds_alternative<NormOp>(op.attributes)) with_residual += op.inputs.size() == 2;
    EXPECT_EQ(with_residual, 2);
}

TEST(Passes, BiasesStayWithTheirMatmul) {
    Plan plan = build_plan(tiny_model({.bias = true, .layers = 1}));
    run_passes(plan, {});
    const std::string text = print(plan);
    EXPECT_THAT(text, HasSubstr("silu * 0.ffn_up<bf16> bias 0.ffn_up_bias"));
    EXPECT_THAT(text, HasSubstr("0.attn_o<bf16> bias 0.attn_o_bias + residual"));
}

TEST(Passes, EachCanBeSwitchedOff) {
    const Plan unfused = build_plan(tiny_model());
    for (const PassTarget target : {PassTarget::cpu, PassTarget::gpu, PassTarget::any})
        for (const Pass& pass : all_passes()) {
            Plan plan = unfused;
            const std::vector<std::string> off{std::string(pass.name)};
            for (const PassReport& report : run_passes(plan, off, target)) EXPECT_EQ(report.skipped, report.name == pass.name);
        }
    Plan plan = unfused;
    run_passes(plan, std::vector<std::string>{"all"});
    EXPECT_EQ(print(plan), print(unfused));
    EXPECT_THROW(run_passes(plan, std::vector<std::string>{"fuse_everything"}), Error);
}

// Weights of two formats cannot share one inner loop.
TEST(Passes, GateAndUpOfDifferentFormatsStayApart) {
    BoundModel model = tiny_model({.layers = 1});
    Weight& up = model.weights[static_cast<std::size_t>(model.spec.layers[0][Role::ffn_up])];
    up.format.dense_type = DType::f16;
    up.format.bits = 16;
    Plan plan = build_plan(model);
    run_passes(plan, {});
    EXPECT_THAT(kinds(plan), HasSubstr("act_mul"));
}

TEST(Verify, NamesTheBrokenRule) {
    const Plan good = build_plan(tiny_model());
    auto message = [](const Plan& plan) -> std::string {
        try {
            verify(plan);
        } catch (const Error& e) {
            return e.what();
        }
        return "no error";
    };
    Plan plan = good;
    std::swap(plan.ops[2], plan.ops[3]);
    EXPECT_THAT(message(plan), HasSubstr("inputs that earlier ops made"));
    plan = good;
    plan.values[plan.ops[3].output].cols = 17;
    EXPECT_THAT(message(plan), HasSubstr("matmul"));
    plan = good;
    plan.ops.pop_back();
    EXPECT_THAT(message(plan), HasSubstr("logits"));
    plan = good;
    for (Op& op : plan.ops)
        if (auto* a = std::get_if<AttentionOp>(&op.attributes)) a->attention.kv_layer = 7;
    EXPECT_THAT(message(plan), HasSubstr("a cache layer that was written before"));
    plan = good;
    std::get<NormOp>(plan.ops[2].attributes).weight = plan.ops[2].inputs[0] + 1000;
    EXPECT_THAT(message(plan), HasSubstr("a weight that exists"));
}

}  // namespace
}  // namespace forge
