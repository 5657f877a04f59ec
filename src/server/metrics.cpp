#include "metrics.h"

#include <fmt/format.h>

namespace forge::server {

void Histogram::add(double seconds) {
    std::size_t i = 0;
    while (i < bounds_.size() && seconds > bounds_[i]) ++i;
    std::lock_guard lock(mutex_);
    ++counts_[i];
    sum_ += seconds;
}

std::string Histogram::text(const std::string& name, const std::string& help) const {
    std::lock_guard lock(mutex_);
    std::string out = fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        total += counts_[i];
        out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf", total);
    }
    return out + fmt::format("{0}_sum {1}\n{0}_count {2}\n", name, sum_, total);
}

void Metrics::count_request(const std::string& route, int status) {
    std::lock_guard lock(mutex_);
    ++requests_[{route, status}];
}

std::string Metrics::requests() const {
    std::lock_guard lock(mutex_);
    std::string out = "# HELP forge_requests_total Requests answered.\n# TYPE forge_requests_total counter\n";
    for (const auto& [key, count] : requests_)
        out += fmt::format("forge_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
    return out;
}

}  // namespace forge::server
