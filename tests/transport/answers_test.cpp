#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "transport/http.h"
#include "transport/hub_answers.h"
#include "transport/hub_choose.h"

namespace forge {
namespace {

const std::string kTree = R"([
  {"type": "directory", "oid": "0000000000000000000000000000000000000000", "size": 0, "path": "onnx"},
  {"type": "file", "oid": "0123456789abcdef0123456789abcdef01234567", "size": 12, "path": "config.json"},
  {"type": "file", "oid": "1123456789abcdef0123456789abcdef01234567", "size": 5000, "path": "onnx/model.bin",
   "lfs": {"oid": "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", "size": 5000, "pointerSize": 134}}])";
const std::string kRevision = R"({"id": "o/n", "sha": "0123456789abcdef0123456789abcdef01234567", "siblings": [{"rfilename": "config.json"}]})";

TEST(HubAnswers, Tree) {
    std::vector<HubFile> files;
    read_tree_answer(kTree, "tree", files);
    ASSERT_EQ(files.size(), 2u);
    EXPECT_EQ(files[0].path, "config.json");
    EXPECT_EQ(files[0].digest.text(), "git:0123456789abcdef0123456789abcdef01234567");
    EXPECT_EQ(files[1].size, 5000u);
    EXPECT_EQ(files[1].digest.text(), "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
}

TEST(HubAnswers, RefusesWhatCouldHarm) {
    const auto refused = [](const std::string& from, const std::string& to) {
        std::string text = kTree;
        const std::size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos);
        text.replace(at, from.size(), to);
        std::vector<HubFile> files;
        EXPECT_THROW(read_tree_answer(text, "tree", files), Error) << to;
    };
    refused("config.json", "../../config.json");
    refused("config.json", "/etc/passwd");
    refused("config.json", "onnx/model.bin");  // twice
    refused("\"config.json\"", "7");
    refused("\"size\": 12", "\"size\": -12");
    refused("\"size\": 12", "\"size\": 1e30");
    refused("\"size\": 12", "\"size\": 99999999999999999");
    refused("\"size\": 12", "\"other\": 12");
    refused("0123456789abcdef0123456789abcdef01234567\", \"size\": 12", "../../../../../../../../../x\", \"size\": 12");
    refused("00112233445566778899aabb", "00112233445566778899AABB");
    refused("\"size\": 5000, \"pointerSize\"", "\"size\": 5001, \"pointerSize\"");
    std::vector<HubFile> files;
    EXPECT_THROW(read_tree_answer("{}", "tree", files), Error);
    EXPECT_THROW(read_tree_answer("<html>", "tree", files), Error);
    EXPECT_THROW(read_tree_answer("[1]", "tree", files), Error);
    EXPECT_THROW(read_tree_answer(std::string(100000, '['), "tree", files), Error);
}

TEST(HubAnswers, Revision) {
    EXPECT_EQ(read_revision_answer(kRevision, "revision"), "0123456789abcdef0123456789abcdef01234567");
    for (const char* text : {"", "[]", "{}", R"({"sha": 5})", R"({"sha": "main"})", R"({"sha": "../../0123456789abcdef0123456789abcdef0123"})"})
        EXPECT_THROW(read_revision_answer(text, "revision"), Error) << text;
}

TEST(HubAnswers, Pages) {
    EXPECT_EQ(next_page("<https://h/a?cursor=x>; rel=\"next\""), "https://h/a?cursor=x");
    EXPECT_EQ(next_page("<https://h/p>; rel=\"prev\", <https://h/n>; rel=\"next\""), "https://h/n");
    EXPECT_EQ(next_page("<https://h/p>; rel=\"prev\""), std::nullopt);
    EXPECT_EQ(next_page(""), std::nullopt);
    EXPECT_EQ(next_page("<"), std::nullopt);
    EXPECT_EQ(next_page(",,,<x>,<y"), std::nullopt);
}

TEST(HubAnswers, Etags) {
    EXPECT_EQ(plain_etag("W/\"ab\""), "ab");
    EXPECT_EQ(plain_etag("\"ab\""), "ab");
    EXPECT_EQ(plain_etag("\""), "\"");
    EXPECT_EQ(plain_etag(""), "");
}

// Any answer, however broken, is read or refused with a sentence.
TEST(HubAnswers, Mutations) {
    std::mt19937 random(7);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    static constexpr std::string_view pieces[] = {"[", "]", "{", "}", "\"", ",", ":", "null", "-1", "1e999", "\\u0000", "\xff", "../", "18446744073709551616", "\"path\"", "\"lfs\""};
    int read = 0;
    for (int round = 0; round < 20000; ++round) {
        std::string text = round % 2 ? kTree : kRevision;
        for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
            const std::size_t at = below(text.size());
            switch (below(4)) {
                case 0: text[at] = static_cast<char>(random()); break;
                case 1: text.erase(at, 1 + below(20)); break;
                case 2: text.insert(at, pieces[below(std::size(pieces))]); break;
                default: text.insert(at, text.substr(below(text.size()), below(60)));
            }
            if (text.empty()) text = " ";
        }
        try {
            std::vector<HubFile> files;
            if (round % 2) {
                read_tree_answer(text, "tree", files);
            } else {
                EXPECT_TRUE(is_lower_hex(read_revision_answer(text, "revision"), 40));
            }
            for (const HubFile& file : files) {
                EXPECT_TRUE(is_safe_repo_path(file.path));
                EXPECT_TRUE(is_lower_hex(file.digest.hex, file.digest.kind == RemoteDigest::Kind::git ? 40 : 64));
            }
            ++read;
        } catch (const Error&) {
        }
        HttpAnswer answer;
        answer.body = text;
        EXPECT_LE(explanation(answer).size(), 300u);
        next_page(text);
    }
    EXPECT_GT(read, 1000);
}

TEST(Explanation, FromTheUsualPlaces) {
    HttpAnswer answer;
    answer.body = R"({"error": "Access is\nrestricted"})";
    EXPECT_EQ(explanation(answer), "Access is restricted");
    answer.body = R"({"errors": [{"code": "DENIED", "message": "no access"}]})";
    EXPECT_EQ(explanation(answer), "no access");
    answer.body = "<html>";
    EXPECT_EQ(explanation(answer), "");
    answer.headers = {{"x-error-message", "why"}};
    EXPECT_EQ(explanation(answer), "why");
}

TEST(RemoteDigest, KnownValues) {
    if (!transport_available()) GTEST_SKIP() << "built without libcurl or libcrypto";
    EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    // git hash-object of an empty file and of "hello\n"
    EXPECT_EQ((RemoteDigest{RemoteDigest::Kind::git, ""}).begin(0).hex(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    Hasher hasher = RemoteDigest{RemoteDigest::Kind::git, ""}.begin(6);
    hasher.update("hel");
    hasher.update("lo\n");
    EXPECT_EQ(hasher.hex(), "ce013625030ba8dba906f756967f9e9ca394464a");
    EXPECT_THROW(parse_sha256("sha512:00", "x"), Error);
    EXPECT_THROW(parse_sha256("sha256:00", "x"), Error);
}

}  // namespace
}  // namespace forge
