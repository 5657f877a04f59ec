#include "jinja/time_format.h"

#include <fmt/format.h>

namespace forge::jinja {
namespace {

constexpr std::string_view days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                     "Thursday", "Friday", "Saturday"};
constexpr std::string_view months[] = {"January", "February", "March",     "April",   "May",      "June",
                                       "July",    "August",   "September", "October", "November", "December"};

// ISO 8601: week 1 is the one with the year's first Thursday.
void iso_week(const std::tm& t, int& year, int& week) {
    const auto weeks_in = [](int y) {
        const auto p = [](int x) { return (x + x / 4 - x / 100 + x / 400) % 7; };
        return p(y) == 4 || p(y - 1) == 3 ? 53 : 52;
    };
    year = t.tm_year + 1900;
    const int weekday = t.tm_wday == 0 ? 7 : t.tm_wday;
    week = (t.tm_yday + 1 - weekday + 10) / 7;
    if (week < 1)
        week = weeks_in(--year);
    else if (week > weeks_in(year))
        week = 1, ++year;
}

}  // namespace

bool format_time(std::string_view format, const std::tm& t, std::string& out, std::string& unknown) {
    const int year = t.tm_year + 1900, hour12 = t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12;
    const auto put = [&](std::string_view pattern) { return format_time(pattern, t, out, unknown); };
    for (std::size_t i = 0; i < format.size(); ++i) {
        if (format[i] != '%') {
            out += format[i];
            continue;
        }
        const char d = i + 1 < format.size() ? format[++i] : '\0';
        int iso_year = 0, week = 0;
        switch (d) {
            case 'a':
                out += days[t.tm_wday].substr(0, 3);
                break;
            case 'A':
                out += days[t.tm_wday];
                break;
            case 'b':
            case 'h':
                out += months[t.tm_mon].substr(0, 3);
                break;
            case 'B':
                out += months[t.tm_mon];
                break;
            case 'c':
                put("%a %b %e %H:%M:%S %Y");
                break;
            case 'C':
                out += fmt::format("{:02}", year / 100);
                break;
            case 'd':
                out += fmt::format("{:02}", t.tm_mday);
                break;
            case 'D':
            case 'x':
                put("%m/%d/%y");
                break;
            case 'e':
                out += fmt::format("{:2}", t.tm_mday);
                break;
            case 'f':
                out += "000000";
                break;
            case 'F':
                put("%Y-%m-%d");
                break;
            case 'G':
                iso_week(t, iso_year, week);
                out += std::to_string(iso_year);
                break;
            case 'H':
                out += fmt::format("{:02}", t.tm_hour);
                break;
            case 'I':
                out += fmt::format("{:02}", hour12);
                break;
            case 'j':
                out += fmt::format("{:03}", t.tm_yday + 1);
                break;
            case 'm':
                out += fmt::format("{:02}", t.tm_mon + 1);
                break;
            case 'M':
                out += fmt::format("{:02}", t.tm_min);
                break;
            case 'n':
                out += '\n';
                break;
            case 'p':
                out += t.tm_hour < 12 ? "AM" : "PM";
                break;
            case 'r':
                put("%I:%M:%S %p");
                break;
            case 'R':
                put("%H:%M");
                break;
            case 'S':
                out += fmt::format("{:02}", t.tm_sec);
                break;
            case 't':
                out += '\t';
                break;
            case 'T':
            case 'X':
                put("%H:%M:%S");
                break;
            case 'u':
                out += std::to_string(t.tm_wday == 0 ? 7 : t.tm_wday);
                break;
            case 'U':
                out += fmt::format("{:02}", (t.tm_yday + 7 - t.tm_wday) / 7);
                break;
            case 'V':
                iso_week(t, iso_year, week);
                out += fmt::format("{:02}", week);
                break;
            case 'w':
                out += std::to_string(t.tm_wday);
                break;
            case 'W':
                out += fmt::format("{:02}", (t.tm_yday + 7 - (t.tm_wday + 6) % 7) / 7);
                break;
            case 'y':
                out += fmt::format("{:02}", year % 100);
                break;
            case 'Y':
                out += std::to_string(year);
                break;
            case 'z':
            case 'Z':
                break;  // the reference's clock has no time zone
            case '%':
                out += '%';
                break;
            case '-':  // no padding, as in %-d
                if (i + 1 < format.size() &&
                    std::string_view("dmHIMSjyeUWV").find(format[i + 1]) != std::string_view::npos) {
                    std::string padded;
                    const char directive[] = {'%', format[++i]};
                    format_time(std::string_view(directive, 2), t, padded, unknown);
                    const std::size_t first = padded.find_first_not_of("0 ");
                    out += first == std::string::npos ? "0" : padded.substr(first);
                    break;
                }
                [[fallthrough]];
            default:
                unknown = std::string("%") + (d ? std::string(1, d) : "");
                return false;
        }
    }
    return true;
}

}  // namespace forge::jinja
