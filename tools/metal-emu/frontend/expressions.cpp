#include "frontend/expressions.h"

#include <cstring>

namespace metal_emu {

bool Expressions::is_type_parameter(const std::string& s) const {
    for (auto& x : type_parameters)
        if (x.first == s) return true;
    return false;
}

void Expressions::find_types() {
    const char* b[] = {"char", "uchar", "short", "ushort", "int",    "uint",
                       "long", "ulong", "half",  "float",  "bfloat", "bool"};
    for (auto x : b) {
        scalar_types.insert(x);
        for (int k = 2; k <= 4; k++) {
            vector_types.insert(x + std::to_string(k));
            for (int r = 2; r <= 4; r++) vector_types.insert(x + std::to_string(k) + "x" + std::to_string(r));
        }
    }
    for (auto x : {"unsigned", "signed", "size_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t",
                   "uint16_t", "uint32_t", "uint64_t", "ptrdiff_t", "void", "auto"})
        scalar_types.insert(x);
    for (int i = 0; i < n(); i++) {
        if (is(i, "typedef") && is_id(i)) {
            int e = i;
            while (e < n() && !is(e, ";")) e = (is(e, "{") || is(e, "(")) ? match(e) + 1 : e + 1;
            bool v = false;
            for (int k = i + 1; k < e - 1; k++)
                if (vector_types.count(str(k)) || is(k, "vec") || is(k, "matrix")) v = true;
            bool ptr = false;
            for (int k = i; k < e; k++)
                if (is(k, "*") || is(k, "{") || is(k, "(") || is(k, "[")) ptr = true;
            if (v && !ptr && is_id(e - 1)) vector_types.insert(str(e - 1));
        }
        if (is(i, "using") && is_id(i + 1) && is(i + 2, "=")) {
            int e = i + 3;
            bool ptr = false;
            while (e < n() && !is(e, ";")) {
                if (is(e, "*")) ptr = true;
                e++;
            }
            if (!ptr) alias_types.insert(str(i + 1));
        }
    }
}

int Expressions::type_kind(int a, int b) const {
    if (a >= b) return 0;
    bool star = false;
    int r = 0;
    for (int k = a; k < b; k++) {
        const std::string& s = str(k);
        if (kind(k) == Kind::identifier) {
            if (s == "const" || s == "volatile" || s == "thread" || s == "typename" || s == "metal" ||
                s == "struct")
                continue;
            if (s == "device" || s == "constant" || s == "threadgroup") {
                r = 3;
                continue;
            }
            if (is(k + 1, ":") && is(k + 2, ":")) {
                if (r == 0) r = is_type_parameter(s) ? 1 : 0;
                continue;
            }
            if (vector_types.count(s) || is_type_parameter(s) || alias_types.count(s) ||
                ((s == "vec" || s == "matrix") && is(k + 1, "<"))) {
                if (r != 3) r = 1;
                if (is(k + 1, "<")) {
                    int e = angle(k + 1);
                    if (e < 0 || e >= b) return 0;
                    k = e;
                }
            } else if (scalar_types.count(s)) {
                if (!r) r = 2;
            } else {
                if (is(k - 1, ":") && r == 1) continue;
                if (is(k + 1, "<")) {
                    int e = angle(k + 1);
                    if (e < 0 || e >= b) return 0;
                    k = e;
                }
                if (!r)
                    r = 4;
                else if (r != 3 && r != 4)
                    return 0;
            }
        } else if (s == "*" || s == "&") {
            star = true;
        } else if (s == ":") {
        } else
            return 0;
    }
    if (star) return (r == 0 || (r == 4 && !is(b - 1, "*"))) ? 0 : 3;
    return r == 4 ? 0 : r;
}

bool Expressions::operand_starts(int i) const {
    if (i >= n()) return false;
    Kind k = kind(i);
    if (k == Kind::identifier || k == Kind::number || k == Kind::string) return !is(i, "const");
    return is(i, "(") || is(i, "-") || is(i, "+") || is(i, "!") || is(i, "~") || is(i, "*") || is(i, "&");
}

int Expressions::operand_end(int i) const {  // one past the cast-expression starting at i
    while (is(i, "-") || is(i, "+") || is(i, "!") || is(i, "~") || is(i, "*") || is(i, "&")) i++;
    if (is(i, "(")) {
        int m = match(i);
        int ty = type_kind(i + 1, m);
        if ((ty || (text(i + 1, m).find('*') != std::string::npos &&
                    (is(i + 1, "device") || is(i + 1, "threadgroup") || is(i + 1, "constant") ||
                     is(i + 1, "thread") || is(i + 1, "const")))) &&
            operand_starts(m + 1) && !is(m + 1, "["))
            return operand_end(m + 1);
        i = m + 1;
    } else {
        while (is(i, ":")) i++;
        i++;
        for (;;) {
            if (is(i, ":") && is(i + 1, ":")) {
                i += 3;
                continue;
            }
            if (is(i, "<") && is_id(i - 1)) {
                int e = angle(i);
                if (e > 0 && (is(e + 1, "(") || (is(e + 1, ":") && is(e + 2, ":"))) &&
                    only_type_arguments(i + 1, e)) {
                    i = e + 1;
                    continue;
                }
            }
            break;
        }
    }
    for (;;) {
        if (is(i, "(") || is(i, "["))
            i = match(i) + 1;
        else if (is(i, ".") && is_id(i + 1))
            i += 2;
        else if (is(i, "-") && is(i + 1, ">") && order[i + 1] == order[i] + 1)
            i += 3;
        else if ((is(i, "+") && is(i + 1, "+") && order[i + 1] == order[i] + 1) ||
                 (is(i, "-") && is(i + 1, "-") && order[i + 1] == order[i] + 1))
            i += 2;
        else
            return i;
    }
}

bool Expressions::only_type_arguments(int a, int b) const {
    for (int k = a; k < b; k++)
        if (kind(k) == Kind::punctuation) {
            char c = str(k)[0];
            if (!strchr(",*&:<>()", c)) return false;
        }
    return true;
}

bool Expressions::has_comparison(int a, int b) const {
    for (int k = a; k < b; k++) {
        if (is(k, "(") || is(k, "[")) {
            k = match(k);
            continue;
        }
        if (kind(k) != Kind::punctuation) continue;
        char c = str(k)[0];
        if ((c == '<' || c == '>') && !(is(k + 1, str(k).c_str()) && order[k + 1] == order[k] + 1) &&
            !(is(k - 1, str(k).c_str())) && !(c == '>' && is(k - 1, "-") && order[k] == order[k - 1] + 1) &&
            !(c == '<' && angle(k) > 0 && angle(k) < b) && !(c == '>'))
            return true;
        if (c == '>' && !is(k - 1, "-") && !is(k - 1, ">") && !is(k + 1, ">")) {
            int d = 0;
            bool tm = false;
            for (int j = k; j >= a; j--) {
                if (is(j, ">")) d++;
                if (is(j, "<") && --d == 0) {
                    tm = angle(j) == k;
                    break;
                }
            }
            if (!tm) return true;
        }
        if ((c == '=' || c == '!') && is(k + 1, "=") && order[k + 1] == order[k] + 1) return true;
        if (c == '&' && is(k + 1, "&") && order[k + 1] == order[k] + 1) return true;
    }
    return false;
}

bool Expressions::follows_identifier(int i) const {
    int q = i;
    while (q >= 3 && is(q - 1, ":") && is(q - 2, ":") && is_id(q - 3)) q -= 3;
    return is_id(q - 1) && !is(q - 1, "return") && !is(q - 1, "case") && !is(q - 1, "else") &&
           !is(q - 1, "const") && !is(q - 1, "typename");
}

}  // namespace metal_emu
