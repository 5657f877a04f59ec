#include "tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace forge::synth {
namespace {

// UTF-8 of a code point below 0x800.
std::string utf8(int code) {
    if (code < 0x80) return {static_cast<char>(code)};
    return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

// The printable character that stands for each byte in byte-level BPE: itself
// when it is printable Latin-1, else the next free code point from 256 on.
std::vector<std::string> byte_alphabet() {
    std::vector<std::string> alphabet;
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        alphabet.push_back(utf8(printable ? byte : next++));
    }
    return alphabet;
}

constexpr std::string_view chatml_template =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% "
    "endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

constexpr std::string_view llama_template =
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] "
    "}}<|end_header_id|>\n\n"
    "{{ message['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}";

constexpr std::string_view gemma_template =
    "{{ bos_token }}{% for message in messages %}<start_of_turn>"
    "{{ 'model' if message['role'] == 'assistant' else message['role'] }}\n{{ message['content'] "
    "}}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}";

// The pattern that cuts text into words; digits: how numbers are cut.
std::string words_pattern(std::string_view digits) {
    return fmt::format(
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|)"
        R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
        digits);
}

// What a family's tokenizer is beyond its tokens; returns the special tokens.
std::vector<std::string> set_family(Family family, Tokenizer& t, std::string& bos,
                                    std::vector<std::string>& stop, std::string& pad) {
    switch (family) {
        case Family::qwen3:
        case Family::qwen3_moe:
        case Family::qwen35:
        case Family::qwen35_moe:
            t.gguf_pre = "qwen2";
            t.split_regex = words_pattern(R"(\p{N})");
            t.nfc = true;
            t.chat_template = chatml_template;
            stop = {"<|im_end|>", "<|endoftext|>"};
            pad = "<|endoftext|>";
            return {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
        case Family::llama:
            t.gguf_pre = "llama-bpe";
            t.split_regex = words_pattern(R"(\p{N}{1,3})");
            t.ignore_merges = true;
            t.add_bos = true;
            t.chat_template = llama_template;
            bos = "<|begin_of_text|>";
            stop = {"<|eot_id|>", "<|end_of_text|>"};
            pad = "<|end_of_text|>";
            return {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                    "<|eot_id|>"};
        case Family::gemma3:
        case Family::gemma4:
            t.gguf_pre = "gpt-2";
            t.add_bos = true;
            t.chat_template = gemma_template;
            bos = "<bos>";
            stop = {"<end_of_turn>", "<eos>"};
            pad = "<pad>";
            return {"<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"};
    }
    fail(ErrorKind::internal, "a model family has no synthetic tokenizer");
}

}  // namespace

Tokenizer make_tokenizer(const Shape& shape) {
    Tokenizer t;
    std::string bos, pad;
    std::vector<std::string> stop;
    const std::vector<std::string> specials = set_family(shape.family, t, bos, stop, pad);

    const std::vector<std::string> alphabet = byte_alphabet();
    t.tokens = alphabet;
    for (char a : std::string_view("etaoinshrdlu")) {
        for (char b : std::string_view("etaoinshrdlu ")) {
            const std::string& left = alphabet[static_cast<unsigned char>(a)];
            const std::string& right = alphabet[static_cast<unsigned char>(b)];
            t.merges.emplace_back(left, right);
            t.tokens.push_back(left + right);
        }
    }
    t.first_special = shape.vocab - static_cast<int>(specials.size());
    if (static_cast<int>(t.tokens.size()) > t.first_special)
        fail(ErrorKind::internal, "a vocabulary of {} has no room for a byte-level tokenizer", shape.vocab);
    t.tokens.reserve(static_cast<std::size_t>(shape.vocab));
    while (static_cast<int>(t.tokens.size()) < t.first_special)
        t.tokens.push_back(fmt::format("tk{}", t.tokens.size()));
    t.tokens.insert(t.tokens.end(), specials.begin(), specials.end());

    const auto id_of = [&](const std::string& special) {
        return t.first_special +
               static_cast<int>(std::find(specials.begin(), specials.end(), special) - specials.begin());
    };
    if (!bos.empty()) t.bos = id_of(bos);
    for (const std::string& token : stop) t.stop.push_back(id_of(token));
    t.eos = t.stop.front();
    t.pad = id_of(pad);
    return t;
}

}  // namespace forge::synth
