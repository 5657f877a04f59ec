// The results of forge bench as Markdown, JSON or CSV.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge::cli {

struct BenchRow {
    std::string model, backend, dtype, test;
    std::uint64_t size_bytes = 0, params = 0;
    int threads = 0;
    bool prefill = false;
    double tps = 0, tps_stddev = 0;
    double work = 0;   // GFLOP/s of prefill, GB/s of decode
    double limit = 0;  // of the machine, same unit; 0 = not measured
};

enum class BenchFormat { markdown, json, csv };
BenchFormat parse_bench_format(const std::string& name);  // a usage error for another name

class BenchReport {
  public:
    BenchReport(BenchFormat format, bool limits) : format_(format), limits_(limits) {}
    void add(BenchRow row) { rows_.push_back(std::move(row)); }
    std::string text() const;
    void print() const;

  private:
    std::string json() const;
    BenchFormat format_;
    bool limits_;
    std::vector<BenchRow> rows_;
};

}  // namespace forge::cli
