// Hostile and broken templates end in an error: no crash, no hang, no exhausted memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <thread>

#include "chat/template.h"

namespace forge {
namespace {

using testing::HasSubstr;
using Cause = TemplateError::Cause;

std::string render(std::string_view source, std::string_view inputs = "{}",
                   const RenderOptions& options = {}) {
    return ChatTemplate::parse(source).render_json_text(inputs, options);
}

void expect_error(std::string_view source, Cause cause, std::string_view message,
                  const RenderOptions& options = {}) {
    try {
        const std::string text = render(source, "{}", options);
        FAIL() << source.substr(0, 200) << " gives " << text.substr(0, 200);
    } catch (const TemplateError& error) {
        EXPECT_EQ(error.cause(), cause) << error.what();
        EXPECT_THAT(error.what(), HasSubstr(std::string(message))) << source.substr(0, 200);
    }
}

std::string repeated(std::string_view text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
}

RenderOptions small() {
    RenderOptions options;
    options.limits.steps = 200000;
    options.limits.memory = 4 << 20;
    options.limits.output = 1 << 16;
    return options;
}

TEST(Limits, Steps) {
    expect_error("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                 Cause::limit, "steps", small());
    expect_error("{% set l = [0] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}", Cause::limit,
                 "stopped", [] {
                     RenderOptions options = small();
                     options.allow_list_changes = true;
                     return options;
                 }());
    // Work on long texts counts although it is one operation.
    expect_error("{% set s = 'a' * 1000000 %}{% for i in range(90000) %}{{ 'b' in s }}{% endfor %}",
                 Cause::limit, "steps", small());
}

TEST(Limits, Memory) {
    expect_error("{{ 'a' * 999999999999 }}", Cause::limit, "bytes");
    expect_error("{{ [1] * 9999999999 }}", Cause::limit, "bytes");
    expect_error(
        "{% set s = namespace(v='ab') %}{% for i in range(99) %}{% set s.v = s.v + s.v %}{% endfor %}",
        Cause::limit, "bytes");
    expect_error("{{ 'a'.center(99999999999999) }}", Cause::limit, "bytes");
    expect_error("{{ 'a'|indent(99999999999999) }}", Cause::limit, "bytes");
    expect_error("{{ ('a' * 100000).replace('', 'b' * 100000) }}", Cause::limit, "bytes", small());
    expect_error("{{ [1]|tojson(indent=99999999999999) }}", Cause::limit, "bytes");
    // A small value whose text is enormous.
    expect_error(
        "{% set n = namespace(v=[1]) %}{% for i in range(60) %}{% set n.v = [n.v, n.v] %}{% endfor %}{{ n.v "
        "}}",
        Cause::limit, "stopped", small());
    expect_error(
        "{% set n = namespace(v=(1,)) %}{% for i in range(60) %}{% set n.v = (n.v, n.v) %}{% endfor %}{% set "
        "m = namespace(v=(1,)) %}{% for i in range(60) %}{% set m.v = (m.v, m.v) %}{% endfor %}{{ {n.v: "
        "1}[m.v] }}",
        Cause::limit, "stopped", small());
}

TEST(Limits, Output) {
    expect_error("{% for i in range(9999) %}{{ 'a' * 100 }}{% endfor %}", Cause::limit, "prints more",
                 small());
}

TEST(Limits, Depth) {
    expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", Cause::limit, "levels");
    expect_error("{% for n in [1] recursive %}{{ loop([1]) }}{% endfor %}", Cause::limit, "levels");
    expect_error("{% set n = namespace(v=[]) %}{% for i in range(9999) %}{% set n.v = [n.v] %}{% endfor %}",
                 Cause::limit, "nested");
    expect_error(
        "{% set n = namespace(v=[1]) %}{% for i in range(9999) %}{% set n.v = n.v|map('upper') %}{% endfor "
        "%}",
        Cause::limit, "nested");
    expect_error("{% set n = namespace() %}{% set n.n = n %}{{ n }}", Cause::limit, "levels");
    expect_error("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}", Cause::syntax, "nesting");
    expect_error("{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}", Cause::syntax, "nesting");
    expect_error("{{ 1" + repeated("+1", 5000) + " }}", Cause::syntax, "operations inside");
    expect_error("{{ x" + repeated("|trim", 5000) + " }}", Cause::syntax, "operations inside");
    expect_error("{{ x" + repeated("[0]", 5000) + " }}", Cause::syntax, "operations inside");
    expect_error("{{ " + repeated("not ", 5000) + "1 }}", Cause::syntax, "nesting");
    expect_error("{{ " + repeated("-", 5000) + "1 }}", Cause::syntax, "nesting");
    expect_error(repeated("{% if 1 %}", 5000) + repeated("{% endif %}", 5000), Cause::syntax, "nesting");
    EXPECT_THROW(render("{{ v }}", "{\"v\":" + repeated("[", 100000) + repeated("]", 100000) + "}"),
                 TemplateError);
}

// The default depth must fit the smallest stack that a thread usually has.
TEST(Limits, DepthFitsASmallStack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers enlarge every frame";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    GTEST_SKIP() << "sanitizers enlarge every frame";
#endif
#endif
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 512 << 10);
    pthread_t thread;
    const auto work = [](void*) -> void* {
        expect_error(
            "{% macro m(x) %}{% for i in [1] %}{% if i %}{{ (m([x]) ~ 1)|trim|upper }}{% endif %}{% endfor "
            "%}{% endmacro %}{{ m(1) }}",
            Cause::limit, "levels");
        expect_error("{{ " + repeated("(", 49) + "1" + repeated(")", 48) + " }}", Cause::syntax, "");
        return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, work, nullptr), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
}

TEST(Limits, Numbers) {
    expect_error("{{ 9**(9**9) }}", Cause::failed, "digits");
    expect_error("{{ (10**4000) * (10**4000) }}", Cause::failed, "digits");
    expect_error("{{ range(100001) }}", Cause::failed, "100001");
    expect_error("{{ range(9223372036854775807) }}", Cause::failed, "range");
    EXPECT_EQ(render("{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807)|list }}"),
              "[-9223372036854775807, 0]");
    expect_error("{{ '%999999999d' % 1 }}", Cause::failed, "width");
    expect_error("{{ '{:>999999999}'.format(1) }}", Cause::failed, "width");
}

TEST(Limits, WhatRealTemplatesNeedFits) {
    // A conversation of 2000 messages with a quadratic look back, as some templates have.
    std::string inputs = R"({"messages":[)";
    for (int i = 0; i < 2000; ++i)
        inputs += std::string(i ? "," : "") + R"({"role":"user","content":"hello"})";
    inputs += "]}";
    const std::string text = render(
        "{% for m in messages %}{% for j in range(loop.index0, -1, -1) %}{% if j == 0 %}x{% endif %}{% "
        "endfor %}{% endfor %}",
        inputs);
    EXPECT_EQ(text.size(), 2000u);
}

TEST(Errors, SayWhatAndWhere) {
    expect_error("a\nb\n{{ x.y }}", Cause::failed, "line 3: 'x' is undefined");
    expect_error("{% if x %}", Cause::syntax, "'{% if %}' is closed with '{% endif %}'");
    expect_error("{% nosuch %}", Cause::syntax, "unknown tag 'nosuch'");
    expect_error("{{ 1|nosuch }}", Cause::syntax, "no filter named 'nosuch'");
    expect_error("{% include 'x' %}", Cause::syntax, "not supported");
    expect_error("{{ raise_exception('No system role.') }}", Cause::raised, "No system role.");
    expect_error("{{ {}.a.b }}", Cause::failed, "a dict has no key 'a'");
    expect_error("{{ 'a' + 1 }}", Cause::failed, "a string + an integer");
    expect_error("{{ [1,2][5].x }}", Cause::failed, "2 items has no item 5");
    expect_error("{{ strftime_now('%Q') }}", Cause::failed, "%Q");
    EXPECT_THROW(render("x", "[1]"), Error);
    EXPECT_THROW(render("x", "{"), Error);
    EXPECT_THROW(render("x", "{\"a\": 01}"), Error);
}

TEST(Lists, ChangesOnlyWhenAllowed) {
    RenderOptions allowed;
    allowed.allow_list_changes = true;
    const std::string source =
        "{% set l = [1] %}{% set _ = l.append(2) %}{% set _ = l.extend([3]) %}{% set _ = l.insert(0, 0) %}{{ "
        "l }}{{ l.pop() }}{{ l }}";
    EXPECT_EQ(render(source, "{}", allowed), "[0, 1, 2, 3]3[0, 1, 2]");
    expect_error(source, Cause::failed, "'append' would change a list");
    // Never what was given, nor what is part of something else, nor itself.
    EXPECT_THROW(render("{{ v.append(1) }}", "{\"v\": []}", allowed), TemplateError);
    EXPECT_THROW(render("{% set l = [] %}{% set d = {'l': l} %}{{ l.append(1) }}", "{}", allowed),
                 TemplateError);
    EXPECT_THROW(render("{% set l = [] %}{{ l.append(l) }}", "{}", allowed), TemplateError);
    EXPECT_THROW(render("{% set l = [] %}{{ l.append(l|map('upper')) }}", "{}", allowed), TemplateError);
}

// What refers to itself must still be released (the leak checker of the sanitizers looks).
TEST(Lifetime, CyclesAreReleased) {
    EXPECT_EQ(render("{% set n = namespace() %}{% set n.self = n %}{% macro m() %}{{ n.x }}{% endmacro %}{% "
                     "set n.m = m %}{{ n.m() }}"),
              "");
    EXPECT_EQ(render("{% set n = namespace() %}{% for i in [1, 2] %}{% set n.l = loop %}{% macro q() %}{{ i "
                     "}}{% endmacro %}{% set n.q = q %}{% endfor %}{{ n.q() }}"),
              "2");
}

TEST(Threads, OneTemplateManyRenderings) {
    const ChatTemplate parsed = ChatTemplate::parse(
        "{% set t = (1, 'a') %}{% for i in range(200) %}{{ {t: i}[t] }}{{ ('x', 2) in [('x', 2)] }}{% endfor "
        "%}");
    const std::string expected = parsed.render_json_text("{}");
    std::vector<std::thread> threads;
    std::atomic<int> same{0};
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] { same += parsed.render_json_text("{}") == expected; });
    for (auto& t : threads) t.join();
    EXPECT_EQ(same, 4);
}

TEST(Dates, FixedDay) {
    RenderOptions options;
    options.now = std::chrono::year(2026) / 1 / 2;
    EXPECT_EQ(render("{{ strftime_now('%d %b %Y|%Y-%m-%d|%B %-d, %A %j %U %V %H:%M') }}", "{}", options),
              "02 Jan 2026|2026-01-02|January 2, Friday 002 00 01 00:00");
}

TEST(Json, NumbersSurvive) {
    const std::string text =
        R"({"v": {"b": 1, "a": 1.0, "z": -0.0, "h": 123456789012345678901234567890, "n": -9223372036854775808, "e": 1e400, "s": "\ud83d\ude00\ud800"}})";
    EXPECT_EQ(render("{{ v|tojson }}", text),
              "{\"b\": 1, \"a\": 1.0, \"z\": -0.0, \"h\": 123456789012345678901234567890, \"n\": "
              "-9223372036854775808, \"e\": Infinity, \"s\": \"😀\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace forge
