#include "verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "tune/site.h"

namespace forge::tune {
namespace {

int rows_of(const Subject& s, const Site& site) { return site.many ? s.many_rows : s.few_rows; }
int outputs_of(const Subject& s, const Site& site) { return site.many ? s.many_outputs : s.few_outputs; }

// Rows that a step of the part can have: logits are fewer.
int most_rows(const Subject& s, const Site& site, const Part& part) {
    const bool outputs = part.plan.values[static_cast<std::size_t>(part.output())].rows == RowSpace::outputs;
    return outputs ? std::min(rows_of(s, site), outputs_of(s, site)) : rows_of(s, site);
}

std::uint64_t weight_bytes(const Subject& s, const Part& part) {
    std::uint64_t bytes = 0;
    for (const Op& op : part.plan.ops)
        if (const auto* o = std::get_if<MatmulOp>(&op.attributes))
            for (const WeightId id : {o->weight, o->weight2})
                if (id >= 0) bytes += s.weights[static_cast<std::size_t>(id)].bytes();
    return bytes;
}

// A timing of few rows reads the weights of several layers, because in use they are not in a cache either; what has a
// cache or state of its own, and what computes more than it reads, is timed alone.
std::vector<std::size_t> timed_ops(const Subject& s, const Site& site) {
    std::vector<std::size_t> ops = site.units.front();
    const Part first = part_of(s.plan(site.many), ops);
    if (site.many || !first.matmul()) return ops;
    const std::uint64_t own = weight_bytes(s, first);
    for (std::size_t i = 1; i < site.units.size() && i < kTimedLayers && own * i < (std::uint64_t{256} << 20); ++i)
        ops.insert(ops.end(), site.units[i].begin(), site.units[i].end());
    std::sort(ops.begin(), ops.end());
    ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
    return ops;
}

}  // namespace

std::string Verdict::text() const { return runs() ? fmt::format("{} row{}: {}", worst.rows, worst.rows == 1 ? "" : "s", worst.text()) : error; }

Difference compare_run(Probe& probe, Cache& cache, const Subject& subject, const Part& part, const Case& c, const Result& wanted) {
    fill_cache(cache, part, subject, c);
    const Result got = probe.run(c);
    const DType type = part.plan.values[static_cast<std::size_t>(part.output())].type == ValueType::f32 && !part.route() ? DType::f32 : subject.type;
    // Logits are sums of f32, whose inputs were rounded to the activation type alike.
    Difference d = compare(got.values, wanted.values, type == DType::f32 && subject.type != DType::f32 ? DType::f16 : type, c.rows);
    if (!got.state.empty()) d = worse(d, compare(got.state, wanted.state, subject.type, c.rows));
    return d;
}

Verifier::Verifier(const Subject& subject, const Site& site, double budget)
    : s_(subject), site_(site), part_(part_of(subject.plan(site.many), site.units.front())),
      lowered_(lowered(subject, site)), max_rows_(most_rows(subject, site, part_)), budget_(budget), cache_(make_cache(subject.backend, part_, subject)) {}

LoweredPart Verifier::lowered(const Subject& subject, const Site& site) {
    const Part part = part_of(subject.plan(site.many), site.units.front());
    return lower_part(subject.backend, subject, subject.weights, part, rows_of(subject, site), outputs_of(subject, site));
}

const Verifier::Wanted& Verifier::wanted(int rows, int depth) {
    const auto it = wanted_.find({rows, depth});
    if (it != wanted_.end()) return it->second;
    Case data = make_case(part_, s_, rows_of(s_, site_), rows, 17 + static_cast<unsigned>(rows), depth);
    Result result = reference_run(s_, part_, data, budget_);
    return wanted_.emplace(std::pair(rows, depth), Wanted{std::move(data), std::move(result)}).first->second;
}

Verdict Verifier::check(const VariantChoice& variant, const std::vector<int>& rows) {
    Verdict verdict;
    LoweredPart own = lowered_;
    own.choose(site_.name, variant, s_.weights);
    try {
        Probe probe(s_.backend, s_, part_, own, s_.weights, cache_);
        std::vector<int> done;
        for (const int wish : rows) {
            const int n = std::min(wish, max_rows_);
            if (std::find(done.begin(), done.end(), n) != done.end()) continue;
            // Attention of few rows can be another kernel far into its context.
            const bool deep = part_.reads_keys && !site_.many && done.empty();
            for (const int depth : deep ? std::vector{97, std::min(s_.capacity / 4 + 600, 4600)} : std::vector{97}) {
                const Wanted& w = wanted(n, depth);
                const Difference d = compare_run(probe, *cache_, s_, part_, w.data, w.result);
                verdict.worst = done.empty() && depth == 97 ? d : worse(verdict.worst, d);
            }
            done.push_back(n);
        }
    } catch (const Error& e) {
        verdict.error = e.what();
    }
    return verdict;
}

Contest::Contest(const Subject& subject, const Site& site, const LaunchVariants& bucket)
    : s_(subject), site_(site), rows_(bucket.rows), part_(part_of(subject.plan(site.many), timed_ops(subject, site))),
      lowered_(lower_part(subject.backend, subject, subject.weights, part_, rows_of(subject, site), outputs_of(subject, site))),
      // Attention far into its context, where its time is.
      case_(make_case(part_, subject, rows_of(subject, site), std::min(bucket.usual, most_rows(subject, site, part_)), 5, site.many ? 512 : 1024)),
      cache_(make_cache(subject.backend, part_, subject)) {
    for (Launch& l : lowered_.program.launches) l.barrier = true;   // each by itself
    fill_cache(*cache_, part_, subject, case_);
}

bool Contest::enter(const std::string& variant) {
    LoweredPart own = lowered_;
    own.choose(site_.name, {rows_, variant}, s_.weights);
    try {
        probes_.emplace_back(s_.backend, s_, part_, own, s_.weights, cache_);
        probes_.back().prepare(case_);
    } catch (const Error& e) {
        log_debug("[tune] {}: {} is not timed: {}", short_name(site_.name), variant, e.what());
        return false;
    }
    names_.push_back(variant);
    return true;
}

double Contest::time(std::size_t entered, Timer& timer) { return timer.seconds(site_.name, rows_, names_[entered], probes_[entered], case_); }

}  // namespace forge::tune
