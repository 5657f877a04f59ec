// What the tokenizer's fuzz targets share. Input: a file; what follows a line "\n%%\n" is the text
// that is encoded and decoded where the file loads.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "tokenizer/tokenizer.h"

namespace forge::fuzz {

inline void use(const std::shared_ptr<const Tokenizer>& t, std::string_view text) {
    for (bool special : {false, true}) {
        const auto ids = t->encode(text, {special, special});
        StreamDecoder stream(t, special);
        for (const auto id : ids) {
            if (id < 0 || id >= t->size()) std::abort();
            stream.push(id);
            t->token_text(id);
        }
        stream.finish();
        t->decode(ids, special);
    }
}

// load(file) gives a tokenizer or throws Error.
template <typename Load>
int tokenizer_input(const std::uint8_t* data, std::size_t size, const Load& load) {
    set_log_level(LogLevel::error);
    std::string_view file(reinterpret_cast<const char*>(data), size);
    std::string_view text = "Hello  world\n 123 \xE2\x96\x81x <s>\xF0\x9F\x98\x80";
    if (const std::size_t at = file.rfind("\n%%\n"); at != std::string_view::npos) {
        text = file.substr(at + 4);
        file = file.substr(0, at);
    }
    try {
        use(load(file), text);
    } catch (const Error& e) {
        if (e.kind() == ErrorKind::internal) std::abort();
    }
    return 0;
}

}  // namespace forge::fuzz
