#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "run_forge.h"
#include "tiny_chat.h"

namespace forge::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

std::vector<Json> lines(const std::string& path) {
    std::ifstream file(path);
    std::vector<Json> result;
    for (std::string line; std::getline(file, line);) result.push_back(Json::parse(line));
    return result;
}

std::string write_lines(const std::string& name, const std::vector<Json>& records) {
    std::string text;
    for (const Json& record : records) text += record.dump() + "\n";
    return write_temporary(name, text);
}

Finished eval(const std::string& reference, std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(), {"eval", tiny_model("qwen3-tied"), "--dtype", "f32", "--reference", reference});
    return run_forge(arguments);
}

const std::string& reference_path() {
    static const std::string path = tiny_model("qwen3-tied") + "/reference.jsonl";
    return path;
}

TEST(EvalReference, DemandsHoldAgainstTransformers) {
    const auto r = eval(reference_path(), {"--tokens-equal", "--min-top1", "1", "--max-ppl-diff", "1e-4", "--max-logit-diff", "1e-4"});
    EXPECT_EQ(r.status, 0) << r.out << r.err;
    EXPECT_THAT(r.out, testing::ContainsRegex("all +greedy +96 +96 +0"));
    EXPECT_EQ(r.err, "");
}

TEST(EvalReference, JsonHasFractionsAndEveryRecord) {
    const auto r = eval(reference_path(), {"-o", "json"});
    ASSERT_EQ(r.status, 0) << r.err;
    const Json json = Json::parse(r.out);
    ASSERT_EQ(json.size(), 1u);
    EXPECT_EQ(json[0]["records"].size(), 3u);
    EXPECT_EQ(json[0]["summary"]["greedy_equal"], 96);
    EXPECT_EQ(json[0]["summary"]["top1"], 1.0);
    EXPECT_NEAR(json[0]["summary"]["ppl_diff"].get<double>(), 0, 1e-4);
    EXPECT_EQ(json[0]["records"][0]["prompt_equal"], nullptr);
}

TEST(EvalReference, SeveralFilesAreReadAndEachIsHeldToTheDemands) {
    const auto r = eval(reference_path(), {tiny_model("qwen3-tied") + "/reference.bf16.jsonl", "--max-logit-diff", "1e-4", "-o", "json"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("reference.bf16.jsonl: a logit differs by "));
    const Json json = Json::parse(r.out);
    ASSERT_EQ(json.size(), 2u);
    EXPECT_TRUE(json[0]["unmet"].empty());
    EXPECT_EQ(json[1]["unmet"].size(), 1u);
}

// A reference that claims another token at one position, with a given lead over the true one.
std::string tampered(const std::string& name, double lead) {
    auto records = lines(reference_path());
    for (Json& record : records) {
        if (!record.contains("kind") || record["kind"] != "greedy") continue;
        Json& top = record["top"][5];
        const auto first = top[0];
        const int other = (first[0].get<int>() + 1) % 89;
        top = Json::array({{other, first[1].get<double>() + lead}, first});
        record["tokens"][5] = other;
        break;
    }
    return write_lines(name, records);
}

TEST(EvalReference, DifferencesAreShownAndNearTiesToldApart) {
    auto r = eval(tampered("differs.jsonl", 0.5), {"--tokens-equal"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.out, HasSubstr("line 2 position 5: differs: reference "));
    EXPECT_THAT(r.err, HasSubstr("greedy tokens differ without being near-ties"));
    r = eval(tampered("tie.jsonl", 0.0005), {"-o", "json"});
    const Json record = Json::parse(r.out)[0]["records"][0];
    EXPECT_EQ(record["divergences"][0]["position"], 5);
    EXPECT_EQ(record["divergences"][0]["near_tie"], true);
    EXPECT_GE(record["near_ties"], 1);
    r = eval(tampered("tie.jsonl", 0.0005), {"--tie", "0.0001", "-o", "json"});
    EXPECT_EQ(Json::parse(r.out)[0]["records"][0]["divergences"][0]["near_tie"], false);
    // The token that Forge takes must be one of the tied ones itself.
    auto records = lines(reference_path());
    records[1]["tokens"][5] = 1;
    records[1]["top"][5] = Json::array({{1, 9.0}, {0, 9.0}});
    r = eval(write_lines("third.jsonl", records), {"-o", "json"});
    EXPECT_EQ(Json::parse(r.out)[0]["records"][0]["divergences"][0]["near_tie"], false);
}

TEST(EvalReference, ReplayGoesOnFromTheReferencesToken) {
    // With another token at position 5 the positions after it differ from the untampered run's, but are still compared.
    const auto r = eval(tampered("goes-on.jsonl", 0.5), {"-o", "json"});
    EXPECT_EQ(Json::parse(r.out)[0]["records"][0]["positions"], 48);
}

TEST(EvalReference, PromptsAreTokenizedAndCompared) {
    auto records = lines(reference_path());
    records.resize(3);
    records[1]["prompt"] = tiny_text(records[1]["ids"].get<std::vector<std::int32_t>>());
    records[2]["prompt"] = {{"user", "Hello"}};
    const auto r = run_forge({"eval", tiny_chat_model(), "--reference", write_lines("prompts.jsonl", records), "--dtype", "f32", "-o", "json"});
    ASSERT_EQ(r.status, 0) << r.err;
    const Json json = Json::parse(r.out);
    EXPECT_EQ(json[0]["records"][0]["prompt_equal"], true);
    EXPECT_EQ(json[0]["records"][1]["prompt_equal"], false);
    EXPECT_THAT(json[0]["records"][1]["prompt_difference"].get<std::string>(), HasSubstr("the prompt's ids differ at 0"));
    EXPECT_EQ(json[0]["records"][1]["equal"], 48);  // it goes on with the reference's ids
}

TEST(EvalReference, UnreadableFilesExit2AndNameTheLine) {
    const auto records = lines(reference_path());
    EXPECT_EQ(eval("/no/such/reference.jsonl").status, 2);
    EXPECT_EQ(eval(write_temporary("empty.jsonl", "")).status, 2);
    const auto broken = [&](const std::string& name, auto change) {
        auto copy = records;
        change(copy);
        const auto r = eval(write_lines(name, copy));
        EXPECT_EQ(r.status, 2) << name << r.err;
        EXPECT_EQ(r.out, "");
        return r.err;
    };
    EXPECT_THAT(broken("format.jsonl", [](auto& c) { c[0]["format"] = "forge-reference-2"; }), HasSubstr("line 1: the format is \"forge-reference-2\""));
    EXPECT_THAT(broken("dtype.jsonl", [](auto& c) { c[0]["dtype"] = "int8"; }), HasSubstr("line 1: \"dtype\""));
    EXPECT_THAT(broken("kind.jsonl", [](auto& c) { c[2]["kind"] = "sampled"; }), HasSubstr("line 3: \"kind\""));
    EXPECT_THAT(broken("ids.jsonl", [](auto& c) { c[2]["ids"] = {1, -4}; }), HasSubstr("line 3: \"ids\""));
    EXPECT_THAT(broken("top.jsonl", [](auto& c) { c[2]["top"].erase(3); }), HasSubstr("line 3: \"top\""));
    EXPECT_THAT(broken("nll.jsonl", [](auto& c) { c[3]["nll"].erase(0); }), HasSubstr("line 4: \"nll\""));
    const auto r = eval(write_temporary("text.jsonl", "hello\n"));
    EXPECT_EQ(r.status, 2);
    // Ids that the model does not have are wrong input, found only with the model at hand.
    auto copy = records;
    copy[1]["ids"][0] = 89;
    EXPECT_EQ(eval(write_lines("foreign.jsonl", copy)).status, 1);
}

TEST(EvalReference, ADemandWithoutRecordsForItIsNotMet) {
    auto records = lines(reference_path());
    records.resize(2);
    const auto r = eval(write_lines("greedy-only.jsonl", records), {"--min-top1", "0.5"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("there is no forced record"));
}

// The logits that transformers computed for the forced record, [80, 89].
std::vector<float> reference_logits() {
    std::ifstream file(tiny_model("qwen3-tied") + "/logits.f32", std::ios::binary);
    std::vector<float> logits(80 * 89);
    file.read(reinterpret_cast<char*>(logits.data()), static_cast<std::streamsize>(logits.size() * 4));
    return logits;
}

TEST(Eval, LogitsFileHoldsEveryPosition) {
    const auto records = lines(reference_path());
    const auto ids = records[3]["ids"].get<std::vector<std::int32_t>>();
    const std::string out = write_temporary("logits.f32", "");
    const auto r = run_forge({"eval", tiny_chat_model(), "-f", write_temporary("forced.txt", tiny_text(ids)), "--special", "--dtype", "f32", "--logits", out});
    ASSERT_EQ(r.status, 0) << r.err;
    std::ifstream file(out, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    const auto expected = reference_logits();
    ASSERT_EQ(bytes.str().size(), expected.size() * 4);
    std::vector<float> logits(expected.size());
    std::memcpy(logits.data(), bytes.str().data(), bytes.str().size());
    for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], expected[i], 1e-3) << i;
}

TEST(Eval, PerplexityOfOneWindowIsTheMeanLoss) {
    const auto records = lines(reference_path());
    const auto nll = records[3]["nll"].get<std::vector<double>>();
    double sum = 0;
    for (double x : nll) sum += x;
    const std::string text = write_temporary("forced.txt", tiny_text(records[3]["ids"].get<std::vector<std::int32_t>>()));
    const auto r = run_forge({"eval", tiny_chat_model(), "-f", text, "--special", "--dtype", "f32", "--window", "80", "-o", "json"});
    ASSERT_EQ(r.status, 0) << r.err;
    const Json json = Json::parse(r.out);
    EXPECT_EQ(json["scored"], 79);
    EXPECT_EQ(json["tokens"], 80);
    EXPECT_NEAR(json["nll"].get<double>(), sum / 79, 1e-4);
    EXPECT_NEAR(json["ppl"].get<double>(), std::exp(sum / 79), 1e-3 * std::exp(sum / 79));
}

TEST(Eval, SmallerWindowsScoreEveryTokenOnce) {
    const std::string text = write_temporary("text.txt", std::string(150, 'a') + "bcdefg" + std::string(77, 'x'));
    for (const char* window : {"4", "7", "32", "233", "300"}) {
        const auto r = run_forge({"eval", tiny_chat_model(), "-f", text, "--window", window, "-o", "json"});
        ASSERT_EQ(r.status, 0) << r.err;
        EXPECT_EQ(Json::parse(r.out)["scored"], 232) << window;
    }
}

TEST(Eval, MistakesOnTheCommandLine) {
    EXPECT_EQ(run_forge({"eval", tiny_chat_model()}).status, 2);
    EXPECT_EQ(run_forge({"eval", tiny_chat_model(), "-f", "x", "--reference", "y"}).status, 2);
    EXPECT_EQ(run_forge({"eval", tiny_chat_model(), "-f", "x", "-o", "xml"}).status, 2);
    const auto r = run_forge({"eval", tiny_chat_model(), "-f", "-"}, {.input = "a"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("at least 2 are needed"));
}

}  // namespace
}  // namespace forge::test
