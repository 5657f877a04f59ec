#include "bench_report.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "table.h"
#include "usage.h"

namespace forge::cli {
namespace {

// Enough digits to compute with, few enough to read.
double rounded(double value) { return std::isfinite(value) ? std::round(value * 1e3) / 1e3 : 0; }

}  // namespace

BenchFormat parse_bench_format(const std::string& name) {
    if (name == "md") return BenchFormat::markdown;
    if (name == "json") return BenchFormat::json;
    if (name == "csv") return BenchFormat::csv;
    fail_usage("--output should be md, json or csv, found {}", name);
}

std::string BenchReport::json() const {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const BenchRow& row : rows_) {
        nlohmann::ordered_json entry = {
            {"model", row.model}, {"size_bytes", row.size_bytes}, {"params", row.params}, {"backend", row.backend},
            {"dtype", row.dtype}, {"threads", row.threads}, {"test", row.test}, {"tps", rounded(row.tps)},
            {"tps_stddev", rounded(row.tps_stddev)}, {row.prefill ? "gflops" : "gbps", rounded(row.work)}};
        if (limits_ && row.limit > 0) {
            entry["limit"] = rounded(row.limit);
            entry["limit_pct"] = rounded(100 * row.work / row.limit);
        }
        list.push_back(std::move(entry));
    }
    return list.dump(2) + "\n";
}

std::string BenchReport::text() const {
    if (format_ == BenchFormat::json) return json();
    const auto right = Table::Align::right;
    const bool markdown = format_ == BenchFormat::markdown;
    std::vector<Table::Column> columns =
        markdown ? std::vector<Table::Column>{{"model"}, {"size", right}, {"params", right}, {"backend"}, {"threads", right},
                                              {"test", right}, {"t/s", right}, {"work", right}}
                 : std::vector<Table::Column>{{"model"}, {"size_bytes"}, {"params"}, {"backend"}, {"dtype"}, {"threads"}, {"test"},
                                              {"tps"}, {"tps_stddev"}, {"gbps"}, {"gflops"}};
    if (limits_) {
        columns.push_back({"limit", right});
        columns.push_back({markdown ? "% of limit" : "limit_pct", right});
    }
    Table table(columns);
    for (const BenchRow& row : rows_) {
        const double percent = row.limit > 0 ? 100 * row.work / row.limit : 0;
        const char* unit = row.prefill ? "GFLOP/s" : "GB/s";
        std::vector<std::string> cells;
        if (markdown) {
            cells = {row.model, format_bytes(row.size_bytes), format_count(static_cast<double>(row.params)),
                     fmt::format("{} {}", row.backend, row.dtype), std::to_string(row.threads), row.test,
                     fmt::format("{:.2f} ± {:.2f}", row.tps, row.tps_stddev), fmt::format("{:.1f} {}", row.work, unit)};
            if (limits_) {
                cells.push_back(row.limit > 0 ? fmt::format("{:.1f} {}", row.limit, unit) : "");
                cells.push_back(row.limit > 0 ? fmt::format("{:.1f} %", percent) : "");
            }
        } else {
            cells = {row.model, std::to_string(row.size_bytes), std::to_string(row.params), row.backend, row.dtype,
                     std::to_string(row.threads), row.test, fmt::format("{:.3f}", row.tps), fmt::format("{:.3f}", row.tps_stddev),
                     row.prefill ? "" : fmt::format("{:.3f}", row.work), row.prefill ? fmt::format("{:.3f}", row.work) : ""};
            if (limits_) {
                cells.push_back(fmt::format("{:.3f}", row.limit));
                cells.push_back(fmt::format("{:.2f}", percent));
            }
        }
        table.add(std::move(cells));
    }
    return markdown ? table.markdown() : table.csv();
}

void BenchReport::print() const {
    const std::string out = text();
    std::fwrite(out.data(), 1, out.size(), stdout);
}

}  // namespace forge::cli
