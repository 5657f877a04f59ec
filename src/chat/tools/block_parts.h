// What the readers of blocks have in common.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "blocks.h"

namespace forge::tools {

constexpr std::size_t npos = std::string_view::npos;

inline Block more() { return {}; }
inline Block hopeless(std::size_t used) { return {Block::State::hopeless, used, {}}; }
// Neither complete nor about to be: up to the closer it is text.
Block give_up(std::string_view body, bool last, std::string_view closer);

std::string dumped(const Json& json);
// The arguments as a text: an object, or the text of one; anything else counts as none.
std::string arguments_of(const Json& value);
// {"name", "arguments"} under the names that models use for them, or a list of these.
std::vector<ParsedCall> calls_of(const Json& json, const Declared& declared);
// The JSON value at body[at]; where it ends. nullopt with end = npos: not yet complete.
std::optional<Json> json_at(std::string_view body, std::size_t at, bool last, std::size_t& end);
// [N(k=v), M()] at body[at]; end = npos when it is not complete.
std::vector<ParsedCall> python_list(std::string_view body, std::size_t at, const Declared& declared, bool only_declared, std::size_t& end);

// After a call: white space, stray brackets, and the closer if it comes.
Block closed_by(std::string_view body, std::size_t at, bool last, std::string_view closer, std::vector<ParsedCall> calls);
// A call whose name is known, or empty for none that is declared: JSON from body[from] on, then the closer.
Block with_arguments(ParsedCall call, std::string_view body, std::size_t from, bool last, std::string_view closer);
// Where a value ends: at a closer that something fitting follows. npos: not known yet.
std::size_t value_end(std::string_view body, std::size_t from, std::string_view closer, std::initializer_list<std::string_view> followers, bool last);

}  // namespace forge::tools
