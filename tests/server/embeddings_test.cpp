// /v1/embeddings, /api/embed, /slots, /api/pull, /api/delete.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "digest.h"
#include "embeddings.h"
#include "http_client.h"
#include "run_forge.h"

namespace forge::test {
namespace {

class Embeddings : public SharedServer<Embeddings> {
  protected:
    static Response post(const std::string& path, const Json& body) { return ask(port(), "POST", path, body); }
    static Json vectors(const Json& body) {
        const Response r = post("/v1/embeddings", body);
        EXPECT_EQ(r.status, 200) << r.body;
        return r.json();
    }
};

double length(const Json& vector) {
    double squares = 0;
    for (const Json& x : vector) squares += x.get<double>() * x.get<double>();
    return std::sqrt(squares);
}

TEST_F(Embeddings, TextsIdsAndListsOfThem) {
    const Json one = vectors({{"model", "tiny"}, {"input", "Hello"}});
    EXPECT_EQ(one["object"], "list");
    EXPECT_EQ(one["model"], "tiny");
    EXPECT_EQ(one["data"][0]["object"], "embedding");
    EXPECT_EQ(one["data"][0]["index"], 0);
    EXPECT_EQ(one["usage"]["prompt_tokens"], 5);
    EXPECT_EQ(one["usage"]["total_tokens"], 5);
    const Json vector = one["data"][0]["embedding"];
    EXPECT_NEAR(length(vector), 1, 1e-5);
    const Json ids = post("/tokenize", {{"content", "Hello"}}).json()["tokens"];
    const Json several = vectors({{"input", {"Hello", "Another text", "Hello"}}});
    ASSERT_EQ(several["data"].size(), 3u);
    EXPECT_EQ(several["data"][0]["embedding"], vector);
    EXPECT_EQ(several["data"][2]["embedding"], vector);
    EXPECT_NE(several["data"][1]["embedding"], vector);
    EXPECT_EQ(several["data"][1]["index"], 1);
    EXPECT_EQ(vectors({{"input", ids}})["data"][0]["embedding"], vector);
    EXPECT_EQ(vectors({{"input", {ids, ids}}})["data"][1]["embedding"], vector);
    EXPECT_EQ(vectors({{"input", "Hello"}, {"pooling", "last"}})["data"][0]["embedding"], vector);   // the default
    const Json mean = vectors({{"input", "Hello"}, {"pooling", "mean"}})["data"][0]["embedding"];
    EXPECT_NE(mean, vector);
    EXPECT_NEAR(length(mean), 1, 1e-5);
    // More texts than slots and than may wait.
    Json many = Json::array();
    for (int i = 0; i < 200; ++i) many.push_back("text " + std::to_string(i % 7));
    const Json all = vectors({{"input", many}});
    ASSERT_EQ(all["data"].size(), 200u);
    for (std::size_t i = 7; i < 200; ++i) EXPECT_EQ(all["data"][i]["embedding"], all["data"][i % 7]["embedding"]);
}

TEST_F(Embeddings, Base64AndDimensions) {
    const Json vector = vectors({{"input", "Hello"}})["data"][0]["embedding"];
    std::string bytes;
    for (const Json& x : vector) {
        const float f = x.get<float>();
        bytes.append(reinterpret_cast<const char*>(&f), 4);
    }
    EXPECT_EQ(vectors({{"input", "Hello"}, {"encoding_format", "base64"}})["data"][0]["embedding"], server::base64(bytes));
    const Json some = vectors({{"input", "Hello"}, {"dimensions", 8}})["data"][0]["embedding"];
    ASSERT_EQ(some.size(), 8u);
    EXPECT_NEAR(length(some), 1, 1e-5);
    for (std::size_t i = 1; i < 8; ++i) EXPECT_NEAR(some[i].get<double>() * vector[0].get<double>(), vector[i].get<double>() * some[0].get<double>(), 1e-5);
    for (const auto& [text, expected] : {std::pair<std::string, std::string>{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}})
        EXPECT_EQ(server::base64(text), expected);
}

TEST_F(Embeddings, MistakesNameTheirField) {
    const std::string longer(600, 'a');   // the context holds 512
    for (const auto& [body, field] : {std::pair<Json, std::string>{{{"model", "tiny"}}, "input"}, {{{"input", ""}}, "input"}, {{{"input", Json::array()}}, "input"}, {{{"input", 5}}, "input"},
                                      {{{"input", {"a", ""}}}, "input"}, {{{"input", {"a", 5}}}, "input[1]"}, {{{"input", {1, "a"}}}, "input"}, {{{"input", {-1}}}, "input"}, {{{"input", {999999}}}, "input"},
                                      {{{"input", Json::array({Json::array()})}}, "input"}, {{{"input", {{1}, "a"}}}, "input[1]"}, {{{"input", "a"}, {"dimensions", 0}}, "dimensions"},
                                      {{{"input", "a"}, {"dimensions", 100000}}, "dimensions"}, {{{"input", "a"}, {"encoding_format", "hex"}}, "encoding_format"}, {{{"input", "a"}, {"pooling", "cls"}}, "pooling"},
                                      {{{"input", longer}}, "input"}, {{{"input", "a"}, {"frob", 1}}, "frob"}}) {
        const Response r = post("/v1/embeddings", body);
        EXPECT_EQ(r.status, 400) << body.dump().substr(0, 80) << r.body;
        EXPECT_EQ(r.json()["error"]["param"], field) << r.body;
    }
    EXPECT_EQ(post("/v1/embeddings", {{"model", "none"}, {"input", "a"}}).status, 404);
}

TEST_F(Embeddings, Ollama) {
    const Json vector = vectors({{"input", "Hello"}})["data"][0]["embedding"];
    const Json one = post("/api/embed", {{"model", "tiny"}, {"input", "Hello"}}).json();
    EXPECT_EQ(one["embeddings"], Json::array({vector}));
    EXPECT_EQ(one["prompt_eval_count"], 5);
    EXPECT_EQ(post("/api/embed", {{"model", "tiny:latest"}, {"input", {"Hello", "b"}}}).json()["embeddings"].size(), 2u);
    EXPECT_EQ(post("/api/embeddings", {{"model", "tiny"}, {"prompt", "Hello"}}).json()["embedding"], vector);
    // A text that is too long loses its end, unless that is refused.
    EXPECT_EQ(post("/api/embed", {{"model", "tiny"}, {"input", std::string(600, 'a')}}).json()["prompt_eval_count"], 512);
    EXPECT_EQ(post("/api/embed", {{"model", "tiny"}, {"input", std::string(600, 'a')}, {"truncate", false}}).status, 400);
    EXPECT_EQ(post("/api/embed", {{"input", "a"}}).status, 400);
}

// Chats next to embeddings answer as they do alone.
TEST_F(Embeddings, DoNotChangeAnswers) {
    const Json chat = {{"prompt", "Say something about the weather of tomorrow and of the day after"}, {"max_tokens", 40}, {"temperature", 0}, {"ignore_eos", true}};
    const Json alone = post("/v1/completions", chat).json()["choices"];
    std::atomic<bool> over{false};
    std::thread other([&] { while (!over) vectors({{"input", {"Say something about the weather of tomorrow and more", "x"}}, {"pooling", "mean"}}); });
    for (int i = 0; i < 10; ++i) EXPECT_EQ(post("/v1/completions", chat).json()["choices"], alone);
    over = true;
    other.join();
}

TEST_F(Embeddings, OllamaModelsAreFiles) {
    EXPECT_EQ(post("/api/pull", {{"model", "tiny"}}).lines().back()["status"], "success");   // it is here
    EXPECT_EQ(post("/api/pull", {{"model", "tiny"}, {"stream", false}}).json()["status"], "success");
    const Response pull = post("/api/pull", {{"model", "another"}});
    EXPECT_EQ(pull.status, 501);
    EXPECT_THAT(pull.json()["error"].get<std::string>(), testing::HasSubstr("started with"));
    EXPECT_EQ(post("/api/pull", Json::object()).status, 400);
    const auto remove = [](const Json& body) { return ask(port(), "DELETE", "/api/delete", body); };
    EXPECT_EQ(remove({{"model", "tiny"}}).status, 501);
    EXPECT_EQ(remove({{"model", "another"}}).status, 404);
    EXPECT_EQ(remove({{"name", ""}}).status, 400);
    const Json tag = ask(port(), "GET", "/api/tags").json()["models"][0];
    EXPECT_EQ(tag["digest"].get<std::string>().size(), 64u);
    EXPECT_FALSE(ask(port(), "GET", "/api/ps").json()["models"][0].contains("expires_at"));   // it stays
    post("/api/embed", {{"model", "tiny"}, {"input", "a"}, {"keep_alive", "5m"}});
    const Json running = ask(port(), "GET", "/api/ps").json()["models"][0];
    EXPECT_THAT(running["expires_at"].get<std::string>(), testing::MatchesRegex("20..-..-..T..:..:..Z"));
    EXPECT_EQ(running["digest"], tag["digest"]);
    post("/api/embed", {{"model", "tiny"}, {"input", "a"}, {"keep_alive", -1}});
}

TEST(Digest, IsOfWhatFilesHold) {
    EXPECT_EQ(server::sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(server::sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(server::sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    std::string content(3000000, 'x');
    const std::string a = write_temporary("a/model.gguf", content), b = write_temporary("b/model.gguf", content);
    EXPECT_EQ(server::model_digest(a), server::model_digest(b));
    content.back() = 'y';
    EXPECT_NE(server::model_digest(write_temporary("c/model.gguf", content)), server::model_digest(a));
    EXPECT_EQ(server::model_digest(a + ".none"), "");
}

TEST(SlotFiles, AreSavedRestoredAndErased) {
    server::ServeOptions o = tiny_options();
    const std::string prompt(80, 'q');
    const Json request = {{"prompt", prompt}, {"max_tokens", 4}, {"temperature", 0}, {"ignore_eos", true}};
    const auto cached = [&](std::uint16_t port) { return ask(port, "POST", "/v1/completions", request).json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>(); };
    {
        const auto plain = tiny_server(o);
        EXPECT_EQ(ask(plain->port(), "POST", "/slots/0?action=save", {{"filename", "a"}}).status, 501);
        EXPECT_EQ(ask(plain->port(), "GET", "/slots").json().size(), 4u);
    }
    const std::string marker = write_temporary("slots/.keep", "");
    o.slot_folder = marker.substr(0, marker.rfind('/'));
    auto server = tiny_server(o);
    std::uint16_t port = server->port();
    EXPECT_EQ(cached(port), 0);
    int used = -1;
    for (const Json& slot : ask(port, "GET", "/slots").json()) {
        EXPECT_EQ(slot["n_ctx"], 512);
        if (slot["n_past"] > 5) used = slot["id"];
    }
    ASSERT_GE(used, 0);
    const std::string path = "/slots/" + std::to_string(used);
    const Json saved = ask(port, "POST", path + "?action=save", {{"filename", "chat.bin"}}).json();
    EXPECT_EQ(saved["id_slot"], used);
    EXPECT_EQ(saved["n_saved"], 83);
    EXPECT_EQ(saved["n_written"], std::filesystem::file_size(o.slot_folder + "/chat.bin"));
    EXPECT_EQ(ask(port, "POST", path + "?action=erase").json()["n_erased"], 83);
    for (const char* name : {"", "../x", "a/b", ".keep", "/etc/passwd", "a\\b", "..", "a b"}) {
        EXPECT_EQ(ask(port, "POST", path + "?action=save", {{"filename", name}}).status, 400) << name;
        EXPECT_EQ(ask(port, "POST", path + "?action=restore", {{"filename", name}}).status, 400) << name;
    }
    EXPECT_EQ(ask(port, "POST", path + "?action=restore", {{"filename", "none"}}).status, 404);
    EXPECT_EQ(ask(port, "POST", path + "?action=explode").status, 400);
    EXPECT_EQ(ask(port, "POST", path).status, 400);
    EXPECT_EQ(ask(port, "POST", "/slots/77?action=erase").status, 404);
    EXPECT_EQ(ask(port, "POST", "/slots/x?action=erase").status, 404);
    EXPECT_EQ(ask(port, "GET", path).status, 405);
    server = nullptr;
    server = tiny_server(o);
    port = server->port();
    EXPECT_EQ(ask(port, "POST", "/slots/2?action=restore", {{"filename", "chat.bin"}}).json()["n_restored"], 83);
    EXPECT_EQ(cached(port), 79);
}

}  // namespace
}  // namespace forge::test
