// Template text -> tokens, with Jinja's whitespace rules (trim_blocks and lstrip_blocks on).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace forge::jinja {

enum class Token : std::uint8_t {
    data,         // text to print as it is
    print_begin,  // {{
    print_end,
    block_begin,  // {%
    block_end,
    name,
    string,
    integer,
    real,
    op,
    end,
};

struct Lexeme {
    Token token = Token::end;
    int line = 1;
    std::string text;  // of data, name, op; the decoded string
    Value value;       // of integer and real
};

// Throws TemplateError (syntax). The last lexeme is Token::end.
std::vector<Lexeme> tokenize(std::string_view source);

[[noreturn]] void syntax_error(int line, std::string_view message);

}  // namespace forge::jinja
