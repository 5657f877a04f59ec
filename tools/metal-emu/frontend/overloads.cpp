// What C++ cannot have twice or cannot spell.
#include "frontend/rewriter.h"

namespace metal_emu {

void Rewriter::drop_qualified_members() {  // a member function qualified by an address space: keep the one
                                           // for `thread`
    for (int i = 0; i < n(); i++) {
        if (!is(i, ")") || dropped[order[i]]) continue;
        int k = i + 1;
        while (is(k, "const")) k++;
        bool th = is(k, "thread"), other = is(k, "device") || is(k, "threadgroup") || is(k, "constant");
        if ((!th && !other) ||
            !(is(k + 1, "{") || is(k + 1, ":") || is(k + 1, "=") || is(k + 1, ";") || is(k + 1, "const")))
            continue;
        if (is(k + 1, ":") && is(k + 2, ":")) continue;
        if (th) continue;
        int b = i;
        int d = 0;
        while (b >= 0) {
            if (is(b, ")"))
                d++;
            else if (is(b, "("))
                d--;
            if (!d && (is(b, ";") || is(b, "}") || is(b, "{") ||
                       (is(b, ":") && (is(b - 1, "public") || is(b - 1, "private")))))
                break;
            b--;
        }
        int e = k + 1;
        while (e < n() && !is(e, "{") && !is(e, ";")) e = is(e, "(") ? match(e) + 1 : e + 1;
        if (is(e, "{")) {
            e = match(e);
        }
        drop_range(b + 1, e + 1);
        i = e;
    }
}

void Rewriter::array_parameters() {  // a parameter `constant T name[N]` is a pointer
    for (int i = 0; i < n(); i++) {
        if (!(is(i, "constant") || is(i, "device") || is(i, "threadgroup")) ||
            !(is(i - 1, "(") || is(i - 1, ",") || is(i - 1, "const")))
            continue;
        int k = i + 1;
        bool ok = true;
        while (k < n() && !is(k, "[")) {
            if (!(is_id(k) || is(k, "<") || is(k, ">") || is(k, ":"))) {
                ok = false;
                break;
            }
            k++;
        }
        if (!ok || k >= n() || !is_id(k - 1) || k - 1 == i) continue;
        int e = match(k);
        if (!is(e + 1, ",") && !is(e + 1, ")")) continue;
        if (e == k) continue;
        drop_range(k, e + 1);
        before[order[k - 1]] = "* " + before[order[k - 1]];
        i = e;
    }
}

void Rewriter::drop_repeated_overloads(
    int i,
    int end) {  // without address spaces, overloads that differ only by them are one: keep the first
    while (i < end) {
        int st = i, k = i;
        if (is(k, ";") || is(k, "}")) {
            i++;
            continue;
        }
        std::string head;
        bool as = false, fn = false;
        while (k < end && !is(k, ";") && !is(k, "{")) {
            if (is_attribute(k)) {
                k = attribute_end(k) + 1;
                continue;
            }
            if (is(k, "(")) fn = true;
            int e = is(k, "(") || is(k, "[") ? match(k) : k;
            for (; k <= e; k++) {
                if (is(k, "device") || is(k, "threadgroup") || is(k, "thread") || is(k, "inline")) {
                    as |= !is(k, "inline");
                    continue;
                }
                head += str(k);
                head += ' ';
            }
        }
        if (k >= end) return;
        if (is(k, ";")) {
            i = k + 1;
            continue;
        }
        int e = match(k);
        if (is(st, "namespace") || (is(st, "extern") && kind(st + 1) == Kind::string)) {
            drop_repeated_overloads(k + 1, e);
            i = e + 1;
            continue;
        }  // = initialiser with braces
        if (as && !seen_heads.insert(head).second) {
            drop_range(st, e + 1);
            if (!fn && is(e + 1, ";")) drop_range(e + 1, e + 2);
        } else if (!as)
            seen_heads.insert(head);
        i = e + 1;
    }
}

}  // namespace metal_emu
