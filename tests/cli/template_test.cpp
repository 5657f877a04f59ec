#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_forge.h"

namespace forge::test {
namespace {

using testing::HasSubstr;

TEST(Template, PrintsTheRenderedTextAndNothingElse) {
    const auto path = write_temporary("chat.jinja", "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}");
    const auto r = run_forge({"template", path, "--inputs", "-"},
                             {.input = R"({"messages": [{"role": "user", "content": "Grüße"}], "bos_token": "<s>"})"});
    EXPECT_EQ(r.status, 0);
    EXPECT_EQ(r.out, "<s>[user] Grüße");
    EXPECT_EQ(r.err, "");
}

TEST(Template, KeepsNumbersAndKeyOrderOfTheInputs) {
    const auto path = write_temporary("numbers.jinja", "{{ x | tojson }}");
    const auto r = run_forge({"template", path, "--inputs", "-"},
                             {.input = R"({"messages": [], "x": {"b": 1.0, "a": 123456789012345678901234567890}})"});
    EXPECT_EQ(r.out, R"({"b": 1.0, "a": 123456789012345678901234567890})") << r.err;
}

TEST(Template, DateComesFromNowOrSourceDateEpoch) {
    const auto path = write_temporary("date.jinja", "{{ strftime_now('%Y-%m-%d') }}");
    EXPECT_EQ(run_forge({"template", path, "--inputs", "-", "--now", "2026-01-02"}, {.input = "{}"}).out, "2026-01-02");
    EXPECT_EQ(run_forge({"template", path, "--inputs", "-", "--now", "2026-01-02T10:00:00"}, {.input = "{}"}).out, "2026-01-02");
    EXPECT_EQ(run_forge({"template", path, "--inputs", "-"}, {.input = "{}", .environment = {"SOURCE_DATE_EPOCH=86400"}}).out, "1970-01-02");
    for (const char* wrong : {"tomorrow", "2026-02-30", "2026-1", "2026-01-02x"}) {
        const auto r = run_forge({"template", path, "--inputs", "-", "--now", wrong}, {.input = "{}"});
        EXPECT_EQ(r.status, 1) << wrong;
        EXPECT_THAT(r.err, HasSubstr(wrong));
    }
}

TEST(Template, ErrorsGoToStandardErrorAndExit1) {
    const auto raises = write_temporary("raises.jinja", "text{{ raise_exception('No system role') }}");
    auto r = run_forge({"template", raises, "--inputs", "-"}, {.input = R"({"messages": []})"});
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.out, "");
    EXPECT_EQ(r.err, "error: No system role\n");
    const auto broken = write_temporary("broken.jinja", "{% if %}");
    r = run_forge({"template", broken, "--inputs", "-"}, {.input = "{}"});
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.out, "");
    r = run_forge({"template", raises, "--inputs", "-"}, {.input = "[1]"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("JSON object"));
    r = run_forge({"template", raises});
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, HasSubstr("--inputs FILE is required"));
    r = run_forge({"template", tiny_model("gguf-llama-f32/model.gguf"), "--inputs", "-"}, {.input = "{}"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("has no chat template"));
}

TEST(Template, FoldersGiveTheirTemplateInTransformersOrder) {
    const auto config = write_temporary("model/tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]})");
    const std::string folder = config.substr(0, config.rfind('/'));
    EXPECT_EQ(run_forge({"template", folder, "--inputs", "-"}, {.input = "{}"}).out, "plain");
    EXPECT_EQ(run_forge({"template", folder, "--inputs", "-"}, {.input = R"({"tools": [{}]})"}).out, "tools");
    write_temporary("model/chat_template.jinja", "from the file");
    EXPECT_EQ(run_forge({"template", folder, "--inputs", "-"}, {.input = "{}"}).out, "from the file");
    EXPECT_EQ(run_forge({"template", folder, "--source"}).out, "from the file");
}

}  // namespace
}  // namespace forge::test
