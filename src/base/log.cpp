#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace forge {
namespace {
std::atomic<LogLevel> current{LogLevel::warn};
bool colours() {
    static const bool on = isatty(2) && !std::getenv("NO_COLOR");
    return on;
}
}  // namespace

void set_log_level(LogLevel level) { current = level; }
LogLevel log_level() { return current; }

void log_message(LogLevel level, std::string_view message) {
    constexpr std::string_view names[] = {"error", "warning", "info", "debug"};
    constexpr std::string_view codes[] = {"\033[31m", "\033[33m", "\033[36m", "\033[2m"};
    const auto i = static_cast<std::size_t>(level);
    std::string line = colours() ? fmt::format("{}{}:\033[0m {}\n", codes[i], names[i], message)
                                 : fmt::format("{}: {}\n", names[i], message);
    std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace forge
