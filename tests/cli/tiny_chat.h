// A tiny random model with a tokenizer of one character a token and a chat template, as a folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge::test {

// The folder of qwen3-tied with the text side added. Its template writes
// <|im_start|>role\ncontent<|im_end|>\n for each message, and raises on the role "tool".
const std::string& tiny_chat_model();

// The same with other characters: it can write JSON.
const std::string& tiny_json_model();

// Text of ids, as that tokenizer decodes them; ids 0..2 are <pad>, <|im_start|>, <|im_end|>.
std::string tiny_text(const std::vector<std::int32_t>& ids);

}  // namespace forge::test
