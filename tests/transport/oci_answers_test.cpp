#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "transport/oci_registry.h"

namespace forge {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(OciReference, Forms) {
    const OciReference r = parse_oci_reference("oci:localhost:5000/ada/model.x_y-z");
    EXPECT_EQ(r.host, "localhost:5000");
    EXPECT_EQ(r.name, "ada/model.x_y-z");
    EXPECT_EQ(r.tag, "latest");
    EXPECT_EQ(r.store_name(), "localhost_5000/ada/model.x_y-z:latest");
    EXPECT_EQ(parse_oci_reference("oci:ghcr.io/ada/m:V1.2_x").tag, "V1.2_x");
    EXPECT_EQ(parse_oci_reference("oci:Ghcr.IO/m").text(), "oci:ghcr.io/m:latest");
}

TEST(OciReference, RefusesWhatIsNone) {
    for (const char* text : {"oci:", "oci:host", "oci:/m", "oci:host/", "oci:host/A", "oci:host/a//b", "oci:host/a/", "oci:host/../b", "oci:host/.a", "oci:host/a-", "oci:host/a:",
                             "oci:host/a:.x", "oci:host/a:x/y", "oci:u:p@host/a", "oci:ho st/a", "oci:host:0/a", "oci:host/a?b", "host/a"})
        EXPECT_THROW(parse_oci_reference(text), Error) << text;
}

TEST(Challenges, OfTheUsualKinds) {
    const auto bearer = parse_challenges(R"(Bearer realm="https://auth.example/token",service="a \"registry\"",scope="repository:a/b:pull,push")");
    ASSERT_EQ(bearer.size(), 1u);
    EXPECT_EQ(bearer[0].scheme, "bearer");
    EXPECT_THAT(bearer[0].parameters, ElementsAre(Pair("realm", "https://auth.example/token"), Pair("service", "a \"registry\""), Pair("scope", "repository:a/b:pull,push")));
    const auto two = parse_challenges("Negotiate, BASIC Realm=x, Bearer realm = \"y\" , error=z");
    ASSERT_EQ(two.size(), 3u);
    EXPECT_EQ(two[1].scheme, "basic");
    EXPECT_EQ(two[1].parameter("realm"), "x");
    EXPECT_EQ(two[2].parameter("error"), "z");
    EXPECT_EQ(two[2].parameter("none"), "");
    EXPECT_TRUE(parse_challenges("").empty());
    EXPECT_TRUE(parse_challenges(",,==\"\"").empty());
}

OciDescriptor blob(const std::string& type, char digit, std::uint64_t size) {
    OciDescriptor made;
    made.media_type = type;
    made.digest.hex = std::string(64, digit);
    made.size = size;
    return made;
}

OciManifest example() {
    OciManifest manifest;
    manifest.artifact_type = "application/vnd.forge.model.v1";
    manifest.config = blob("application/json", 'a', 5);
    manifest.config.annotations.emplace_back("k", "v");
    manifest.layers.push_back(blob("x", 'b', 0));
    manifest.layers.push_back(blob("y", 'c', 7));
    manifest.layers.back().annotations.emplace_back("k", "w");
    return manifest;
}

TEST(OciManifest, RoundTrip) {
    const std::string text = example().dump();
    const OciManifest read = OciManifest::parse(text, "x");
    EXPECT_EQ(read.dump(), text);
    EXPECT_EQ(read.layers[1].annotation("k"), "w");
    EXPECT_EQ(read.layers[1].annotation("none"), "");
}

TEST(OciManifest, RefusesWhatCouldHarm) {
    const auto refused = [](const std::string& from, const std::string& to) {
        std::string text = example().dump();
        const std::size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos);
        EXPECT_THROW(OciManifest::parse(text.replace(at, from.size(), to), "x"), Error) << to;
    };
    refused("\"size\": 5", "\"size\": -5");
    refused("\"size\": 5", "\"size\": 99999999999999999");
    refused("\"size\": 5", "\"other\": 5");
    refused("sha256:aaaa", "sha256:../a");
    refused("sha256:aaaa", "sha512:aaaa");
    refused("\"layers\"", "\"others\"");
    refused("\"config\"", "\"manifests\"");
    EXPECT_THROW(OciManifest::parse("", "x"), Error);
    EXPECT_THROW(OciManifest::parse(std::string(100000, '{'), "x"), Error);
}

TEST(OciManifest, Mutations) {
    std::mt19937 random(11);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const std::string manifest = example().dump(), header = R"(Bearer realm="https://a/t",service="s",scope="repository:a/b:pull", Basic realm=x)";
    int read = 0;
    for (int round = 0; round < 20000; ++round) {
        std::string text = round % 2 ? manifest : header;
        for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
            const std::size_t at = below(text.size());
            switch (below(3)) {
                case 0: text[at] = static_cast<char>(random()); break;
                case 1: text.erase(at, 1 + below(10)); break;
                default: text.insert(at, text.substr(below(text.size()), below(40)));
            }
            if (text.empty()) text = " ";
        }
        parse_challenges(text);
        try {
            for (const OciDescriptor& layer : OciManifest::parse(text, "x").layers) EXPECT_TRUE(is_lower_hex(layer.digest.hex, 64));
            ++read;
        } catch (const Error&) {
        }
    }
    EXPECT_GT(read, 500);
}

}  // namespace
}  // namespace forge
