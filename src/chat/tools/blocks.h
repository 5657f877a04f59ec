// The text of one block of calls, from its opener to its closer, for each family.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lenient.h"

namespace forge::tools {

struct ParsedCall {
    std::string name, id;      // id: the model's own, or empty
    std::string arguments;     // the text of a JSON object
};

struct Declared {
    explicit Declared(const Json& tools);
    bool has(std::string_view name) const;
    const Json& parameters(std::string_view name) const;   // null when unknown
    // Trimmed, and without a prefix such as "functions." if only the rest is declared.
    std::string name(std::string_view written) const;

    std::vector<std::pair<std::string, Json>> tools;
};

struct Block {
    enum class State {
        more,       // it goes on
        tail,       // complete; only a closer may still come
        done,       // `used` bytes were the block
        hopeless,   // `used` bytes are no calls: text
    };
    State state = State::more;
    std::size_t used = 0;
    std::vector<ParsedCall> calls;
};

// body: what follows the opener. last: nothing more will come. Readers never throw.
Block read_tagged(std::string_view body, bool last, const Declared& declared, bool glm);   // <tool_call> ... </tool_call>
Block read_functions(std::string_view body, bool last, const Declared& declared, bool json_arguments);   // <function=N>..., body begins with it
Block read_mistral(std::string_view body, bool last, const Declared& declared);
Block read_gemma4(std::string_view body, bool last, const Declared& declared);
Block read_deepseek(std::string_view body, bool last, const Declared& declared);
Block read_channel(std::string_view body, bool last, const Declared& declared);   // gpt-oss: to=functions.N <|message|>JSON
Block read_kimi(std::string_view body, bool last, const Declared& declared);
Block read_lfm2(std::string_view body, bool last, const Declared& declared);
// A JSON object or array, and then `closer` if it is there (it may be empty).
Block read_json(std::string_view body, bool last, const Declared& declared, std::string_view closer);
Block read_python_tag(std::string_view body, bool last, const Declared& declared);
// A message that begins without a marker: {"name": ...} or [N(k=v)] of declared tools.
Block read_bare(std::string_view body, bool last, const Declared& declared);

}  // namespace forge::tools
