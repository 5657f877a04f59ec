#include "frontend/kernel_finder.h"

namespace metal_emu {
namespace {

std::string unquoted(const std::string& s) {
    return s.size() >= 2 && s[0] == '"' ? s.substr(1, s.size() - 2) : s;
}

std::string trimmed(const std::string& s) {
    const std::size_t first = s.find_first_not_of(" \t"), last = s.find_last_not_of(" \t");
    return first == std::string::npos ? "" : s.substr(first, last - first + 1);
}

}  // namespace

// The name in host_name("...") between two positions, empty when there is none.
std::string KernelFinder::host_name(int a, int e) const {
    for (int k = a; k < e; k++) {
        if (!is(k, "host_name") || !is(k + 1, "(")) continue;
        std::string name;
        for (int j = k + 2; j < match(k + 1); j++) name += unquoted(str(j));
        return trimmed(name);
    }
    return "";
}

void KernelFinder::find_parameters(Function& f, int a, int b) {
    std::vector<std::pair<int, int>> ranges;
    int start = a, depth = 0;
    for (int k = a; k < b; k++) {
        if (is(k, "(") || is(k, "[") || is(k, "{"))
            k = match(k);
        else if (is(k, "<"))
            depth++;
        else if (is(k, ">"))
            depth--;
        else if (is(k, ",") && depth == 0) {
            ranges.push_back({start, k});
            start = k + 1;
        }
    }
    if (start < b) ranges.push_back({start, b});
    for (const auto& [first, last] : ranges) {
        Parameter p;
        bool pointer = false, threadgroup = false;
        int attributes = -1, name = -1;
        for (int k = first; k < last; k++) {
            if (is_attribute(k)) {
                attributes = k;
                break;
            }
            if (is(k, "*") || is(k, "&")) pointer = true;
            if (is(k, "threadgroup")) threadgroup = true;
            if (is(k, "[") || is(k, "=")) break;
            if (is_id(k)) name = k;
        }
        if (name < 0) continue;
        p.name = str(name);
        p.type = text(first, name);
        for (int k = attributes + 2; attributes >= 0 && k < attribute_end(attributes) - 1; k++) {
            if (!is_id(k)) continue;
            const std::string word = str(k);
            std::string argument;
            if (is(k + 1, "(")) {
                const int close = match(k + 1);
                argument = text(k + 2, close);
                k = close;
            }
            if (word == "buffer" || word == "threadgroup" || word == "texture" || word == "sampler") {
                p.attribute = word;
                p.index = static_cast<int>(evaluate(argument));
            } else if (word == "function_constant") {
                p.condition = argument;
            } else if (p.attribute.empty() && word != "maybe_unused") {
                p.attribute = word;
            }
        }
        if (p.attribute.empty()) p.attribute = threadgroup ? "threadgroup" : pointer ? "buffer" : "?";
        f.parameters.push_back(p);
    }
    number_parameters(f);
}

// Parameters without an index take the free ones in order.
void KernelFinder::number_parameters(Function& f) {
    for (const char* kind : {"buffer", "threadgroup"}) {
        std::set<int> used;
        for (const Parameter& p : f.parameters)
            if (p.attribute == kind && p.index >= 0) used.insert(p.index);
        int next = 0;
        for (Parameter& p : f.parameters) {
            if (p.attribute != kind || p.index >= 0) continue;
            while (used.count(next)) next++;
            p.index = next;
            used.insert(next);
        }
    }
    for (const Parameter& p : f.parameters)
        if (p.attribute == "?" && error.empty())
            error = "parameter '" + p.name + "' of kernel " + f.name + " has no attribute";
}

// At the ] of attributes: the position before their first [. Elsewhere: the position itself.
int KernelFinder::before_attributes(int i) const {
    while (is(i, "]")) {
        int depth = 0, j = i;
        for (; j >= 0; j--) {
            if (is(j, "]"))
                depth++;
            else if (is(j, "[") && --depth == 0)
                break;
        }
        i = j - 1;
    }
    return i;
}

// template [[host_name("x")]] [[kernel]] decltype(f<float>) f<float>;  and its variants.
void KernelFinder::explicit_instantiation(int& i) {
    int end = i;
    while (end < n() && !is(end, ";") && !is(end, "{"))
        end = (is(end, "(") || is(end, "[")) ? match(end) + 1 : end + 1;
    if (!is(end, ";")) return;
    int at = i + 1;
    std::string host;
    bool kernel = false;
    const auto attributes = [&] {
        while (is_attribute(at)) {
            const std::string name = host_name(at, attribute_end(at));
            if (!name.empty()) host = name;
            if (is(at + 2, "kernel")) kernel = true;
            at = attribute_end(at) + 1;
        }
    };
    attributes();
    if (is(at, "kernel")) {
        kernel = true;
        at++;
    }
    attributes();
    if (!kernel && host.empty()) return;
    int last = end - 1;
    if (is(last, ")")) {  // ...name<args>(types)
        int depth = 0;
        for (; last > at; last--) {
            if (is(last, ")"))
                depth++;
            else if (is(last, "(") && --depth == 0)
                break;
        }
        last--;
    }
    int name = -1;
    if (is(last, ">")) {
        for (int k = at; k < last && name < 0; k++)
            if (is(k, "<") && angle(k) == last) name = k - 1;
    } else if (is_id(last)) {
        name = last;
    }
    if (name < 0) {
        error = "cannot read an explicit instantiation near '" + text(i, std::min(end, i + 20)) + "'";
        return;
    }
    Function f;
    f.base = str(name);
    f.expression = text(name, last + 1);
    f.name = host.empty() ? f.expression : host;
    for (int q = name; q >= 3 && is(q - 1, ":") && is(q - 2, ":") && is_id(q - 3); q -= 3)
        f.expression = str(q - 3) + "::" + f.expression;
    instantiations_.push_back(f);
    drop_range(i, end + 1);
    i = end;
}

bool KernelFinder::kernel_definition(int i) {
    const bool keyword = is(i, "kernel") && is_id(i) && !is_attribute(i - 2) && !is(i - 1, "[");
    const bool attribute = is_attribute(i) && is(i + 2, "kernel");
    if (!keyword && !attribute) return true;
    int at = attribute ? attribute_end(i) + 1 : i + 1;
    std::string host = host_name(std::max(0, before_attributes(i - 1)), i);
    while (is_attribute(at)) {
        const std::string name = host_name(at, attribute_end(at));
        if (!name.empty()) host = name;
        at = attribute_end(at) + 1;
    }
    if (!is(at, "void") || !is_id(at + 1) || !is(at + 2, "(")) return true;
    Function f;
    f.base = f.expression = str(at + 1);
    f.name = host.empty() ? f.base : host;
    const int close = match(at + 2);
    if (is(close + 1, ";")) return true;
    find_parameters(f, at + 3, close);
    if (!error.empty()) return false;
    f.is_template = is(before_attributes(i - 1), ">");
    definitions_[f.base] = f;
    if (!f.is_template) functions.push_back(f);
    return true;
}

void KernelFinder::find_kernels() {
    for (int i = 0; i < n(); i++) {
        if (is(i, "template") && is_id(i) && !is(i + 1, "<"))
            explicit_instantiation(i);
        else if (!kernel_definition(i))
            return;
        if (!error.empty()) return;
    }
    for (Function& f : instantiations_) {
        const auto definition = definitions_.find(f.base);
        if (definition == definitions_.end()) {
            error = "no kernel template " + f.base;
            return;
        }
        f.parameters = definition->second.parameters;
        f.is_template = true;
        functions.push_back(f);
    }
}

void KernelFinder::find_constants() {
    for (int i = 0; i < n(); i++) {
        if (!is(i, "constant") || !is_id(i)) continue;
        int k = i + 1;
        while (k < n() && !is_attribute(k) && !is(k, ";") && !is(k, "=") && !is(k, "(") && !is(k, "{")) k++;
        if (!is_attribute(k) || !is(k + 2, "function_constant")) continue;
        const int end = attribute_end(k);
        if (!is(end + 1, ";")) continue;
        FunctionConstant c;
        c.index = static_cast<int>(evaluate(text(k + 4, match(k + 3))));
        c.name = str(k - 1);
        c.type = text(i + 1, k - 1);
        constants.push_back(c);
        if (constant_values != nullptr) {
            std::string value;
            for (const FunctionConstant& v : *constant_values)
                if ((v.index >= 0 && v.index == c.index) || (v.index < 0 && v.name == c.name))
                    value = v.value;
            drop_range(i, end + 2);
            before[order[i]] = "static constexpr bool " + c.name +
                               "__defined=" + (value.empty() ? "false" : "true") + "; static constexpr " +
                               c.type + " " + c.name + "=" + (value.empty() ? c.type + "{}" : value) + ";";
        }
        i = end + 1;
    }
}

}  // namespace metal_emu
