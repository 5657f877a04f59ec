// A mistake on the command line: main says it, with a hint at --help, and exits with 2.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace forge::cli {

class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
    throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace forge::cli
