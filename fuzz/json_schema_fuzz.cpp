// Any bytes as a JSON Schema: an Error or a grammar that can be followed to its end.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "grammar/compile.h"
#include "grammar_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0 || size > 4096) return 0;
    const auto schema = nlohmann::ordered_json::parse(data + 1, data + size, nullptr, false);
    if (schema.is_discarded()) return 0;
    try {
        const forge::SchemaOptions options{data[0] % 2 == 1};
        if (data[0] % 4 < 2) {
            follow(forge::compile_schema(schema, options));
        } else {   // in the notation whose strings stand between special tokens
            const forge::Notation notation{forge::Notation::Kind::bare, forge::Grammar::special_begin + std::string("<|q|>") + forge::Grammar::special_end};
            follow(forge::compile_forms({{{}, {}, {}, {{{"", &schema, notation}}}, false}}, options));
        }
    } catch (const forge::Error&) {
    }
    return 0;
}
