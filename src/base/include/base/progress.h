// A progress bar on stderr: shown only on a terminal and only when the work
// takes more than half a second. Safe to advance from several threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace forge {

class Progress {
  public:
    // unit: "B" prints sizes (MiB, GiB); anything else prints plain counts.
    Progress(std::string label, std::uint64_t total, std::string unit = "B");
    ~Progress();  // clears the line
    void advance(std::uint64_t amount);
    // Part of the total that was there already: counts as done, and not for the rate and the time left.
    void skip(std::uint64_t amount);

  private:
    void draw(std::uint64_t done);
    std::string label_, unit_;
    std::uint64_t total_;
    std::atomic<std::uint64_t> done_{0}, skipped_{0};
    std::atomic<std::int64_t> next_draw_ms_{500};
    std::chrono::steady_clock::time_point start_;
    std::mutex mutex_;
    bool terminal_, drawn_ = false;
};

// "1.2 GiB", "340 MiB".
std::string format_bytes(std::uint64_t bytes);

}  // namespace forge
