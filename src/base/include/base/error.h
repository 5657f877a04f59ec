// Errors that a user can cause or meet. Every message is a sentence that says
// what was wanted, what was found, where, and what to do.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace forge {

// What kind of failure it was; the CLI turns it into an exit status and the
// server into an HTTP status.
enum class ErrorKind {
    invalid_input,  // a file, request or argument is wrong
    unsupported,    // well formed, but Forge does not implement it; named in the message
    not_found,      // a path, model or name does not exist
    out_of_memory,  // does not fit; the message has the figures
    io,             // the operating system refused
    internal,       // a bug of ours
};

class Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
    ErrorKind kind() const { return kind_; }

  private:
    ErrorKind kind_;
};

// fail(ErrorKind::unsupported, "{}: tensor type {} is not implemented", path, name)
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
    throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// The common case: input that is wrong.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
    throw Error(ErrorKind::invalid_input, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace forge
