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

class Verifier {
  public:
    Verifier(const Subject& subject, const Site& site, double budget);
    // The part around the site's launch as it is checked.
    static LoweredPart lowered(const Subject& subject, const Site& site);
    // On steps of each of those rows.
    Verdict check(const VariantChoice& variant, const std::vector<int>& rows);

  private:
    struct Wanted { Case data; Result result; };
    const Wanted& wanted(int rows, int depth);

    const Subject& s_;
    const Site& site_;
    Part part_;
    LoweredPart lowered_;
    int max_rows_;
    double budget_;
    std::shared_ptr<Cache> cache_;
    std::map<std::pair<int, int>, Wanted> wanted_;
};

// Runs `part` on one more variant of the lowered program and compares.
Difference compare_run(Probe& probe, Cache& cache, const Subject& subject, const Part& part, const Case& c, const Result& wanted);

// Variants that are timed in turn.
class Contest {
  public:
    Contest(const Subject& subject, const Site& site, const LaunchVariants& bucket);
    bool enter(const std::string& variant);   // false: it cannot be compiled
    double time(std::size_t entered, Timer& timer);

  private:
    const Subject& s_;
    const Site& site_;
    int rows_;
    Part part_;
    LoweredPart lowered_;
    Case case_;
    std::shared_ptr<Cache> cache_;
    std::vector<std::string> names_;
    std::deque<Probe> probes_;
};

}  // namespace forge::tune
