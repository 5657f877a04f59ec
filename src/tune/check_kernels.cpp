#include <algorithm>
#include <functional>
#include <set>

#include "lower/lower.h"
#include "tune/site.h"
#include "verify.h"

namespace forge::tune {
namespace {

// A part of one of the two programs, with the names of its launches.
struct Needed { Part part; LoweredPart lowered; bool many; };

std::vector<Needed> needed(const Subject& s) {
    std::vector<Needed> all;
    for (const bool many : {false, true}) {
        if (s.rows(many) == 0) continue;
        std::set<std::string> known;   // the same kernels serve many layers
        for (const std::vector<std::size_t>& unit : units(s.plan(many))) {
            Part part = part_of(s.plan(many), unit);
            LoweredPart lowered = lower_part(s.backend, s, s.weights, part, s.rows(many), s.outputs(many));
            std::string name;
            for (const Launch& l : lowered.program.launches) name += site_name(lowered.program, l, s.weights) + "\n";
            if (!known.insert(name).second) continue;
            all.push_back({std::move(part), std::move(lowered), many});
        }
    }
    return all;
}

// The launch that a line is named after: the one that computes, not one that prepares.
const Launch& main_launch(const Program& program) {
    for (const Launch& l : program.launches)
        if (l.kernel != "pack" && l.kernel != "group" && l.kernel != "expert_pack" && l.kernel != "rope_table") return l;
    return program.launches.back();
}

std::string kernels_of(const Program& program) {
    std::string names;
    for (const Launch& l : program.launches)
        if (names.find(l.kernel) == std::string::npos || l.kernel == "pack") names += (names.empty() ? "" : " + ") + l.kernel;
    return names;
}

}  // namespace

std::vector<Check> check_kernels(const Subject& subject, std::span<const Choice> choices, bool full, const std::function<void(std::size_t, std::size_t)>& advance) {
    std::vector<Needed> all = needed(subject);
    std::vector<Check> checks;
    const std::vector<Site> sites_of[] = {sites(subject, false), sites(subject, true)};
    for (Needed& n : all) {
        Check check;
        apply(choices, n.lowered.program, subject.weights);
        const std::string site = site_name(n.lowered.program, main_launch(n.lowered.program), subject.weights);
        check.kernel = kernels_of(n.lowered.program);
        check.shape = shape_name(site);
        const Verdict v = PartCheck(subject, n.part, n.many, full ? kWholeBudget : kFastBudget).check(n.lowered, checked_rows(n.many ? matvec_rows + 1 : 1, subject.rows(n.many)));
        check.rows = v.worst.rows;
        check.worst = v.worst;
        check.error = v.error;
        // The variant that served the step in which it was farthest off.
        check.variant = "-";
        for (const Launch& l : n.lowered.program.launches)
            for (const Site& s : sites_of[n.many])
                if (s.name == site_name(n.lowered.program, l, subject.weights)) {
                    const auto bucket = std::find_if(s.buckets.begin(), s.buckets.end() - 1, [&](const LaunchVariants& b) { return check.rows <= b.rows; });
                    const std::string* chosen = l.variant(bucket->rows);
                    check.variant = chosen ? *chosen : bucket->names[0];
                }
        checks.push_back(std::move(check));
        if (advance) advance(checks.size(), all.size());
    }
    return checks;
}

}  // namespace forge::tune
