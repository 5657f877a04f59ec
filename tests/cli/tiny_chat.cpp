#include "tiny_chat.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "run_forge.h"

namespace forge::test {
namespace {

// Ids 3..88: a space, a newline and 84 printable characters, all but ten.
std::string alphabet_without(const std::string& ten) {
    std::string all = " \n";
    for (char c = '!'; c <= '~'; ++c)
        if (ten.find(c) == std::string::npos) all += c;
    return all;
}

const std::string& alphabet() {
    static const std::string characters = alphabet_without("$@[]\\^{|}~");
    return characters;
}

// GPT-2's stand-in for a byte.
std::string byte_symbol(char c) {
    if (c == ' ') return "\xc4\xa0";   // U+0120
    if (c == '\n') return "\xc4\x8a";  // U+010A
    return std::string(1, c);
}

std::string tokenizer_json(const std::string& alphabet) {
    nlohmann::ordered_json vocab = {{"<pad>", 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2}};
    for (std::size_t i = 0; i < alphabet.size(); ++i) vocab[byte_symbol(alphabet[i])] = 3 + i;
    nlohmann::ordered_json added = nlohmann::ordered_json::array();
    for (int id = 0; id < 3; ++id) {
        const char* contents[] = {"<pad>", "<|im_start|>", "<|im_end|>"};
        added.push_back({{"id", id}, {"content", contents[id]}, {"special", true}, {"single_word", false}, {"lstrip", false},
                         {"rstrip", false}, {"normalized", false}});
    }
    const nlohmann::ordered_json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
    return nlohmann::ordered_json{{"version", "1.0"}, {"added_tokens", added}, {"normalizer", nullptr}, {"pre_tokenizer", byte_level},
                                  {"post_processor", byte_level}, {"decoder", byte_level},
                                  {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::ordered_json::array()}}}}.dump();
}

std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return std::move(out).str();
}

std::string write_model(const std::string& name_of_folder, const std::string& alphabet) {
    for (const char* name : {"config.json", "model.safetensors"}) write_temporary(name_of_folder + "/" + name, read(tiny_model("qwen3-tied") + "/" + name));
    write_temporary(name_of_folder + "/tokenizer_config.json", R"({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"})");
    write_temporary(name_of_folder + "/chat_template.jinja",
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined %}{{ enable_thinking }}\n{% endif %}{% endif %}");
    const std::string tokenizer = write_temporary(name_of_folder + "/tokenizer.json", tokenizer_json(alphabet));
    return tokenizer.substr(0, tokenizer.rfind('/'));
}

}  // namespace

const std::string& tiny_chat_model() {
    static const std::string folder = write_model("tiny-chat", alphabet());
    return folder;
}

const std::string& tiny_json_model() {
    static const std::string folder = write_model("tiny-json", alphabet_without("#$%&;@^`|~"));
    return folder;
}

std::string tiny_text(const std::vector<std::int32_t>& ids) {
    std::string text;
    for (std::int32_t id : ids) text += id == 0 ? "<pad>" : id == 1 ? "<|im_start|>" : id == 2 ? "<|im_end|>" : std::string(1, alphabet().at(static_cast<std::size_t>(id) - 3));
    return text;
}

}  // namespace forge::test
