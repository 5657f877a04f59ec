// Text that a command reads: a file, or standard input for "-".
#pragma once

#include <functional>
#include <string>

namespace forge::cli {

std::string read_input(const std::string& path);

// Calls body for every line, without its newline; the last one may lack it. Lines are read as they come.
void for_each_line(const std::string& path, const std::function<void(const std::string&)>& body);

}  // namespace forge::cli
