// Tables on stdout: aligned columns for people, Markdown, or CSV.
#pragma once

#include <string>
#include <vector>

namespace forge::cli {

class Table {
  public:
    enum class Align { left, right };
    struct Column { std::string title; Align align = Align::left; };

    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
    void add(std::vector<std::string> row);  // one cell a column

    std::string text() const;      // columns two spaces apart
    std::string markdown() const;  // with aligned pipes
    std::string csv() const;       // RFC 4180

  private:
    std::vector<std::size_t> widths() const;
    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

// "134.5 M", "7.62 B".
std::string format_count(double count);

}  // namespace forge::cli
