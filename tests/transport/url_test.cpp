#include "transport/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace forge {
namespace {

TEST(Url, Parts) {
    const Url url = parse_url("HTTPS://Example.COM:8443/a/b?c=d#e");
    EXPECT_EQ(url.scheme, "https");
    EXPECT_EQ(url.host, "example.com");
    EXPECT_EQ(url.port, 8443);
    EXPECT_EQ(url.target, "/a/b?c=d");
    EXPECT_EQ(url.text(), "https://example.com:8443/a/b?c=d");
    EXPECT_EQ(parse_url("http://h").text(), "http://h/");
    EXPECT_EQ(parse_url("http://h?q").target, "/?q");
    EXPECT_EQ(parse_url("http://[::1]:5000/x").host, "[::1]");
    EXPECT_EQ(parse_url("http://[::1]:5000/x").port, 5000);
}

TEST(Url, RefusesWhatIsNone) {
    for (const char* text : {"", "h", "ftp://h/", "file:///etc/passwd", "http://", "http://:80/", "http://h:0/", "http://h:65536/", "http://h:8x/", "http://user:pass@h/",
                             "http://h/a b", "http://h/a\r\nX: y", "http://[::1/", "http://h:/"})
        EXPECT_THROW(parse_url(text), Error) << text;
}

TEST(Url, Redirects) {
    const Url base = parse_url("https://h/a/b?q=1");
    EXPECT_EQ(resolve_url(base, "https://o/x").text(), "https://o/x");
    EXPECT_EQ(resolve_url(base, "//o/x").text(), "https://o/x");
    EXPECT_EQ(resolve_url(base, "/x?y").text(), "https://h/x?y");
    EXPECT_EQ(resolve_url(base, "x").text(), "https://h/a/x");
    EXPECT_EQ(resolve_url(base, "?z=2").text(), "https://h/a/b?z=2");
    EXPECT_EQ(resolve_url(base, "/x?u=http://o/").text(), "https://h/x?u=http://o/");
    EXPECT_THROW(resolve_url(base, ""), Error);
    EXPECT_THROW(resolve_url(base, "gopher://o/"), Error);
    EXPECT_THROW(resolve_url(base, "/a\nb"), Error);
}

TEST(Url, Origins) {
    EXPECT_TRUE(parse_url("http://h/a").same_origin(parse_url("http://H:80/b")));
    EXPECT_FALSE(parse_url("http://h/").same_origin(parse_url("https://h/")));
    EXPECT_FALSE(parse_url("http://h/").same_origin(parse_url("http://h:81/")));
    EXPECT_FALSE(parse_url("http://h/").same_origin(parse_url("http://h.o/")));
    EXPECT_TRUE(parse_url("http://127.0.0.1:5/").loopback());
    EXPECT_TRUE(parse_url("http://localhost/").loopback());
    EXPECT_FALSE(parse_url("http://127.0.0.1.evil.example/").loopback());
    EXPECT_FALSE(parse_url("http://localhost.example/").loopback());
}

TEST(Url, ShownWithoutQueryOrPassword) {
    EXPECT_EQ(shown_url("https://h/x?X-Signature=secret"), "https://h/x");
    EXPECT_EQ(shown_url("https://u:secret@h/x@y"), "https://h/x@y");
}

TEST(Url, Encodes) {
    EXPECT_EQ(url_encode("refs/pr/1 ü~"), "refs%2Fpr%2F1%20%C3%BC~");
    EXPECT_EQ(url_encode("a/b c", true), "a/b%20c");
}

}  // namespace
}  // namespace forge
