#include "table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/error.h"

namespace forge::cli {
namespace {

// Columns a UTF-8 text takes on a terminal, nearly: one per code point.
std::size_t width(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t to, Table::Align align) {
    const std::string spaces(to > width(text) ? to - width(text) : 0, ' ');
    return align == Table::Align::left ? text + spaces : spaces + text;
}

std::string csv_cell(const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string quoted = "\"";
    for (char c : text) {
        if (c == '"') quoted += '"';
        quoted += c;
    }
    return quoted + '"';
}

}  // namespace

void Table::add(std::vector<std::string> row) {
    if (row.size() != columns_.size())
        fail(ErrorKind::internal, "a table of {} columns got a row of {}", columns_.size(), row.size());
    rows_.push_back(std::move(row));
}

std::vector<std::size_t> Table::widths() const {
    std::vector<std::size_t> result;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        std::size_t w = width(columns_[c].title);
        for (const auto& row : rows_) w = std::max(w, width(row[c]));
        result.push_back(w);
    }
    return result;
}

std::string Table::text() const {
    const auto w = widths();
    std::string out;
    const auto line = [&](const auto& cell) {
        std::string row;
        for (std::size_t c = 0; c < columns_.size(); ++c)
            row += padded(cell(c), w[c], columns_[c].align) + (c + 1 < columns_.size() ? "  " : "");
        row.erase(row.find_last_not_of(' ') + 1);
        out += row + '\n';
    };
    line([&](std::size_t c) { return columns_[c].title; });
    for (const auto& row : rows_) line([&](std::size_t c) { return row[c]; });
    return out;
}

std::string Table::markdown() const {
    auto w = widths();
    for (auto& x : w) x = std::max<std::size_t>(x, 3);
    std::string out;
    for (std::size_t c = 0; c < columns_.size(); ++c) out += "| " + padded(columns_[c].title, w[c], columns_[c].align) + ' ';
    out += "|\n";
    for (std::size_t c = 0; c < columns_.size(); ++c)
        out += columns_[c].align == Align::left ? fmt::format("| {} ", std::string(w[c], '-'))
                                                : fmt::format("| {}: ", std::string(w[c] - 1, '-'));
    out += "|\n";
    for (const auto& row : rows_) {
        for (std::size_t c = 0; c < columns_.size(); ++c) out += "| " + padded(row[c], w[c], columns_[c].align) + ' ';
        out += "|\n";
    }
    return out;
}

std::string Table::csv() const {
    std::string out;
    for (std::size_t c = 0; c < columns_.size(); ++c) out += (c ? "," : "") + csv_cell(columns_[c].title);
    out += '\n';
    for (const auto& row : rows_) {
        for (std::size_t c = 0; c < columns_.size(); ++c) out += (c ? "," : "") + csv_cell(row[c]);
        out += '\n';
    }
    return out;
}

std::string format_count(double count) {
    const char* units[] = {"", " K", " M", " B", " T"};
    int unit = 0;
    while (count >= 1000 && unit < 4) {
        count /= 1000;
        ++unit;
    }
    if (unit == 0) return fmt::format("{:.0f}", count);
    return fmt::format("{:.{}f}{}", count, count < 10 ? 2 : 1, units[unit]);
}

}  // namespace forge::cli
