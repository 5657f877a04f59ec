#include "formats.h"

#include <fmt/format.h>

namespace forge::grammar {
namespace {

const std::string leap_year = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
// Not 0000, which calendars of programming languages do not have.
const std::string year = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])";
const std::string full_date = "(?:" + year + "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" + leap_year + "-02-29)";
// A leap second is only known to be one in UTC.
const std::string full_time = "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|23:59:60(?:\\.[0-9]+)?(?:[Zz]|[+-]00:00))";
const std::string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const std::string ipv4 = fmt::format("{0}\\.{0}\\.{0}\\.{0}", octet);
const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";

std::string ipv6() {
    const std::string h = "[0-9A-Fa-f]{1,4}", last = "(?:" + h + ":" + h + "|" + ipv4 + ")";
    std::string out = fmt::format("(?:{}:){{6}}{}", h, last);
    out += fmt::format("|::(?:{}:){{5}}{}", h, last);
    out += fmt::format("|(?:{0})?::(?:{0}:){{4}}{1}", h, last);
    for (int before = 1; before <= 4; ++before) out += fmt::format("|(?:(?:{0}:){{0,{1}}}{0})?::(?:{0}:){{{2}}}{3}", h, before, 4 - before, last);
    out += fmt::format("|(?:(?:{0}:){{0,5}}{0})?::{0}|(?:(?:{0}:){{0,6}}{0})?::", h);
    return out;
}

std::string uri(bool relative) {
    const std::string pct = "%[0-9A-Fa-f]{2}", pchar = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" + pct + ")";
    const std::string host = "(?:\\[(?:" + ipv6() + "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|" + pct + ")*)";
    const std::string authority = "//(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" + pct + ")*@)?" + host + "(?::[0-9]*)?";
    const std::string path = "(?:/" + pchar + "*)*", tail = "(?:\\?(?:" + pchar + "|[/?])*)?(?:#(?:" + pchar + "|[/?])*)?";
    const std::string absolute = "[A-Za-z][A-Za-z0-9+.-]*:(?:" + authority + path + "|/(?:" + pchar + "+" + path + ")?|" + pchar + "+" + path + "|)" + tail;
    if (!relative) return absolute;
    const std::string no_colon = "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" + pct + ")+";
    return absolute + "|(?:" + authority + path + "|/(?:" + pchar + "+" + path + ")?|" + no_colon + path + "|)" + tail;
}

}  // namespace

FormatRule format_rule(std::string_view name) {
    const auto whole = [](const std::string& expression) { return FormatRule{FormatRule::pattern, {"^(?:" + expression + ")$"}}; };
    if (name == "date") return whole(full_date);
    if (name == "time") return whole(full_time);
    if (name == "date-time") return whole(full_date + "[Tt]" + full_time);
    if (name == "duration") {
        const std::string time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
        const std::string day = "[0-9]+D", month = "[0-9]+M(?:" + day + ")?", year = "[0-9]+Y(?:" + month + ")?";
        return whole("P(?:(?:" + day + "|" + month + "|" + year + ")(?:" + time + ")?|" + time + "|[0-9]+W)");
    }
    if (name == "uuid") return whole("[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}");
    if (name == "ipv4") return whole(ipv4);
    if (name == "ipv6") return whole(ipv6());
    if (name == "hostname") return whole(fmt::format("(?:{0}\\.)*{0}", label));
    if (name == "email") {
        const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
        return whole(fmt::format("{0}(?:\\.{0})*@(?:(?:{1}\\.)*{1})", atom, label));
    }
    if (name == "uri") return whole(uri(false));
    if (name == "uri-reference") return whole(uri(true));
    if (name == "json-pointer") return whole("(?:/(?:[^/~]|~[01])*)*");
    if (name == "relative-json-pointer") return whole("(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^/~]|~[01])*)*)");
    for (const std::string_view other : {"idn-email", "idn-hostname", "iri", "iri-reference", "uri-template", "regex"})
        if (name == other) return {FormatRule::refused, {}};
    return {};
}

}  // namespace forge::grammar
