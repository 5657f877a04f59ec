// A site's variants against the plain kernels, and against each other in time.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tune/tuner.h"

namespace forge::tune {

inline constexpr std::size_t kTimedLayers = 8;   // whose weights a timing of few rows reads in turn
// Multiplications that the reference of a case may take.
inline constexpr double kShortBudget = 2e7, kFastBudget = 2e8, kWholeBudget = 1e300;

struct Verdict {
    Difference worst;
    std::string error;          // why it does not run
    bool runs() const { return error.empty(); }
    bool right() const { return runs() && worst.ok(); }
    std::string text() const;   // "512 rows: max err 7.790e-2 of 9.082e-2"
};

// Steps of a part, and what the plain kernels make of them.
class PartCheck {
  public:
    PartCheck(const Subject& subject, const Part& part, bool many, double budget) : s_(subject), part_(part), many_(many), budget_(budget) {}
    // The part with whatever variants its launches name, on steps of each of those rows, as far as there are so many.
    Verdict check(const LoweredPart& lowered, const std::vector<int>& rows);

  private:
    struct Wanted { Case data; Result result; };
    const Wanted& wanted(int rows, int depth);

    const Subject& s_;
    const Part& part_;
    bool many_;
    double budget_;
    std::shared_ptr<Cache> cache_;
    std::map<std::pair<int, int>, Wanted> wanted_;
};

// Operations around launches of a site, lowered to be run by themselves.
struct SitePart {
    SitePart(const Subject& subject, const Site& site, const std::vector<std::size_t>& ops);
    LoweredPart with(const VariantChoice& variant) const;   // the site's launches take it

    const Subject& subject;
    const Site& site;
    Part part;
    LoweredPart lowered;
};

// Variants of a site, each on the same steps.
class Verifier {
  public:
    Verifier(const Subject& subject, const Site& site, double budget) : own_(subject, site, site.units.front()), steps_(subject, own_.part, site.many, budget) {}
    Verdict check(const VariantChoice& variant, const std::vector<int>& rows) { return steps_.check(own_.with(variant), rows); }

  private:
    SitePart own_;
    PartCheck steps_;
};

// Variants that are timed in turn.
class Contest {
  public:
    Contest(const Subject& subject, const Site& site, const LaunchVariants& bucket);
    bool enter(const std::string& variant);   // false: it cannot be compiled
    double time(std::size_t entered, Timer& timer);

  private:
    SitePart own_;
    int rows_;
    Case case_;
    std::shared_ptr<Cache> cache_;
    std::vector<std::string> names_;
    std::deque<Probe> probes_;
};

}  // namespace forge::tune
