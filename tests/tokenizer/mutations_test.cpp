// Files that are almost right: every one loads or is an Error, and what loads
// encodes and decodes. FORGE_MUTATIONS sets the number per file (default 60);
// run it high under the asan preset.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "tokenizer/tokenizer.h"
#include "unicode.h"

namespace forge {
namespace {

using nlohmann::json;

int rounds() {
    const char* wanted = std::getenv("FORGE_MUTATIONS");
    return wanted ? std::atoi(wanted) : 60;
}

void use(const std::shared_ptr<const Tokenizer>& t) {
    for (bool special : {false, true}) {
        auto ids = t->encode("Hello  world\n don't 123 \xE2\x96\x81x<s><tool>  \xF0\x9F\x98\x80\xCC\x81",
                             {special, special});
        StreamDecoder stream(t, special);
        std::string pieces;
        for (auto id : ids) {
            ASSERT_TRUE(id >= 0 && id < t->size());
            pieces += stream.push(id);
            t->token_text(id);
        }
        pieces += stream.finish();
        EXPECT_TRUE(unicode::is_valid(pieces));
        EXPECT_TRUE(unicode::is_valid(t->decode(ids, special)));
    }
}

// Returns whether the file was accepted.
template <typename Load>
bool survives(const Load& load) {
    try {
        use(load());
        return true;
    } catch (const Error& e) {
        EXPECT_NE(e.kind(), ErrorKind::internal) << e.what();
        return false;
    }
}

std::string mutate_bytes(std::string text, std::mt19937& rng) {
    for (unsigned n = 1 + rng() % 4; n && !text.empty(); --n) {
        std::size_t at = rng() % text.size(), length = std::min<std::size_t>(rng() % 40, text.size() - at);
        switch (rng() % 5) {
            case 0:
                text[at] = static_cast<char>(rng());
                break;
            case 1:
                text.erase(at, length);
                break;
            case 2:
                text.insert(at, text.substr(rng() % text.size(), length));
                break;
            case 3:
                text[at] = static_cast<char>(text[at] ^ (1 << rng() % 8));
                break;
            case 4:
                text.resize(at);
                break;
        }
    }
    return text;
}

// Replaces a few values of the tree by other ones, or by values from elsewhere in it.
json mutate_tree(json tree, std::mt19937& rng) {
    for (unsigned n = 1 + rng() % 3; n; --n) {
        std::vector<json*> nodes;
        std::vector<json*> open = {&tree};
        while (!open.empty()) {
            json* node = open.back();
            open.pop_back();
            for (json& child : *node) {
                nodes.push_back(&child);
                if (child.is_structured()) open.push_back(&child);
            }
        }
        if (nodes.empty()) return tree;
        json& target = *nodes[rng() % nodes.size()];
        const json copy = *nodes[rng() % nodes.size()];
        const json values[] = {nullptr,
                               true,
                               false,
                               0,
                               1,
                               -1,
                               1048575,
                               4294967296,
                               0.5,
                               "",
                               "a",
                               "\\p{L}+",
                               "[^\\s]+(?!x)",
                               "(?i:k)*",
                               "x*?|",
                               "\xE2\x96\x81",
                               "Sequence",
                               json::array(),
                               json::object(),
                               copy,
                               copy,
                               copy};
        target = values[rng() % std::size(values)];
    }
    return tree;
}

// A fixture's tokenizer with most of its vocabulary left out.
json small_tokenizer(const std::filesystem::path& path) {
    std::ifstream in(path);
    json t = json::parse(in)["tokenizer"];
    json vocab = json::object(), merges = json::array();
    for (auto& [token, id] : t["model"]["vocab"].items())
        if (id.get<int>() < 40) vocab[token] = id;
    for (auto& m : t["model"]["merges"]) {
        if (!m.is_array()) continue;
        std::string a = m[0], b = m[1];
        if (vocab.contains(a) && vocab.contains(b) && vocab.contains(a + b)) merges.push_back(m);
    }
    if (t["model"]["unk_token"].is_string() && !vocab.contains(t["model"]["unk_token"].get<std::string>()))
        t["model"]["unk_token"] = nullptr;
    t["model"]["vocab"] = vocab;
    t["model"]["merges"] = merges;
    t["post_processor"] = nullptr;
    return t;
}

TEST(TokenizerMutations, tokenizer_json) {
    set_log_level(LogLevel::error);
    std::mt19937 rng(11);
    int accepted = 0, refused = 0;
    for (const auto& entry : std::filesystem::directory_iterator(FORGE_TEST_DATA "/tokenizer")) {
        json tree = small_tokenizer(entry.path());
        EXPECT_TRUE(survives([&] { return Tokenizer::from_json(tree.dump(), "", "t.json"); }))
            << entry.path();
        for (int i = 0; i < rounds(); ++i) {
            std::string text = i % 2 ? mutate_tree(tree, rng).dump() : mutate_bytes(tree.dump(), rng);
            ++(survives([&] { return Tokenizer::from_json(text, "", "t.json"); }) ? accepted : refused);
        }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_GT(refused, 0);
}

std::string field(char tag, std::string_view content) {
    return std::string(1, tag) + static_cast<char>(content.size()) + std::string(content);
}

TEST(TokenizerMutations, sentencepiece_model) {
    // field 1 string, field 2 float (tag 0x15), field 3 type (tag 0x18)
    auto piece = [](std::string_view text, char type) {
        return field('\x0a', field('\x0a', text) + std::string("\x15\0\0\x80\xBF", 5) + '\x18' + type);
    };
    std::string model = piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3) + piece("\xE2\x96\x81", 1) +
                        piece("l", 1) + piece("o", 1) + piece("lo", 5) + piece("\xE2\x96\x81lo", 1) +
                        piece("<0x0A>", 6) + piece("<tool>", 4);
    model += field('\x12', "\x18\x02\x98\x02\x01");    // BPE, byte_fallback
    model += field('\x1a', std::string("\x20\0", 2));  // keep extra white space
    auto load = [](const std::string& bytes) {
        return Tokenizer::from_sentencepiece(std::as_bytes(std::span(bytes)), "", "t.model");
    };
    EXPECT_TRUE(survives([&] { return load(model); }));
    std::mt19937 rng(12);
    for (int i = 0; i < 20 * rounds(); ++i) {
        std::string bytes = mutate_bytes(model, rng);
        survives([&] { return load(bytes); });
    }
}

TEST(TokenizerMutations, tekken_json) {
    const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    json vocab = json::array();
    for (int b = 0; b < 256; ++b)
        vocab.push_back(
            {{"rank", b}, {"token_bytes", std::string{digits[b >> 2], digits[(b & 3) << 4], '=', '='}}});
    vocab.push_back({{"rank", 256}, {"token_bytes", "bG8="}});  // "lo"
    json tree = {
        {"vocab", vocab},
        {"config",
         {{"pattern", "\\p{L}+|."}, {"default_vocab_size", 260}, {"default_num_special_tokens", 3}}}};
    auto load = [](const std::string& text) { return Tokenizer::from_tekken(text, "tekken.json"); };
    EXPECT_TRUE(survives([&] { return load(tree.dump()); }));
    std::mt19937 rng(13);
    for (int i = 0; i < 3 * rounds(); ++i) {
        std::string text = i % 2 ? mutate_tree(tree, rng).dump() : mutate_bytes(tree.dump(), rng);
        survives([&] { return load(text); });
    }
}

}  // namespace
}  // namespace forge
