// Counters and histograms in Prometheus' text form.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>

namespace forge::server {

// Seconds, in buckets that fit both times to a first token and times between tokens.
class Histogram {
  public:
    void add(double seconds);
    std::string text(const std::string& name, const std::string& help) const;

  private:
    static constexpr std::array<double, 14> bounds_{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};
    mutable std::mutex mutex_;
    std::array<std::uint64_t, 15> counts_{};
    double sum_ = 0;
};

struct Metrics {
    Histogram first_token, between_tokens, queue_time;
    std::atomic<std::uint64_t> cancelled{0}, refused{0};

    void count_request(const std::string& route, int status);
    std::string requests() const;

  private:
    mutable std::mutex mutex_;
    std::map<std::pair<std::string, int>, std::uint64_t> requests_;   // routes are a fixed set
};

}  // namespace forge::server
