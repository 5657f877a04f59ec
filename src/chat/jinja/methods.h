// The tables of methods, one per type.
#pragma once

#include "jinja/evaluator.h"

namespace forge::jinja::methods {

Method find_string(std::string_view name);
Method find_dict(std::string_view name);
Method find_list(std::string_view name);         // also those of tuples
Method find_list_change(std::string_view name);  // append, extend, insert, pop
Method find_loop(std::string_view name);

}  // namespace forge::jinja::methods
