#include "frontend/rewriter.h"

#include <algorithm>
#include <cctype>

namespace metal_emu {

// An unsuffixed floating literal is a float; 1.0h and 1.0bf are half and bfloat.
void Rewriter::literal(int i) {
    std::string& s = tokens[order[i]].text;
    const bool hex = s.size() > 1 && (s[1] == 'x' || s[1] == 'X');
    if (hex || s.size() < 2) return;
    const char last = s.back();
    const bool fraction = s.find_first_of(".eE") != std::string::npos;
    if (last == 'h' || last == 'H')
        s = "((half)" + s.substr(0, s.size() - 1) + (fraction ? "f)" : ".0f)");
    else if (s.size() > 2 && s.substr(s.size() - 2) == "bf")
        s = "((bfloat)" + s.substr(0, s.size() - 2) + "f)";
    else if (fraction && (isdigit(static_cast<unsigned char>(last)) || last == '.'))
        s += "f";
}

// Type parameters are valid until the end of what the template declares.
void Rewriter::template_parameters(int i) {
    const int close = angle(i + 1);
    if (close < 0) return;
    int end = close + 1;
    while (end < n() && !is(end, ";") && !is(end, "{"))
        end = is(end, "(") || is(end, "[") ? match(end) + 1 : end + 1;
    end = is(end, "{") ? match(end) + 1 : end + 1;
    int depth = 0;
    for (int k = i + 1; k <= close; k++) {
        if (is(k, "<"))
            depth++;
        else if (is(k, ">"))
            depth--;
        if (depth == 1 && (is(k, "typename") || is(k, "class")) && is_id(k + 1) &&
            (is(k + 2, ",") || is(k + 2, ">") || is(k + 2, "=")))
            type_parameters.push_back({str(k + 1), end});
    }
    std::sort(type_parameters.begin(), type_parameters.end(),
              [](const auto& a, const auto& b) { return a.second > b.second; });
}

// threadgroup T a[N], b;  inside a function.
bool Rewriter::threadgroup_variable(int& i) {
    if (is(i - 1, "<") || is(i - 1, ",") || is(i - 1, "=")) return false;   // of a type: tensor<threadgroup float, ...>
    int end = i + 1;
    while (end < n() && !is(end, ";")) {
        for (const char* other : {"*", "&", "(", ")", "{", "="})
            if (is(end, other)) return false;
        if (is(end, "<") && angle(end) > 0) {
            end = angle(end) + 1;
            continue;
        }
        if (is(end, "[")) end = match(end);
        end++;
    }
    int first = -1;  // the first declarator: the last identifier of the leading type
    for (int c = i + 1; c < end && !is(c, "[") && !is(c, ","); c = is(c, "<") ? angle(c) + 1 : c + 1)
        if (is_id(c)) first = c;
    const std::string type = text(i + 1, first);
    std::string out;
    int name = first;
    for (int q = first; q <= end; q++) {
        if (is(q, "[")) {
            q = match(q);
            continue;
        }
        if (!is(q, ",") && q != end) continue;
        const std::string id = std::to_string(threadgroup_variables_++), alias = "emu_t" + id;
        out += "typedef " + type + " " + alias + text(name + 1, q) + "; threadgroup " + alias + "& " +
               str(name) + "=*(threadgroup " + alias + "*)emu_threadgroup_static(" + id + ",sizeof(" + alias +
               "),alignof(" + alias + "));";
        name = q + 1;
    }
    drop_range(i, end + 1);
    before[order[i]] = out;
    i = end;
    return true;
}

// The first token of the qualified name that ends at i.
int Rewriter::qualified_start(int i) const {
    while (i >= 3 && is(i - 1, ":") && is(i - 2, ":") && is_id(i - 3)) i -= 3;
    return i;
}

// T(...) with a vector or dependent T.
bool Rewriter::constructor(int i) {
    if (!is_id(i) || !is(i + 1, "(")) return false;
    if (!vector_types.count(str(i)) && !is_type_parameter(str(i)) && !alias_types.count(str(i))) return false;
    if (is(i + 2, "*") || is(i + 2, "&") || is(i + 2, "thread") || follows_identifier(i)) return false;
    const int close = match(i + 1);
    if (type_kind(i + 2, close) && !is(i + 2, "(") && close > i + 2 && !(is_id(i + 2) && is(i + 3, "(")))
        return true;
    before[order[qualified_start(i)]] += has_comparison(i + 2, close) ? "metal::_mkb<" : "metal::_mk<";
    after[order[i]] = ">";
    return true;
}

// vec<T, N>(...)
bool Rewriter::vector_constructor(int i) {
    if (!is_id(i) || !(is(i, "vec") || is(i, "matrix")) || !is(i + 1, "<")) return false;
    const int close = angle(i + 1), start = qualified_start(i);
    if (close > 0 && is(close + 1, "(") && !is(close + 2, "*") && !follows_identifier(start)) {
        before[order[start]] += has_comparison(close + 2, match(close + 1)) ? "metal::_mkb<" : "metal::_mk<";
        after[order[close]] = ">" + after[order[close]];
    }
    return true;
}

// (T)x with a vector or dependent T: C++ would reinterpret the bits of vectors.
bool Rewriter::cast(int& i) {
    if (!is(i, "(") || is(i - 1, ")") || is(i - 1, "]")) return false;
    if (is_id(i - 1) && !is(i - 1, "return") && !is(i - 1, "case") && !is(i - 1, "else")) return false;
    const int close = match(i);
    if (close - i >= 10 || type_kind(i + 1, close) != 1 || !operand_starts(close + 1)) return false;
    if (is(i - 1, ">") && !is_id(i - 2))
        for (int j = i - 2; j > i - 60 && j > 0; j--)
            if (is(j, "<") && angle(j) == i - 1) return true;  // f<a>(...): a call
    const int end = operand_end(close + 1);
    const bool comparison =
        is(close + 1, "(") && match(close + 1) == end - 1 && has_comparison(close + 2, end - 1);
    const std::string type = text(i + 1, close);
    drop_range(i, close + 1);
    before[order[i]] += (comparison ? "metal::_cvtb<" : "metal::_cvt<") + type + ">(";
    after[order[end - 1]] += ")";
    i = close;
    return true;
}

void Rewriter::rewrite() {
    find_types();
    int depth = 0;
    for (int i = 0; i < n(); i++) {
        while (!type_parameters.empty() && type_parameters.back().second <= i) type_parameters.pop_back();
        if (dropped[order[i]]) continue;
        if (kind(i) == Kind::number) {
            literal(i);
            continue;
        }
        if (is_attribute(i)) {
            const int end = attribute_end(i);
            drop_range(i, end + 1);
            i = end;
            continue;
        }
        if (is(i, "{"))
            depth++;
        else if (is(i, "}"))
            depth--;
        if (is(i, "template") && is(i + 1, "<") && is_id(i)) {
            template_parameters(i);
            continue;
        }
        if (is(i, "threadgroup") && is_id(i) && depth > 0 && threadgroup_variable(i)) continue;
        if (constructor(i) || vector_constructor(i)) continue;
        cast(i);
    }
}

}  // namespace metal_emu
