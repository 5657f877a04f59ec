// Any bytes as a GBNF grammar: an Error or a grammar that can be followed to its end.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "grammar/compile.h"
#include "grammar_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size > 4096) return 0;
    try {
        follow(forge::compile_gbnf(std::string_view(reinterpret_cast<const char*>(data), size)));
    } catch (const forge::Error&) {
    }
    return 0;
}
