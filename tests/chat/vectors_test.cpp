// The recorded behaviour of the reference, case by case.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "chat/template.h"

namespace forge {
namespace {

using nlohmann::ordered_json;

std::string read_text(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
}

// The text of member `name` of the JSON object `text`, as it is written: the context of the
// vectors has numbers that a JSON library would change. The value must be an object.
std::string raw_member(const std::string& text, const std::string& name) {
    const std::size_t key = text.find("\"" + name + "\"");
    EXPECT_NE(key, std::string::npos) << name;
    const std::size_t start = text.find('{', key);
    int depth = 0;
    bool string = false;
    for (std::size_t i = start; i < text.size(); ++i) {
        if (string && text[i] == '\\')
            ++i;
        else if (text[i] == '"')
            string = !string;
        else if (!string && text[i] == '{')
            ++depth;
        else if (!string && text[i] == '}' && --depth == 0)
            return text.substr(start, i + 1 - start);
    }
    return {};
}

RenderOptions reference_day() {
    RenderOptions options;
    options.now = std::chrono::year(2026) / 1 / 2;
    return options;
}

struct Case {
    std::string name, source, expected;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::string semantics_text() { return read_text(FORGE_TEST_DATA "/chat/jinja_semantics.json"); }

std::vector<Case> semantics() {
    std::vector<Case> out;
    const ordered_json vectors = ordered_json::parse(semantics_text());
    for (const auto& [name, c] : vectors["cases"].items()) out.push_back({name, c["template"], c["result"]});
    return out;
}

class Semantics : public testing::TestWithParam<Case> {};

TEST_P(Semantics, MatchesTheReference) {
    static const std::string context = raw_member(semantics_text(), "context");
    const Case& c = GetParam();
    const std::string prefix = "!!TemplateError: ";
    std::string result;
    try {
        result = ChatTemplate::parse(c.source).render_json_text(context, reference_day());
    } catch (const TemplateError& error) {
        ASSERT_TRUE(c.expected.starts_with("!!"))
            << c.name << ": " << c.source << "\nfails: " << error.what();
        if (c.expected.starts_with(prefix)) {
            EXPECT_EQ(error.cause(), TemplateError::Cause::raised) << c.name;
            EXPECT_EQ(error.what(), c.expected.substr(prefix.size())) << c.name;
        } else {
            EXPECT_NE(error.cause(), TemplateError::Cause::raised) << c.name;
            EXPECT_NE(error.cause(), TemplateError::Cause::limit) << c.name;
        }
        return;
    }
    EXPECT_EQ(result, c.expected) << c.name << ": " << c.source;
}

INSTANTIATE_TEST_SUITE_P(Vectors, Semantics, testing::ValuesIn(semantics()),
                         [](const auto& info) { return std::to_string(info.index); });

// Whole templates; these stay where they are and are skipped where they are absent.
struct Render {
    std::string name, inputs;
    ordered_json output;
    std::string template_name;
};

std::ostream& operator<<(std::ostream& out, const Render& r) { return out << r.name; }

std::vector<Render> renders() {
    std::vector<Render> out;
    const ordered_json vectors = ordered_json::parse(read_text(FORGE_TEST_DATA "/chat/chat_templates.json"));
    for (const auto& [name, t] : vectors.items())
        for (const auto& [c, v] : t["cases"].items())
            out.push_back({name + ", " + c, v["inputs"].dump(), v["output"], name});
    return out;
}

class Renders : public testing::TestWithParam<Render> {};

TEST_P(Renders, MatchesTheReference) {
    const Render& r = GetParam();
    const std::filesystem::path path =
        std::string(FORGE_SHARED_DATA) + "/data/templates/" + r.template_name + ".jinja";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
    const ChatTemplate parsed = ChatTemplate::parse(read_text(path));
    if (r.output.is_object()) {
        const std::string error = r.output["error"], prefix = "TemplateError: ";
        try {
            const std::string text = parsed.render_json_text(r.inputs, reference_day());
            FAIL() << r.name << " should fail, but gives " << text;
        } catch (const TemplateError& e) {
            if (error.starts_with(prefix)) {
                EXPECT_EQ(e.what(), error.substr(prefix.size())) << r.name;
            }
        }
        return;
    }
    EXPECT_EQ(parsed.render_json_text(r.inputs, reference_day()), r.output.get<std::string>()) << r.name;
    EXPECT_EQ(parsed.render(ordered_json::parse(r.inputs), reference_day()), r.output.get<std::string>())
        << r.name;
}

INSTANTIATE_TEST_SUITE_P(Vectors, Renders, testing::ValuesIn(renders()),
                         [](const auto& info) { return std::to_string(info.index); });

}  // namespace
}  // namespace forge
