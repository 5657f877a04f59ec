// JSON from outside: whole documents, what is no JSON, and depth.
#include "base/json.h"

#include <gtest/gtest.h>

#include "../support/expect_error.h"

namespace forge {
namespace {

using Json = nlohmann::ordered_json;

std::string nested(int depth) {
    const auto count = static_cast<std::size_t>(depth);
    return std::string(count, '[') + std::string(count, ']');
}

TEST(Json, ParsesDocuments) {
    const Json json = parse_json<Json>(R"({"b": [1, {"c": null}], "a": 2.5})", "x", true);
    EXPECT_EQ(json.dump(), R"({"b":[1,{"c":null}],"a":2.5})");
}

TEST(Json, SaysWhatIsNoJson) {
    EXPECT_TRUE(parse_json<Json>("{", "x", false).is_discarded());
    EXPECT_TRUE(parse_json<Json>("", "x", false).is_discarded());
    EXPECT_THROW(parse_json<Json>("{", "x", true), Json::parse_error);
}

TEST(Json, RefusesDeepDocumentsWhole) {
    EXPECT_EQ(parse_json<Json>(nested(100), "x", true).dump(), nested(100));
    EXPECT_ERROR(parse_json<Json>(nested(101), "x", false), invalid_input,
                 "x: the JSON is nested more than 100 levels deep");
    // No document is built and nothing recurses, whatever the depth; brackets in a string are text.
    EXPECT_ERROR(parse_json<Json>(std::string(3'000'000, '['), "x", false), invalid_input, "nested");
    std::string objects;
    for (int i = 0; i < 101; ++i) objects += "{\"a\":";
    EXPECT_ERROR(parse_json<Json>(objects, "x", true), invalid_input, "nested");
    EXPECT_EQ(parse_json<Json>("\"" + std::string(200, '[') + "\"", "x", true), std::string(200, '['));
}

}  // namespace
}  // namespace forge
