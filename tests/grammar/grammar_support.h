// Texts against grammars, for tests.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "grammar/compile.h"
#include "grammar/matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

// The statement throws an Error whose sentence holds all of the texts.
#define EXPECT_REFUSED(statement, ...)                                                                             \
    do {                                                                                                           \
        try {                                                                                                      \
            statement;                                                                                             \
            ADD_FAILURE() << #statement " was accepted";                                                           \
        } catch (const forge::Error& error) {                                                                      \
            for (const char* text : {__VA_ARGS__}) EXPECT_THAT(std::string(error.what()), testing::HasSubstr(text)); \
        }                                                                                                          \
    } while (false)

namespace forge::test {

using Json = nlohmann::ordered_json;

inline std::shared_ptr<const Vocabulary> no_vocabulary() {
    static const auto v = std::make_shared<const Vocabulary>(std::vector<std::string>{}, std::vector<std::int32_t>{});
    return v;
}

inline bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
    Matcher matcher(grammar, no_vocabulary());
    return matcher.accept(text) && matcher.can_end();
}

inline std::shared_ptr<const Grammar> schema(const std::string& text, SchemaOptions options = {}) {
    return std::make_shared<const Grammar>(compile_schema(Json::parse(text), options));
}

inline std::shared_ptr<const Grammar> gbnf(std::string_view text) { return std::make_shared<const Grammar>(compile_gbnf(text)); }

}  // namespace forge::test
