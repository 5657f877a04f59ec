// How the values of a schema are written.
#pragma once

#include <string>

namespace forge {

struct Notation {
    enum class Kind {
        json,
        // {key:value}: as JSON, but names stand bare, strings are between two `quote`s and say what they say, without
        // escapes and without the beginning of a quote. No spaces.
        bare,
        // (key=value, key=value): an object as the arguments of a Python call; inside, JSON with True, False and None.
        call,
    };
    Kind kind = Kind::json;
    std::string quote = {};   // of `bare`: of two characters at least; perhaps a special token, as Grammar writes it
};

}  // namespace forge
