#include <algorithm>
#include <set>

#include "base/error.h"
#include "emitter.h"

namespace forge::grammar {
namespace {

// Names that no schema lists, where names stand bare.
constexpr const char* bare_name = "^[A-Za-z_][A-Za-z0-9_.-]*$";

struct Listed {
    std::string name;
    Conjunction value;
    bool required;
};

}  // namespace

// Members come in the schema's order: those of `properties`, then required ones that stand nowhere, then others.
// A state is (members passed, members written), the latter only as far as it matters.
void SchemaEmitter::emit_object(const Shape& s, NodeId from, NodeId to, const ObjectStyle& style) {
    builder_.working_on("the schema's properties");
    std::vector<std::string> names;
    std::set<std::string> known;
    const auto add_name = [&](const std::string& name) {
        if (known.insert(name).second) names.push_back(name);
    };
    for (const MembersOf& source : s.members)
        for (const auto& [name, schema] : source.properties) add_name(name);
    const std::set<std::string> required(s.required.begin(), s.required.end());
    for (const std::string& name : s.required) add_name(name);
    std::vector<Listed> listed;
    for (const std::string& name : names) {
        Listed l{name, {}, required.contains(name)};
        if (expander_.member(s, name, l.value) && !expander_.empty(l.value)) listed.push_back(std::move(l));
        else if (l.required) return;   // nothing fits
    }
    RuleId other = 0;
    const bool others = other_member(s, names, style, other);
    // One name may be written twice, which counts once when it is read.
    if (others && s.least_members > std::max<std::uint64_t>(1, s.required.size()))
        fail(ErrorKind::unsupported, "the schema's keyword minProperties: more than 1 is only supported where the members are listed in properties (additionalProperties: false)");
    const bool bounded = s.most_members != no_limit;
    const std::uint64_t least = s.least_members;
    const std::uint64_t most = bounded ? (others ? s.most_members : std::min<std::uint64_t>(s.most_members, listed.size())) : no_limit;
    const std::uint64_t highest = std::max<std::uint64_t>({1, least, most == no_limit ? 0 : most});
    if (highest > 1 && (highest + 1) * (listed.size() + 1) > 100'000) fail(ErrorKind::unsupported, "the schema's minProperties and maxProperties over {} properties are too much to count", listed.size());

    constexpr NodeId absent = 0xFFFFFFFF;
    std::vector<NodeId> now(static_cast<std::size_t>(highest) + 1, absent), next;
    now[0] = builder_.literal(from, std::string_view(&style.open, 1));
    const auto node_in = [&](std::vector<NodeId>& row, std::uint64_t count) {
        NodeId& n = row[static_cast<std::size_t>(std::min(count, highest))];
        if (n == absent) n = builder_.node();
        return n;
    };
    for (const Listed& l : listed) {
        next.assign(now.size(), absent);
        for (std::uint64_t count = 0; count < now.size(); ++count) {
            const NodeId here = now[static_cast<std::size_t>(count)];
            if (here == absent) continue;
            if (!l.required) builder_.epsilon(here, node_in(next, count));
            if (most != no_limit && count >= most) continue;
            const NodeId at = name_text(l.name, count > 0 ? spaced(here, ',') : here, style);
            builder_.call(at, rule_for(l.value), node_in(next, count + 1));
        }
        now.swap(next);
    }
    // Others repeat within the last row.
    for (std::uint64_t count = 0; count < now.size(); ++count) {
        const NodeId here = now[static_cast<std::size_t>(count)];
        if (here == absent) continue;
        if (count >= least) byte(here, style.close, to);
        if (others && (most == no_limit || count < most)) builder_.call(count > 0 ? spaced(here, ',') : here, other, node_in(now, count + 1));
    }
}

bool SchemaEmitter::other_member(const Shape& s, const std::vector<std::string>& listed, const ObjectStyle& style, RuleId& rule) {
    const bool takes_others = expander_.takes_others(s);
    std::vector<std::string> patterns;
    for (const MembersOf& source : s.members)
        for (const auto& [pattern, schema] : source.patterns)
            if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end()) patterns.push_back(pattern);
    if (!takes_others && patterns.empty()) return false;
    const std::size_t value_patterns = patterns.size();
    // Conditions on the names themselves.
    std::uint64_t needed = 0;
    if (!s.names.empty()) {
        const std::vector<Shape> shapes = expander_.shapes(s.names);
        const auto strings = std::count_if(shapes.begin(), shapes.end(), [](const Shape& x) { return (x.types & type_string) != 0; });
        if (strings == 0) return false;
        if (strings > 1) fail(ErrorKind::unsupported, "the schema's keyword propertyNames: alternatives are not supported there");
        const Shape& names = *std::find_if(shapes.begin(), shapes.end(), [](const Shape& x) { return (x.types & type_string) != 0; });
        if (names.values) {
            std::string any;
            for (const Json& v : *names.values)
                if (v.is_string()) any += (any.empty() ? "" : "|") + escaped(v.get_ref<const std::string&>());
            patterns.push_back("^(?:" + any + ")$");
        } else {
            for (const std::string& p : names.patterns) patterns.push_back(p);
            if (names.least_length > 0 || names.most_length != no_limit)
                patterns.push_back(fmt::format("^[^]{{{},{}}}$", names.least_length, names.most_length == no_limit ? "" : std::to_string(names.most_length)));
        }
    }
    if (style.bare) patterns.push_back(bare_name);
    for (std::size_t i = value_patterns; i < patterns.size(); ++i) needed |= std::uint64_t{1} << (i + 1);
    // Bit 0: a listed name, which is none of these.
    PatternAutomaton named;
    const PatternAutomaton* automaton = &named;
    if (patterns.empty()) {
        named = name_automaton(listed);
    } else {
        std::string any;
        for (const std::string& name : listed) any += (any.empty() ? "" : "|") + escaped(name);
        patterns.insert(patterns.begin(), listed.empty() ? "^(?:)$[^]" : "^(?:" + any + ")$");
        automaton = &expander_.automaton(patterns, needed);
    }
    // What the value must be, for each set of patterns that a name can match.
    std::map<std::uint64_t, Conjunction> values;
    for (const auto& state : automaton->states) {
        const std::uint64_t matches = state.matches;
        if ((matches & 1) || (matches & needed) != needed || values.contains(matches)) continue;
        Conjunction value;
        bool matched_any = false, never = false;
        for (const MembersOf& source : s.members) {
            bool known = false;
            for (const auto& [pattern, schema] : source.patterns) {
                const auto index = static_cast<std::size_t>(std::find(patterns.begin() + 1, patterns.end(), pattern) - patterns.begin());
                if (matches >> index & 1) value.push_back(schema), known = true;
            }
            matched_any |= known;
            if (!known && source.additional >= 0) value.push_back(source.additional);
        }
        std::sort(value.begin(), value.end());
        value.erase(std::unique(value.begin(), value.end()), value.end());
        for (const int schema : value) never |= expander_.reader().read(schema).never;
        if (!never && (matched_any || takes_others) && !expander_.empty(value)) values.emplace(matches, std::move(value));
    }
    if (values.empty()) return false;
    rule = builder_.rule();
    const NodeId end = builder_.node();
    builder_.accept(end);
    other_names(*automaton, values, style, builder_.start(rule), end);
    return true;
}

void SchemaEmitter::other_names(const PatternAutomaton& a, const std::map<std::uint64_t, Conjunction>& values, const ObjectStyle& style, NodeId from, NodeId to) {
    std::map<std::uint64_t, NodeId> after;   // a name (with its closing quote), by what it matched
    for (const auto& [matches, value] : values) {
        const NodeId node = builder_.node();
        builder_.call(style.bare ? builder_.literal(node, std::string_view(&style.assign, 1)) : spaced(node, style.assign), rule_for(value), to);
        after.emplace(matches, node);
    }
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < a.states.size(); ++i) nodes.push_back(builder_.node());
    if (style.bare) builder_.epsilon(from, nodes[0]);
    else byte(from, '"', nodes[0]);
    for (std::size_t i = 0; i < a.states.size(); ++i) {
        const auto& state = a.states[i];
        const auto it = after.find(state.matches);
        if (state.settled && !state.steps.empty() && !style.bare) {
            if (it != after.end()) builder_.text(nodes[i], {0, Grammar::unlimited}, it->second);
            continue;
        }
        if (it != after.end() && style.bare) builder_.epsilon(nodes[i], it->second);
        else if (it != after.end()) byte(nodes[i], '"', it->second);
        std::map<std::uint32_t, Ranges> by_target;
        for (const auto& step : state.steps) by_target[step.target].push_back({step.lo, step.hi});
        for (const auto& [target, ranges] : by_target) (style.bare ? plain_edges_ : json_edges_).add(nodes[i], ranges, nodes[target]);
    }
}

}  // namespace forge::grammar
