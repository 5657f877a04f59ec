// JSON Schema, keyword by keyword; tools/check_schemas.py holds it against the whole JSON-Schema-Test-Suite.
#include <gtest/gtest.h>

#include <chrono>

#include "grammar_support.h"

namespace forge::test {
namespace {

struct Case {
    const char* schema;
    std::vector<const char*> good, bad;
};

void check(const std::vector<Case>& cases, SchemaOptions options = {}) {
    for (const Case& c : cases) {
        const auto g = schema(c.schema, options);
        for (const char* text : c.good) EXPECT_TRUE(accepts(g, text)) << c.schema << " should take " << text;
        for (const char* text : c.bad) EXPECT_FALSE(accepts(g, text)) << c.schema << " should refuse " << text;
    }
}

TEST(Schema, Types) {
    check({
        {R"({"type": "null"})", {"null"}, {"nul", "0", "\"null\"", ""}},
        {R"({"type": "boolean"})", {"true", "false"}, {"True", "1"}},
        {R"({"type": "integer"})", {"0", "-0", "-17", "12345678901234567890123"}, {"1.5", "01", "1e3", "+1", "-", ""}},
        {R"({"type": "number"})", {"0", "-1.5", "1e10", "1.25E-307", "1e308"}, {"1.", ".5", "1e", "1e309", "00", "NaN"}},
        {R"({"type": "string"})", {R"("")", R"("a\n\"\\\/é\u00e9\ud83d\ude00😀")"}, {"\"a\nb\"", R"("\x")", R"("\ud83d")", R"("\ude00")", R"("a)", "a"}},
        {R"({"type": ["string", "null"]})", {"null", R"("x")"}, {"1"}},
        {R"(true)", {"1", R"({"a":[{}]})", "[]"}, {"", "[", "1 2", "{a:1}", "[1,]"}},
        {R"({})", {"null", R"({"":""})"}, {"nothing"}},
    });
    EXPECT_REFUSED(schema("false"), "no value fits");
    EXPECT_REFUSED(schema(R"({"type": "strnig"})"), "type", "strnig");
}

TEST(Schema, SpacesStandAfterColonsAndCommasOnly) {
    check({{R"({"type": "object"})", {R"({"a":1,"b":[1,2]})", R"({"a": 1, "b": [1, 2]})", R"({"a":1, "b": [1,2]})"}, {R"({ "a":1})", R"({"a" :1})", R"({"a":  1})", R"({"a":1 })", "{\"a\":\n1}", " {}", "{} "}}});
}

TEST(Schema, ValuesByName) {
    check({
        {R"({"enum": ["a", 1, 1.50, null, [1, {"k": "v"}]]})", {R"("a")", "1", "1.5", "null", R"([1,{"k":"v"}])", R"([1, {"k": "v"}])"}, {R"("b")", "1.0", "2", R"([1,{"k": 1}])"}},
        {R"({"const": "ü\"\n"})", {R"("ü\"\n")"}, {R"("ü")"}},
        {R"({"enum": ["abc", "de", 7], "type": "string", "minLength": 3})", {R"("abc")"}, {R"("de")", "7"}},
        {R"({"enum": [1, 2, 3], "const": 2})", {"2"}, {"1"}},
        {R"({"enum": [{"a": 1}, {"a": "x"}], "properties": {"a": {"type": "string"}}})", {R"({"a":"x"})"}, {R"({"a":1})"}},
    });
    EXPECT_REFUSED(schema(R"({"enum": [1], "type": "string"})"), "no value fits");
}

TEST(Schema, NumbersWithinBounds) {
    check({
        {R"({"type": "integer", "minimum": -3, "maximum": 12})", {"-3", "-1", "0", "9", "10", "12"}, {"-4", "13", "100", "-10", "1.0"}},
        {R"({"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 1001})", {"100", "1000", "999"}, {"99", "1001", "9", "10000"}},
        {R"({"type": "number", "minimum": 0.25, "exclusiveMaximum": 2.5})", {"0.25", "0.250", "0.3", "1", "2.4999", "2"}, {"0.2", "0.2499", "2.5", "2.50", "3", "-1", "0"}},
        {R"({"type": "number", "minimum": -1.5, "maximum": -0.5})", {"-1.5", "-1", "-0.5", "-0.75"}, {"-1.51", "-0.4", "0", "1", "-2"}},
        {R"({"type": "number", "exclusiveMinimum": 0})", {"0.0001", "5", "123456789"}, {"0", "0.0", "-0", "-1"}},
        {R"({"type": "integer", "multipleOf": 7, "minimum": 1})", {"7", "14", "7007"}, {"0", "1", "8"}},
        {R"({"type": "number", "multipleOf": 0.25})", {"0", "1", "0.5", "-2.75", "10"}, {"0.3", "0.125"}},
        {R"({"type": "number", "multipleOf": 1.5, "maximum": 5})", {"1.5", "3", "4.5", "-6"}, {"2", "6", "1.55"}},
    });
    EXPECT_REFUSED(schema(R"({"type": "integer", "minimum": 5, "maximum": 4})"), "no value fits");
    EXPECT_REFUSED(schema(R"({"multipleOf": 123456})"), "multipleOf");
    EXPECT_REFUSED(schema(R"({"minimum": "3"})"), "minimum");
}

// Every number of a small range against arithmetic.
TEST(Schema, BoundsAgreeWithArithmetic) {
    for (int low = -12; low <= 12; low += 3) {
        for (int high = low; high <= 12; high += 4) {
            const std::string text_of_it = fmt::format(R"({{"type": "number", "minimum": {}, "maximum": {}, "multipleOf": 0.5}})", low / 4.0, high / 4.0);
            if (low == high && low % 2 != 0) {
                EXPECT_REFUSED(schema(text_of_it), "no value fits");
                continue;
            }
            const auto g = schema(text_of_it);
            for (int n = -40; n <= 40; ++n) {
                const std::string text = Json(n / 8.0).dump();
                const std::string plain = text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
                EXPECT_EQ(accepts(g, plain), n >= 2 * low && n <= 2 * high && n % 4 == 0) << plain << " in " << low / 4.0 << ".." << high / 4.0;
            }
        }
    }
}

TEST(Schema, StringsByLengthAndPattern) {
    check({
        {R"({"type": "string", "minLength": 2, "maxLength": 3})", {R"("ab")", R"("äöü")", R"("\n\u00e4😀")", R"("\ud83d\ude00x")"}, {R"("a")", R"("abcd")", R"("\ud83d\ude00")"}},
        {R"({"type": "string", "pattern": "^a+$", "maxLength": 3})", {R"("a")", R"("aaa")"}, {R"("aaaa")", R"("")", R"("b")"}},
        {R"({"type": "string", "pattern": "b"})", {R"("b")", R"("abc")", R"("ab\u0041\n")"}, {R"("")", R"("aac")"}},
        {R"({"type": "string", "pattern": "^\"\\\\\n$"})", {R"("\"\\\n")"}, {R"("\"\\n")"}},
        {R"({"allOf": [{"pattern": "^a"}, {"pattern": "z$"}], "type": "string", "minLength": 3})", {R"("abz")", R"("azzz")"}, {R"("az")", R"("bz")"}},
    });
    EXPECT_REFUSED(schema(R"J({"pattern": "(?=a)"})J"), "pattern", "look-around");
    EXPECT_REFUSED(schema(R"({"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "^b"}]})"), "no value fits");
}

TEST(Schema, Formats) {
    check({
        {R"({"type": "string", "format": "date"})", {R"("2024-02-29")", R"("1999-12-31")"}, {R"("2023-02-29")", R"("0000-01-01")", R"("1900-02-29")", R"("2024-13-01")", R"("24-1-1")"}},
        {R"({"type": "string", "format": "date-time"})", {R"("2024-02-29T12:34:56Z")", R"("2024-01-01T00:00:00.25+02:00")"}, {R"("2024-02-29")", R"("2024-01-01T25:00:00Z")"}},
        {R"({"type": "string", "format": "uuid"})", {R"("2eb8aa08-aa98-11ea-b4aa-73b441d16380")"}, {R"("2eb8aa08-aa98-11ea-b4aa73b441d16380")"}},
        {R"({"type": "string", "format": "email"})", {R"("joe.bloggs@example.com")"}, {R"("joe@")", R"(".joe@example.com")"}},
        {R"({"type": "string", "format": "ipv4"})", {R"("127.0.0.1")"}, {R"("256.0.0.1")", R"("01.0.0.1")"}},
        {R"({"type": "string", "format": "password"})", {R"("anything")"}, {"1"}},   // says nothing that can be checked
    });
    EXPECT_REFUSED(schema(R"({"format": "idn-email"})"), "format", "idn-email");
}

TEST(Schema, Arrays) {
    check({
        {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})", {"[1]", "[1,2,3]"}, {"[]", "[1,2,3,4]", "[\"a\"]", "[1,]"}},
        {R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": false})", {"[]", R"(["a"])", R"(["a",true])"}, {R"(["a",true,1])", "[1]"}},
        {R"({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}, "minItems": 2})", {R"(["a",null])", R"(["a",null,null])"}, {R"(["a"])", R"(["a","b"])"}},
        {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
        {R"({"type": "array", "minItems": 2})", {"[1,null]", "[1,2,3]"}, {"[1]"}},
    });
    EXPECT_REFUSED(schema(R"({"type": "array", "uniqueItems": true})"), "uniqueItems", "#");
    EXPECT_REFUSED(schema(R"({"contains": {"type": "null"}})"), "contains");
    EXPECT_REFUSED(schema(R"({"items": [{"type": "null"}]})"), "items", "prefixItems");
    EXPECT_REFUSED(schema(R"({"minItems": 1000000, "type": "array"})"), "minItems");
}

TEST(Schema, Objects) {
    const char* person = R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array"}}, "required": ["name"]})";
    check({
        {person, {R"({"name":"x"})", R"({"name":"x","age":1})", R"({"name":"x","tags":[]})"}, {"{}", R"({"age":1})", R"({"age":1,"name":"x"})", R"({"name":"x","more":1})", R"({"name":"x","name":"y"})"}},
        {R"({"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}})", {"{}", R"({"a":"x","b":1})", R"({"b":1,"c":2})"}, {R"({"b":"x"})", R"({"b":1,"a":2})", R"({"a":1,"a":2})", R"({"\u0061":1})"}},
        {R"({"type": "object", "required": ["x", "y"]})", {R"({"x":1,"y":2})", R"({"x":1,"y":2,"z":3})"}, {R"({"x":1})", R"({"z":3,"x":1,"y":2})"}},
        {R"({"type": "object", "properties": {"a": false, "b": {}}})", {R"({"b":1})", "{}"}, {R"({"a":1})"}},
        {R"({"type": "object", "patternProperties": {"^n": {"type": "null"}, "s$": {"type": ["string", "null"]}}, "additionalProperties": false})", {R"({"n":null,"xs":"y"})", R"({"ns":null})"}, {R"({"ns":"y"})", R"({"x":1})"}},
        {R"({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2, "maxProperties": 2, "additionalProperties": false})", {R"({"a":1,"b":2})", R"({"a":1,"c":2})", R"({"b":1,"c":2})"}, {"{}", R"({"a":1})", R"({"a":1,"b":2,"c":3})"}},
        {R"({"type": "object", "propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3}, "additionalProperties": true})", {R"({"abc":1})"}, {R"({"abcd":1})", R"({"A":1})"}},
    });
    EXPECT_TRUE(accepts(schema(person, {.open_objects = true}), R"({"name":"x","more":1})"));
    EXPECT_REFUSED(schema(R"({"type": "object", "minProperties": 3})"), "minProperties");
    EXPECT_REFUSED(schema(R"({"dependentRequired": {"a": ["b"]}})"), "dependentRequired");
    EXPECT_REFUSED(schema(R"({"type": "object", "properties": {"a": {"type": "object", "unevaluatedProperties": false}}})"), "unevaluatedProperties", "#/properties/a");
}

TEST(Schema, Combinations) {
    check({
        {R"({"anyOf": [{"type": "string", "maxLength": 1}, {"type": "integer"}]})", {R"("a")", "5"}, {R"("ab")", "null"}},
        {R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}, "a": {"minimum": 3}}}]})", {R"({"a":3})", R"({"a":4,"b":"x"})"}, {R"({"a":2})", R"({"b":"x"})"}},
        {R"({"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})", {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {"{}"}},
        {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "v": {"type": "integer"}}, "required": ["k"]}, {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}, {"type": "null"}]})",
         {R"({"k":"a","v":1})", R"({"k":"b"})", "null"}, {R"({"k":"c"})", R"({"k":"b","v":1})"}},
        {R"({"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 4}]})", {"3", "4"}, {"3.5"}},
        {R"({"not": {"type": ["string", "object"]}})", {"1", "[]"}, {R"("a")", "{}"}},
    });
    EXPECT_REFUSED(schema(R"({"oneOf": [{"type": "integer"}, {"minimum": 2}]})"), "oneOf", "0 and 1");
    EXPECT_REFUSED(schema(R"({"not": {"required": ["a"]}})"), "not");
    EXPECT_REFUSED(schema(R"({"if": {}, "then": false})"), "if");
    EXPECT_REFUSED(schema(R"({"allOf": [{"type": "string"}, {"type": "integer"}]})"), "no value fits");
}

TEST(Schema, References) {
    check({
        {R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"v": {"type": "integer"}, "l": {"$ref": "#/$defs/tree"}}, "required": ["v"]}}})", {R"({"v":1})", R"({"v":1,"l":{"v":2,"l":{"v":3}}})"}, {R"({"v":1,"l":{}})"}},
        {R"({"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#node"}}, "$defs": {"x/y~z": {"$anchor": "node", "type": "null"}}, "type": "object"})", {R"({"a":null,"b":null})"}, {R"({"a":1})"}},
        {R"({"$ref": "#/definitions/x~1y~0z%25", "definitions": {"x/y~z%": {"const": 1}}, "minimum": 0})", {"1"}, {"2"}},
    });
    EXPECT_REFUSED(schema(R"({"$ref": "#/$defs/missing"})"), "$ref", "leads nowhere");
    EXPECT_REFUSED(schema(R"({"$ref": "https://example.com/schema"})"), "$ref");
    EXPECT_REFUSED(schema(R"({"$ref": "#"})"), "$ref", "itself");
    EXPECT_REFUSED(schema(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})"), "$ref", "itself");
    // Nothing finite fits.
    EXPECT_REFUSED(schema(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})"), "no value fits");
}

// Each ends soon, with a grammar or a sentence.
TEST(Schema, HostileSchemasEnd) {
    const auto start = std::chrono::steady_clock::now();
    std::string nested = R"({"type":"string"})", wide = R"({"anyOf":[)", product = R"({"allOf":[)", all;
    for (int i = 0; i < 100; ++i) nested = R"({"type":"array","items":)" + nested + "}";
    for (int i = 0; i < 2000; ++i) wide += fmt::format(R"({}{{"type":"object","properties":{{"p{}":{{"type":"integer"}}}},"required":["p{}"]}})", i ? "," : "", i, i);
    for (int i = 0; i < 20; ++i) product += fmt::format(R"({}{{"anyOf":[{{"required":["a{}"]}},{{"required":["b{}"]}}]}})", i ? "," : "", i, i);
    EXPECT_TRUE(accepts(schema(nested), std::string(100, '[') + "\"x\"" + std::string(100, ']')));
    EXPECT_REFUSED(schema(wide + "]}"), "anyOf", "combinations");
    EXPECT_REFUSED(schema(product + "]}"), "combinations");
    EXPECT_REFUSED(schema(R"({"type":"array","minItems":40000,"items":{"type":"array","minItems":40000,"items":{"type":"array","minItems":40000,"items":{"enum":[1]}}}, "prefixItems":[{"type":"array","minItems":49999},{"type":"array","minItems":49998},{"type":"array","minItems":49997},{"type":"array","minItems":49996}]})"), "states");
    std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)";
    for (int i = 0; i < 3000; ++i) chain += fmt::format(R"("d{}":{{"$ref":"#/$defs/d{}"}},)", i, i + 1);
    EXPECT_REFUSED(schema(chain + R"("d3000":true}})"), "nested too deep");
    std::string members = R"({"$ref":"#/$defs/d0","$defs":{)";
    for (int i = 0; i < 3000; ++i) members += fmt::format(R"("d{}":{{"type":"object","properties":{{"n":{{"$ref":"#/$defs/d{}"}}}},"required":["n"],"additionalProperties":false}},)", i, i + 1);
    EXPECT_NO_THROW(schema(members + R"("d3000":{"type":"null"}}})"));
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 20);
}

}  // namespace
}  // namespace forge::test
