#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace forge {

std::string format_bytes(std::uint64_t bytes) {
    const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    int unit = 0;
    while (value >= 1024 && unit < 4) { value /= 1024; ++unit; }
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, units[unit]);
}

namespace {

// "40 s", "12 min", "2 h 5 min"
std::string format_seconds(double seconds) {
    if (seconds < 100) return fmt::format("{:.0f} s", seconds);
    const auto minutes = static_cast<std::uint64_t>(std::min(seconds, 1e9) / 60 + 0.5);
    return minutes < 100 ? fmt::format("{} min", minutes) : fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

}  // namespace

Progress::Progress(std::string label, std::uint64_t total, std::string unit)
    : label_(std::move(label)), unit_(std::move(unit)), total_(std::max<std::uint64_t>(1, total)),
      start_(std::chrono::steady_clock::now()), terminal_(isatty(2)) {}

Progress::~Progress() {
    if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::advance(std::uint64_t amount) {
    const std::uint64_t done = done_.fetch_add(amount, std::memory_order_relaxed) + amount;
    if (!terminal_) return;
    const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start_).count();
    std::int64_t due = next_draw_ms_.load(std::memory_order_relaxed);
    if (elapsed < due || !next_draw_ms_.compare_exchange_strong(due, elapsed + 100)) return;
    draw(done);
}

void Progress::skip(std::uint64_t amount) {
    skipped_.fetch_add(amount, std::memory_order_relaxed);
    advance(amount);
}

void Progress::draw(std::uint64_t done) {
    std::lock_guard lock(mutex_);
    struct winsize window{};
    const int columns = ioctl(2, TIOCGWINSZ, &window) == 0 && window.ws_col > 20 ? window.ws_col : 80;
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const std::uint64_t skipped = std::min(skipped_.load(std::memory_order_relaxed), done);
    const double rate = static_cast<double>(done - skipped) / std::max(seconds, 1e-3);  // a second
    const double left = rate > 0 && total_ > done ? static_cast<double>(total_ - done) / rate : 0;
    const std::string tail = unit_ == "B"
        ? fmt::format(" {:3.0f} %  {} / {}  {}/s  {} left", share * 100, format_bytes(done), format_bytes(total_),
                      format_bytes(static_cast<std::uint64_t>(rate)), format_seconds(left))
        : fmt::format(" {:3.0f} %  {} / {} {}  {} left", share * 100, done, total_, unit_, format_seconds(left));
    const int width = std::clamp(columns - static_cast<int>(label_.size() + tail.size()) - 4, 0, 40);
    const int filled = static_cast<int>(share * width + 0.5);
    std::string line = fmt::format("\r{} [{}{}]{}\033[K", label_, std::string(filled, '#'), std::string(width - filled, '.'), tail);
    std::fwrite(line.data(), 1, line.size(), stderr);
    drawn_ = true;
}

}  // namespace forge
