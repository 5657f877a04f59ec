#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run_forge.h"

namespace forge::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

Finished bench(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"bench", tiny_model("gguf-llama-q4_0/model.gguf"), "-r", "2", "--no-limits"});
    return run_forge(arguments);
}

TEST(Bench, JsonHasTheDocumentedMembers) {
    const auto r = run_forge({"bench", tiny_model("gguf-llama-q4_0/model.gguf"), "-p", "32", "-n", "8", "-r", "2", "-t", "1", "-o", "json"});
    ASSERT_EQ(r.status, 0) << r.err;
    const Json json = Json::parse(r.out);
    ASSERT_EQ(json.size(), 2u);
    for (const Json& row : json) {
        for (const char* key : {"model", "backend", "test"}) EXPECT_TRUE(row[key].is_string()) << key;
        for (const char* key : {"size_bytes", "params", "threads"}) EXPECT_TRUE(row[key].is_number_unsigned()) << key;
        for (const char* key : {"tps", "limit", "limit_pct"}) EXPECT_GT(row[key].get<double>(), 0) << key;
        EXPECT_GE(row["tps_stddev"].get<double>(), 0);
        EXPECT_EQ(row["threads"], 1);
    }
    EXPECT_EQ(json[0]["test"], "pp32");
    EXPECT_TRUE(json[0].contains("gflops"));
    EXPECT_FALSE(json[0].contains("gbps"));
    EXPECT_EQ(json[1]["test"], "tg8");
    EXPECT_TRUE(json[1].contains("gbps"));
    EXPECT_EQ(r.err, "");
}

TEST(Bench, ListsMakeAProductOfTests) {
    const auto r = bench({"-p", "16,32", "-n", "4", "-d", "0,20", "-t", "1,2", "-o", "json"});
    ASSERT_EQ(r.status, 0) << r.err;
    std::vector<std::string> tests;
    for (const Json& row : Json::parse(r.out)) tests.push_back(row["test"].get<std::string>() + " t" + row["threads"].dump());
    EXPECT_THAT(tests, testing::ElementsAre("pp16 t1", "pp32 t1", "tg4 t1", "pp16@d20 t1", "pp32@d20 t1", "tg4@d20 t1",
                                            "pp16 t2", "pp32 t2", "tg4 t2", "pp16@d20 t2", "pp32@d20 t2", "tg4@d20 t2"));
}

TEST(Bench, MarkdownAndCsv) {
    auto r = bench({"-p", "0", "-n", "4"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, testing::StartsWith("| model "));
    EXPECT_THAT(r.out, HasSubstr(" tg4 |"));
    EXPECT_THAT(r.out, HasSubstr(" GB/s |"));
    r = bench({"-p", "16", "-n", "0", "-o", "csv"});
    EXPECT_THAT(r.out, testing::StartsWith("model,size_bytes,params,backend,dtype,threads,test,tps,tps_stddev,gbps,gflops\n"));
}

TEST(Bench, MistakesAreNamed) {
    EXPECT_EQ(bench({"-p", "0", "-n", "0"}).status, 2);
    EXPECT_EQ(bench({"-p", "many"}).status, 2);
    EXPECT_EQ(bench({"-o", "xml"}).status, 2);
    const auto r = bench({"-p", "100", "-c", "50"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("the tests need a context of "));
}

}  // namespace
}  // namespace forge::test
