#include "frontend/tokens.h"

#include <cctype>
#include <cstdlib>

namespace metal_emu {

std::vector<Token> tokenize(const std::string& s) {
    std::vector<Token> o;
    size_t i = 0, n = s.size();
    bool bol = true;
    auto push = [&](Kind k, size_t a, size_t b) { o.push_back({k, s.substr(a, b - a)}); };
    while (i < n) {
        char c = s[i];
        size_t a = i;
        if (c == '\n') {
            bol = true;
            i++;
            push(Kind::space, a, i);
            continue;
        }
        if (isspace(static_cast<unsigned char>(c))) {
            while (i < n && s[i] != '\n' && isspace((unsigned char)s[i])) i++;
            push(Kind::space, a, i);
            continue;
        }
        if (c == '#' && bol) {
            while (i < n && s[i] != '\n') {
                if (s[i] == '\\' && i + 1 < n) i++;
                i++;
            }
            push(Kind::directive, a, i);
            {
                std::string& d = o.back().text;
                size_t u = d.find("unroll");
                if (d.find("#pragma") == 0 && u != std::string::npos &&
                    d.find("clang") == std::string::npos) {
                    bool w = false;
                    for (size_t k = u + 6; k < d.size(); k++)
                        if (isalpha((unsigned char)d[k]) || d[k] == '_') w = true;
                    if (w) d.clear();
                }
            }
            continue;
        } /* #pragma unroll(expression): only a hint, and -E leaves macros in it */
        bol = false;
        if (c == '/' && i + 1 < n && s[i + 1] == '/') {
            while (i < n && s[i] != '\n') i++;
            o.push_back({Kind::space, std::string(i - a, ' ')});
            continue;
        }
        if (c == '/' && i + 1 < n && s[i + 1] == '*') {
            i += 2;
            while (i + 1 < n && !(s[i] == '*' && s[i + 1] == '/')) i++;
            i = i + 2 < n ? i + 2 : n;
            std::string w = s.substr(a, i - a);
            for (char& x : w)
                if (x != '\n') x = ' ';
            o.push_back({Kind::space, w});
            continue;
        }
        if (c == '"' || c == '\'') {
            i++;
            while (i < n && s[i] != c) {
                if (s[i] == '\\') i++;
                i++;
            }
            i++;
            push(Kind::string, a, i);
            continue;
        }
        if (isalpha(static_cast<unsigned char>(c)) || c == '_') {
            while (i < n && (isalnum((unsigned char)s[i]) || s[i] == '_')) i++;
            push(Kind::identifier, a, i);
            continue;
        }
        if (isdigit(static_cast<unsigned char>(c)) ||
            (c == '.' && i + 1 < n && isdigit((unsigned char)s[i + 1]))) {
            bool hex = c == '0' && i + 1 < n && (s[i + 1] == 'x' || s[i + 1] == 'X');
            i++;
            while (i < n && (isalnum((unsigned char)s[i]) || s[i] == '.' || s[i] == '_' ||
                             ((s[i] == '+' || s[i] == '-') &&
                              ((!hex && (s[i - 1] == 'e' || s[i - 1] == 'E')) ||
                               (hex && (s[i - 1] == 'p' || s[i - 1] == 'P'))))))
                i++;
            push(Kind::number, a, i);
            continue;
        }
        i++;
        push(Kind::punctuation, a, i);
    }
    return o;
}

namespace {

long sum(const char*& p) {  // + - * / and parentheses over integers
    auto ws = [&] {
        while (isspace((unsigned char)*p)) p++;
    };
    struct R {
        static long prim(const char*& p) {
            while (isspace((unsigned char)*p)) p++;
            if (*p == '(') {
                p++;
                long v = sum(p);
                while (isspace((unsigned char)*p)) p++;
                if (*p == ')') p++;
                return v;
            }
            if (*p == '-') {
                p++;
                return -prim(p);
            }
            char* e;
            long v = strtol(p, &e, 0);
            p = e;
            while (*p == 'u' || *p == 'U' || *p == 'l' || *p == 'L') p++;
            return v;
        }
        static long term(const char*& p) {
            long v = prim(p);
            for (;;) {
                while (isspace((unsigned char)*p)) p++;
                if (*p == '*') {
                    p++;
                    v *= prim(p);
                } else if (*p == '/') {
                    p++;
                    long d = prim(p);
                    v = d ? v / d : 0;
                } else
                    return v;
            }
        }
    };
    long v = R::term(p);
    for (;;) {
        ws();
        if (*p == '+') {
            p++;
            v += R::term(p);
        } else if (*p == '-') {
            p++;
            v -= R::term(p);
        } else
            return v;
    }
}

}  // namespace

long evaluate(const std::string& s) {
    const char* p = s.c_str();
    return sum(p);
}
}  // namespace metal_emu
