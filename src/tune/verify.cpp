#include "verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "tune/site.h"

namespace forge::tune {
namespace {

// Rows that a result of the part can have: logits are fewer.
int most_rows(const Subject& s, const Part& part, bool many) { return part.of_outputs() ? std::min(s.rows(many), s.outputs(many)) : s.rows(many); }

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

Difference compare_run(Probe& probe, Cache& cache, const Subject& subject, const Part& part, const Case& c, const Result& wanted) {
    fill_cache(cache, part, subject, c);
    const Result got = probe.run(c);
    const DType type = part.plan.values[static_cast<std::size_t>(part.output())].type == ValueType::f32 && !part.route() ? DType::f32 : subject.type;
    // Logits are sums of f32, whose inputs were rounded to the activation type alike.
    Difference d = compare(got.values, wanted.values, type == DType::f32 && subject.type != DType::f32 ? DType::f16 : type, c.rows);
    if (!got.state.empty()) d = worse(d, compare(got.state, wanted.state, subject.type, c.rows));
    return d;
}

}  // namespace

std::string Verdict::text() const { return runs() ? fmt::format("{} row{}: {}", worst.rows, worst.rows == 1 ? "" : "s", worst.text()) : error; }

const PartCheck::Wanted& PartCheck::wanted(int rows, int depth) {
    const auto it = wanted_.find({rows, depth});
    if (it != wanted_.end()) return it->second;
    Case data = make_case(part_, s_, s_.rows(many_), rows, 17 + static_cast<unsigned>(rows), depth);
    Result result = reference_run(s_, part_, data, budget_);
    return wanted_.emplace(std::pair(rows, depth), Wanted{std::move(data), std::move(result)}).first->second;
}

Verdict PartCheck::check(const LoweredPart& lowered, const std::vector<int>& rows) {
    Verdict verdict;
    try {
        if (!cache_) cache_ = make_cache(s_.backend, part_, s_);
        Probe probe(s_.backend, s_, part_, lowered, s_.weights, cache_);
        std::vector<int> done;
        for (const int wish : rows) {
            const int n = std::min(wish, most_rows(s_, part_, many_));
            if (std::find(done.begin(), done.end(), n) != done.end()) continue;
            std::vector<int> depths{97};
            if (part_.reads_keys && !many_ && done.empty()) {   // attention of few rows can be another kernel far into its context
                depths.push_back(std::min(s_.capacity / 4 + 600, 4600));
                if (s_.capacity > 8192) depths.push_back(8192 + 600);
            }
            for (const int depth : depths) {
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

SitePart::SitePart(const Subject& subject_, const Site& site_, const std::vector<std::size_t>& ops)
    : subject(subject_), site(site_), part(part_of(subject_.plan(site_.many), ops)),
      lowered(lower_part(subject_.backend, subject_, subject_.weights, part, subject_.rows(site_.many), subject_.outputs(site_.many))) {}

LoweredPart SitePart::with(const VariantChoice& variant) const {
    LoweredPart chosen = lowered;
    chosen.choose(site.name, variant, subject.weights);
    return chosen;
}

Contest::Contest(const Subject& subject, const Site& site, const LaunchVariants& bucket)
    : own_(subject, site, timed_ops(subject, site)), rows_(bucket.rows),
      // Attention far into its context, where its time is.
      case_(make_case(own_.part, subject, subject.rows(site.many), std::min(bucket.usual, most_rows(subject, own_.part, site.many)), 5, site.many ? 512 : 1024)),
      cache_(make_cache(subject.backend, own_.part, subject)) {
    for (Launch& l : own_.lowered.program.launches) l.barrier = true;   // each by itself
    fill_cache(*cache_, own_.part, subject, case_);
}

bool Contest::enter(const std::string& variant) {
    const Subject& s = own_.subject;
    try {
        probes_.emplace_back(s.backend, s, own_.part, own_.with({rows_, variant}), s.weights, cache_);
        probes_.back().prepare(case_);
    } catch (const Error& e) {
        log_debug("[tune] {}: {} is not timed: {}", short_name(own_.site.name), variant, e.what());
        return false;
    }
    names_.push_back(variant);
    return true;
}

double Contest::time(std::size_t entered, Timer& timer) { return timer.seconds(own_.site.name, rows_, names_[entered], probes_[entered], case_); }

}  // namespace forge::tune
