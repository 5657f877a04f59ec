#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "lower/lower.h"
#include "tune/site.h"
#include "verify.h"

namespace forge::tune {
namespace {

// A part of one of the two programs, with the names of its launches.
struct Needed { Part part; LoweredPart lowered; bool many; int most_rows; };

std::vector<Needed> needed(const Subject& s) {
    std::vector<Needed> all;
    for (const bool many : {false, true}) {
        const int rows = many ? s.many_rows : s.few_rows, outputs = many ? s.many_outputs : s.few_outputs;
        if (rows == 0) continue;
        std::set<std::string> known;   // the same kernels serve many layers
        for (const std::vector<std::size_t>& unit : units(s.plan(many))) {
            Part part = part_of(s.plan(many), unit);
            LoweredPart lowered = lower_part(s.backend, s, s.weights, part, rows, outputs);
            std::string name;
            for (const Launch& l : lowered.program.launches) name += site_name(lowered.program, l, s.weights) + "\n";
            if (!known.insert(name).second) continue;
            const bool of_outputs = part.plan.values[static_cast<std::size_t>(part.output())].rows == RowSpace::outputs;
            all.push_back({std::move(part), std::move(lowered), many, of_outputs ? std::min(rows, outputs) : rows});
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
        try {
            const std::shared_ptr<Cache> cache = make_cache(subject.backend, n.part, subject);
            Probe probe(subject.backend, subject, n.part, n.lowered, subject.weights, cache);
            int done = 0;
            for (int rows : checked_rows(n.many ? matvec_rows + 1 : 1, n.many ? subject.many_rows : subject.few_rows)) {
                rows = std::min(rows, n.most_rows);
                if (rows == done) continue;   // logits are of few rows
                const Case c = make_case(n.part, subject, n.many ? subject.many_rows : subject.few_rows, rows, 29 + static_cast<unsigned>(rows));
                const Difference d = compare_run(probe, *cache, subject, n.part, c, reference_run(subject, n.part, c, full ? kWholeBudget : kFastBudget));
                check.worst = done == 0 ? d : worse(check.worst, d);
                done = rows;
            }
            check.rows = check.worst.rows;
        } catch (const Error& e) {
            check.error = e.what();
        }
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
