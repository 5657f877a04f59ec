// Loads bytes as a tokenizer.json, a tekken.json or a SentencePiece model and,
// where that works, encodes and decodes. Input: one byte that says which, then
// the file; what follows a line "\n%%\n" is the text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "tokenizer/tokenizer.h"

namespace {

void use(const std::shared_ptr<const forge::Tokenizer>& t, std::string_view text) {
    for (bool special : {false, true}) {
        auto ids = t->encode(text, {special, special});
        forge::StreamDecoder stream(t, special);
        for (auto id : ids) {
            if (id < 0 || id >= t->size()) std::abort();
            stream.push(id);
            t->token_text(id);
        }
        stream.finish();
        t->decode(ids, special);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    forge::set_log_level(forge::LogLevel::error);
    if (size == 0) return 0;
    std::string_view file(reinterpret_cast<const char*>(data) + 1, size - 1);
    std::string_view text = "Hello  world\n 123 \xE2\x96\x81x <s>\xF0\x9F\x98\x80";
    if (std::size_t at = file.rfind("\n%%\n"); at != std::string_view::npos) {
        text = file.substr(at + 4);
        file = file.substr(0, at);
    }
    try {
        switch (data[0] % 3) {
            case 0:
                use(forge::Tokenizer::from_json(file, "", "fuzz"), text);
                break;
            case 1:
                use(forge::Tokenizer::from_sentencepiece(std::as_bytes(std::span(file)), "", "fuzz"), text);
                break;
            case 2:
                use(forge::Tokenizer::from_tekken(file, "fuzz"), text);
                break;
        }
    } catch (const forge::Error& e) {
        if (e.kind() == forge::ErrorKind::internal) std::abort();
    }
    return 0;
}
