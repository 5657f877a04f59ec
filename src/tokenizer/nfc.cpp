#include "nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "unicode.h"

namespace forge {
namespace {

utf8proc_propval_t combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Decompose, order, compose. utf8proc's own ordering is quadratic in the
// length of a run of marks, so that step is done here.
void normalise_run(std::vector<utf8proc_int32_t>& run, std::vector<utf8proc_int32_t>& work,
                   std::string& out) {
    constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    work.clear();
    for (utf8proc_int32_t c : run) {
        utf8proc_int32_t parts[16];
        int boundary = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, 16, kDecompose, &boundary);
        if (n < 0 || n > 16) fail(ErrorKind::internal, "NFC of U+{:04X} failed.", c);
        work.insert(work.end(), parts, parts + n);
    }
    for (std::size_t i = 0; i < work.size();) {
        std::size_t end = i;
        while (end < work.size() && combining_class(work[end]) != 0) ++end;
        if (end - i > 1)
            std::stable_sort(work.begin() + static_cast<std::ptrdiff_t>(i),
                             work.begin() + static_cast<std::ptrdiff_t>(end),
                             [](auto a, auto b) { return combining_class(a) < combining_class(b); });
        i = end + (end == i);
    }
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(work.data(), static_cast<utf8proc_ssize_t>(work.size()), kCompose);
    for (utf8proc_ssize_t i = 0; i < n; ++i)
        unicode::append(out, static_cast<char32_t>(work[static_cast<std::size_t>(i)]));
    run.clear();
}

}  // namespace

std::string nfc(std::string_view text) {
    // Below U+0300 (lead byte below CC) everything is already composed.
    auto plain = [](char c) { return static_cast<unsigned char>(c) < 0xCC; };
    if (std::all_of(text.begin(), text.end(), plain)) return std::string(text);

    std::string out;
    out.reserve(text.size());
    std::vector<utf8proc_int32_t> run, work;
    for (std::size_t i = 0; i < text.size();) {
        std::uint32_t length;
        char32_t c = unicode::decode_valid(text, i, length);
        if (c >= 0x300 && unicode::is_younger_than_9(c)) {
            if (!run.empty()) normalise_run(run, work, out);
            out.append(text.substr(i, length));
        } else {
            // An ASCII character begins a new run when a plain one follows; most text never
            // leaves this path.
            if (c < 0x80 && !run.empty() && run.back() < 0x80) {
                auto last = run.back();
                run.pop_back();
                if (!run.empty()) normalise_run(run, work, out);
                unicode::append(out, static_cast<char32_t>(last));
            }
            run.push_back(static_cast<utf8proc_int32_t>(c));
        }
        i += length;
    }
    if (!run.empty()) normalise_run(run, work, out);
    return out;
}

}  // namespace forge
