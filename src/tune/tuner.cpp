#include "tune/tuner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/progress.h"
#include "lower/lower.h"
#include "tune/site.h"
#include "verify.h"

namespace forge::tune {
namespace {

// Timings of one variant vary by so much.
constexpr double kNoise = 0.02;
// A sentinel that is off by this factor, either way, tells of another machine: other clocks, another neighbour.
constexpr double kDrift = 2;
// What is shorter says nothing about that.
constexpr double kShortest = 200e-6;

class DeviceTimer final : public Timer {
  public:
    double seconds(const std::string&, int, const std::string&, Probe& probe, const Case& c) override {
        Executable& e = probe.executable();
        e.set_timing(true);
        e.submit(c.step(probe.next_serial()));
        e.wait();
        double sum = 0;
        for (const LaunchTime& t : e.timings()) sum += t.seconds;
        return sum;
    }
};

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string milliseconds(double seconds) { return fmt::format("{:.3f} ms", seconds * 1e3); }
std::string counted(int rows) { return fmt::format("{} row{}", rows, rows == 1 ? "" : "s"); }

// Buckets that a mode looks at: fast ones leave out what lies between one row and a whole chunk.
std::vector<std::size_t> looked_at(const Site& site, Mode mode) {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < site.buckets.size(); ++i)
        if (mode == Mode::full || i == 0 || i + 1 == site.buckets.size()) all.push_back(i);
    return all;
}

class Tuner {
  public:
    Tuner(const Subject& subject, const TuneOptions& options) : s_(subject), o_(options), timer_(options.timer ? *options.timer : device_timer()) {
        for (const bool many : {false, true})
            for (Site& site : sites(s_, many)) sites_.push_back(std::move(site));
    }

    TuneReport run() {
        const auto start = std::chrono::steady_clock::now();
        TuneReport report;
        if (o_.mode != Mode::off && !sites_.empty()) from_record_or_machine(report);
        force(report.choices);
        report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (report.cached) log_debug("[tune] {} choices from {}, checked in {:.2f} s", report.choices.size(), report.file.string(), report.seconds);
        return report;
    }

  private:
    void from_record_or_machine(TuneReport& report) {
        const BackendLimits limits = s_.backend.limits();
        // Another number of threads is another device: a start with it leaves this one's record alone.
        const std::string device = limits.threads > 1 ? fmt::format("{}, {} threads", limits.name, limits.threads) : limits.name;
        const RecordKey key{device, limits.driver, o_.version, shape(), std::string(name_of(s_.type))};
        if (!o_.folder.empty()) {
            report.file = record_path(o_.folder, key);
            std::optional<Record> record = o_.anew ? std::nullopt : load_record(o_.folder, key, &report.why);
            if (record && usable(*record, &report.why)) {
                report.cached = true;
                report.choices = std::move(record->choices);
                return;
            }
        }
        if (o_.only_record) return;
        if (!report.why.empty()) log_debug("[tune] kernels are timed: {}", report.why);
        measure(report);
        if (o_.folder.empty()) return;
        Record made{key, o_.mode == Mode::full, report.choices, sentinel(report)};
        save_record(o_.folder, made);
    }

    // Every site of both programs, and how long the context is: attention's time depends on it, but not on each position,
    // and what a record chose is checked again in the context that there is.
    std::string shape() const {
        std::vector<std::string> names;
        for (const Site& site : sites_) {
            std::string text = site.name;
            for (const LaunchVariants& b : site.buckets) text += fmt::format("; {}: {}", b.rows, fmt::join(b.names, "/"));
            names.push_back(std::move(text));
        }
        std::sort(names.begin(), names.end());
        const char* const context = s_.capacity <= 8192 ? "short" : s_.capacity <= 32768 ? "long" : "longest";
        return fmt::format("{:016x}", fnv1a(fmt::format("{}\n{}", context, fmt::join(names, "\n"))));
    }

    // ---- an earlier record
    bool usable(const Record& record, std::string* why) {
        if (o_.mode == Mode::full && !record.full) {
            *why = "only the fast way was tuned before";
            return false;
        }
        for (const Choice& c : record.choices) {
            const Site* site = find(c.site);
            const LaunchVariants* bucket = site ? bucket_of(*site, c.rows) : nullptr;
            if (!bucket || std::find(bucket->names.begin(), bucket->names.end(), c.variant) == bucket->names.end()) {
                *why = fmt::format("{} has no variant '{}'", short_name(c.site), c.variant);
                return false;
            }
            if (c.standard) continue;
            // Once more on a step that is not full, in short.
            Verifier verifier(s_, *site, kShortBudget);
            const std::vector<int> rows = checked_rows(smallest_of(*site, c.rows), c.rows);
            const Verdict v = verifier.check({c.rows, c.variant}, {rows.back()});
            if (v.right()) continue;
            log_warn("[tune] {}, {}: {} was picked before and is wrong now ({})", short_name(c.site), counted(c.rows), c.variant, v.text());
            *why = "a kernel that was picked before is wrong";
            return false;
        }
        return steady(record, why);
    }
    bool steady(const Record& record, std::string* why) {
        const Sentinel& s = record.sentinel;
        const Site* site = find(s.site);
        if (s.seconds < kShortest || !site) return true;
        std::string variant;
        for (const Choice& c : record.choices)
            if (c.site == s.site && c.rows == s.rows) variant = c.variant;
        const auto near = [&](double seconds) { return seconds < s.seconds * kDrift && seconds > s.seconds / kDrift; };
        const double now = least(*site, s.rows, variant, near);
        if (near(now)) return true;
        *why = fmt::format("{} took {} and takes {}", short_name(s.site), milliseconds(s.seconds), milliseconds(now));
        return false;
    }
    // The least of seven times, the first of which warms up; no more are taken than it needs to be `enough`.
    double least(const Site& site, int rows, const std::string& variant, const std::function<bool(double)>& enough = {}) {
        const LaunchVariants* bucket = bucket_of(site, rows);
        if (!bucket) return 0;
        Contest contest(s_, site, *bucket);
        if (variant.empty() || !contest.enter(variant)) return 0;
        double best = INFINITY;
        for (int round = 0; round < 7 && !(round >= 2 && enough && enough(best)); ++round) best = std::min(best, contest.time(0, timer_));
        return best;
    }
    // What takes longest is what a drift is seen in first.
    Sentinel sentinel(const TuneReport& report) {
        Sentinel s;
        for (const SiteReport& r : report.sites)
            for (const TimedVariant& v : r.variants)
                if (v.name == r.picked && v.seconds > s.seconds) s = {r.site, r.rows, v.seconds};
        if (s.seconds < kShortest) return {};
        for (const SiteReport& r : report.sites)
            if (r.site == s.site && r.rows == s.rows) s.seconds = least(*find(r.site), r.rows, r.picked);
        return s.seconds < kShortest ? Sentinel{} : s;
    }

    // ---- measuring
    void measure(TuneReport& report) {
        std::size_t count = 0;
        for (const Site& site : sites_)
            for (const std::size_t b : looked_at(site, o_.mode)) count += site.buckets[b].names.size();
        prepare();
        Progress progress("tuning kernels", count, "variants");
        for (const Site& site : sites_)
            for (const std::size_t b : looked_at(site, o_.mode)) {
                report.sites.push_back(measure(site, site.buckets[b]));
                progress.advance(site.buckets[b].names.size());
                const SiteReport& r = report.sites.back();
                for (const TimedVariant& v : r.variants)
                    if (v.name == r.picked) report.choices.push_back({r.site, r.rows, v.name, v.seconds, v.name == r.variants[0].name});
            }
    }

    // Every variant's program, for compilers that do better with many kernels at a time.
    void prepare() {
        std::vector<Program> programs;
        for (const Site& site : sites_) {
            const SitePart own(s_, site, site.units.front());
            for (const std::size_t b : looked_at(site, o_.mode))
                for (const std::string& name : site.buckets[b].names) programs.push_back(own.with({site.buckets[b].rows, name}).program);
        }
        s_.backend.prepare(programs, s_.weights, s_.layers, s_.capacity);
    }

    SiteReport measure(const Site& site, const LaunchVariants& bucket) {
        SiteReport report{site.name, bucket.rows, {}, {}};
        const std::string title = fmt::format("{}, {}", short_name(site.name), counted(bucket.rows));
        Verifier verifier(s_, site, o_.mode == Mode::full ? kWholeBudget : kFastBudget);
        const std::vector<int> rows = checked_rows(smallest_of(site, bucket.rows), bucket.rows);
        Contest contest(s_, site, bucket);
        std::vector<std::size_t> entered;
        for (const std::string& name : bucket.names) {
            const Verdict v = verifier.check({bucket.rows, name}, rows);
            TimedVariant variant{name, 0, !v.right(), false, v.right() ? "" : v.text(), v.worst};
            if (variant.wrong) log_warn("[tune] {}: wrong against plain, never picked: {} ({})", title, name, variant.error);
            if (v.runs() && contest.enter(name)) entered.push_back(report.variants.size());
            report.variants.push_back(std::move(variant));
        }
        // In rounds, so that what disturbs the machine for a while disturbs all of them.
        const int rounds = o_.mode == Mode::full ? 15 : 5;
        const double longest = o_.mode == Mode::full ? 5.0 : 0.7;
        std::vector<std::vector<double>> times(entered.size());
        double spent = 0;
        for (std::size_t i = 0; i < entered.size(); ++i) contest.time(i, timer_);   // first runs are slow
        for (int round = 0; round < rounds && (round < 3 || spent < longest); ++round)
            for (std::size_t k = 0; k < entered.size(); ++k) {
                const std::size_t i = (k + static_cast<std::size_t>(round)) % entered.size();
                times[i].push_back(contest.time(i, timer_));
                spent += times[i].back();
            }
        for (std::size_t i = 0; i < entered.size(); ++i) {
            TimedVariant& v = report.variants[entered[i]];
            v.seconds = median(times[i]);
            // Against the default in the same round, which had the same neighbours.
            std::size_t won = 0;
            for (std::size_t r = 0; r < times[i].size(); ++r) won += times[i][r] < times[0][r];
            v.unsure = i > 0 && entered[0] == 0 && 5 * won < 4 * times[i].size();
        }
        report.picked = pick(report.variants);
        std::string line;
        for (const TimedVariant& v : report.variants)
            line += fmt::format("{}{}{} {}", line.empty() ? "" : ", ", v.name, v.wrong ? "*" : "", v.seconds > 0 ? milliseconds(v.seconds) : "does not run");
        log_debug("[tune] {}: {} -> {}", title, line, report.picked.empty() ? "none" : report.picked);
        if (report.picked.empty())
            fail(ErrorKind::unsupported, "{} on {}: every kernel gives wrong results, such as {} ({}); run the model with --device cpu", title, s_.backend.limits().name,
                 report.variants[0].name, report.variants[0].error);
        return report;
    }

    // ---- forced variants
    void force(std::vector<Choice>& choices) const {
        for (const Forced& f : o_.forced) {
            bool known = false;
            std::set<std::string> names;
            for (const Site& site : sites_) {
                if (site.kernel != f.kernel) continue;
                for (const LaunchVariants& b : site.buckets) {
                    names.insert(b.names.begin(), b.names.end());
                    if (std::find(b.names.begin(), b.names.end(), f.variant) == b.names.end()) continue;
                    known = true;
                    std::erase_if(choices, [&](const Choice& c) { return c.site == site.name && c.rows == b.rows; });
                    choices.push_back({site.name, b.rows, f.variant, 0, f.variant == b.names[0]});
                }
            }
            if (known) continue;
            if (names.empty()) fail("--tune {}={}: the kernel '{}' has no variants here; {}", f.kernel, f.variant, f.kernel, kernels_with_variants());
            fail("--tune {}={}: there is no such variant; {} has: {}", f.kernel, f.variant, f.kernel, fmt::join(names, ", "));
        }
    }
    std::string kernels_with_variants() const {
        std::set<std::string> names;
        for (const Site& site : sites_) names.insert(site.kernel);
        return names.empty() ? "none has" : fmt::format("those that have: {}", fmt::join(names, ", "));
    }

    const Site* find(const std::string& name) const {
        for (const Site& site : sites_)
            if (site.name == name) return &site;
        return nullptr;
    }
    static const LaunchVariants* bucket_of(const Site& site, int rows) {
        for (const LaunchVariants& b : site.buckets)
            if (b.rows == rows) return &b;
        return nullptr;
    }
    static int smallest_of(const Site& site, int rows) {
        int smallest = site.many ? matvec_rows + 1 : 1;
        for (const LaunchVariants& b : site.buckets)
            if (b.rows < rows) smallest = std::max(smallest, b.rows + 1);
        return smallest;
    }

    const Subject& s_;
    const TuneOptions& o_;
    Timer& timer_;
    std::vector<Site> sites_;
};

}  // namespace

Timer& device_timer() {
    static DeviceTimer one;
    return one;
}

std::string TuneOptions::engine_version() { return FORGE_VERSION_TEXT; }

TuneOptions parse_tune(const std::string& text) {
    TuneOptions options;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(';', at), text.size());
        const std::string word = text.substr(at, end - at);
        at = end + 1;
        if (word == "off") options.mode = Mode::off;
        else if (word == "fast") options.mode = Mode::fast;
        else if (word == "full") options.mode = Mode::full;
        else if (word == "auto") options.mode = Mode::unasked;
        else if (const std::size_t equals = word.find('='); equals != std::string::npos && equals > 0 && equals + 1 < word.size())
            options.forced.push_back({word.substr(0, equals), word.substr(equals + 1)});
        else fail("--tune should be off, fast, full, auto or KERNEL=VARIANT (such as matvec='rows 256'), found '{}'", text);
    }
    return options;
}

std::string pick(std::span<const TimedVariant> variants) {
    const TimedVariant* best = nullptr;
    for (const TimedVariant& v : variants) {
        const bool first_is_default = best && best == &variants[0];
        if (v.wrong || v.seconds <= 0 || (v.unsure && first_is_default)) continue;
        if (!best || v.seconds < best->seconds * (first_is_default ? 1 - kNoise : 1.0)) best = &v;
    }
    return best ? best->name : "";
}

namespace {

// What all launches of a name can do.
void keep_common(std::vector<LaunchVariants>& buckets, const std::vector<LaunchVariants>& others) {
    for (LaunchVariants& b : buckets) {
        std::vector<std::string> both;
        for (const LaunchVariants& o : others)
            for (const std::string& name : b.names)
                if (o.rows == b.rows && o.names[0] == b.names[0] && std::find(o.names.begin(), o.names.end(), name) != o.names.end()) both.push_back(name);
        b.names = std::move(both);
    }
    std::erase_if(buckets, [](const LaunchVariants& b) { return b.names.size() < 2; });
}

}  // namespace

std::vector<Site> sites(const Subject& subject, bool many) {
    std::vector<Site> found;
    if (subject.rows(many) == 0) return found;
    LowerOptions options;
    options.type = subject.type;
    options.max_rows = subject.rows(many);
    options.max_outputs = subject.outputs(many);
    const Program program = lower(subject.plan(many), subject.ropes, options, lower_target(subject.backend, subject.weights, subject.type, subject.capacity));
    std::map<std::size_t, std::vector<std::size_t>> unit_of_op;
    for (const std::vector<std::size_t>& unit : units(subject.plan(many)))
        for (const std::size_t op : unit) unit_of_op[op] = unit;
    for (std::size_t i = 0; i < program.launches.size(); ++i) {
        const Launch& l = program.launches[i];
        std::vector<LaunchVariants> buckets = subject.backend.variants(program, i, subject.weights, subject.layers, subject.capacity);
        if (buckets.empty()) continue;
        const std::string name = site_name(program, l, subject.weights);
        auto it = std::find_if(found.begin(), found.end(), [&](const Site& s) { return s.name == name; });
        if (it == found.end()) it = found.insert(found.end(), Site{name, l.kernel, many, std::move(buckets), {}});
        else keep_common(it->buckets, buckets);
        it->units.push_back(unit_of_op.at(static_cast<std::size_t>(l.op)));
    }
    std::erase_if(found, [](const Site& s) { return s.buckets.empty(); });
    return found;
}

void apply(std::span<const Choice> choices, Program& program, std::span<const Weight> weights) {
    if (choices.empty()) return;
    std::map<std::string, std::vector<const Choice*>> by_site;
    for (const Choice& c : choices)
        if (!c.standard) by_site[c.site].push_back(&c);
    if (by_site.empty()) return;
    for (Launch& l : program.launches) {
        const auto it = by_site.find(site_name(program, l, weights));
        if (it == by_site.end()) continue;
        for (const Choice* c : it->second) l.variants.push_back({c->rows, c->variant});
        std::sort(l.variants.begin(), l.variants.end(), [](const VariantChoice& a, const VariantChoice& b) { return a.rows < b.rows; });
    }
}

std::vector<int> checked_rows(int smallest, int largest) {
    std::vector<int> rows{largest};
    for (const int n : {33, 9, 5, 3})   // ragged against tiles of any power of two
        if (n > smallest && n < largest) rows.push_back(n);
    if (smallest < largest) rows.push_back(smallest);
    return rows;
}

TuneReport tune(const Subject& subject, const TuneOptions& options) { return Tuner(subject, options).run(); }

}  // namespace forge::tune
