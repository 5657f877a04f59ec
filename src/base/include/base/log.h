// Messages to the person or the log, on stderr. Progress bars are in progress.h.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace forge {

enum class LogLevel { error, warn, info, debug };

void set_log_level(LogLevel level);
LogLevel log_level();
// Writes one line; colours only on a terminal that wants them (NO_COLOR is honoured).
void log_message(LogLevel level, std::string_view message);

template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
    if (log_level() >= LogLevel::warn) log_message(LogLevel::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
    if (log_level() >= LogLevel::info) log_message(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
    if (log_level() >= LogLevel::debug) log_message(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace forge
