// A source as significant tokens that can be dropped, and be preceded and followed by new text.
// Positions everywhere in the front end count significant tokens.
#pragma once

#include <string>
#include <vector>

#include "frontend/tokens.h"
#include "metal_emu/compile.h"

namespace metal_emu {

struct TokenText {
    std::vector<Token> tokens;
    std::vector<int> order;  // positions of significant tokens in `tokens`
    std::vector<std::string> before, after;
    std::vector<char> dropped;
    std::string error;
    explicit TokenText(const std::string& s) : tokens(tokenize(s)) {
        before.resize(tokens.size());
        after.resize(tokens.size());
        dropped.resize(tokens.size());
        for (size_t i = 0; i < tokens.size(); i++)
            if (tokens[i].kind != Kind::space && tokens[i].kind != Kind::directive)
                order.push_back(static_cast<int>(i));
    }

    int n() const { return static_cast<int>(order.size()); }
    const std::string& str(int i) const {
        static std::string e;
        return i >= 0 && i < n() ? tokens[order[i]].text : e;
    }
    Kind kind(int i) const { return i >= 0 && i < n() ? tokens[order[i]].kind : Kind::punctuation; }
    bool is(int i, const char* c) const { return str(i) == c; }
    bool is_id(int i) const { return kind(i) == Kind::identifier; }
    int match(int i) const {  // at ( [ {: index of the closing one
        int d = 0;
        for (int k = i; k < n(); k++) {
            if (kind(k) != Kind::punctuation) continue;
            char c = str(k)[0];
            if (c == '(' || c == '[' || c == '{')
                d++;
            else if (c == ')' || c == ']' || c == '}') {
                if (--d == 0) return k;
            }
        }
        return n() - 1;
    }
    int angle(int i) const {  // at <: the matching > of a template list, or -1
        int d = 0;
        for (int k = i; k < n(); k++) {
            if (kind(k) != Kind::punctuation) continue;
            char c = str(k)[0];
            if (c == '<')
                d++;
            else if (c == '>') {
                if (k && is(k - 1, "-") && order[k] == order[k - 1] + 1) continue;
                if (--d == 0) return k;
            } else if (c == '(' || c == '[' || c == '{')
                k = match(k);
            else if (c == ';' || c == '}' || c == ')' || c == ']')
                return -1;
        }
        return -1;
    }
    bool is_attribute(int i) const { return is(i, "[") && is(i + 1, "["); }
    int attribute_end(int i) const { return match(i); }  // the last ]
    std::string text(int a, int b) const {
        std::string r;
        for (int k = a; k < b; k++) {
            if (k > a && order[k] > order[k - 1] + 1) r += ' ';
            r += str(k);
        }
        return r;
    }
    void drop_range(int a, int b) {
        for (int k = a; k < b; k++) dropped[order[k]] = 1;
    }
    std::string out() {
        std::string r;
        for (size_t i = 0; i < tokens.size(); i++) {
            r += before[i];
            if (!dropped[i])
                r += tokens[i].text;
            else if (tokens[i].kind == Kind::space)
                r += tokens[i].text;
            r += after[i];
        }
        return r;
    }
};
}  // namespace metal_emu
