// Candidates -> verify -> time -> record. Which of a backend's variants runs each launch is measured here, on the machine
// and the shapes that it is for; a candidate that is wrong on any of them is never picked (docs/tuning.md).
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tune/compare.h"
#include "tune/probe.h"
#include "tune/record.h"
#include "tune/subject.h"

namespace forge::tune {

enum class Mode : std::uint8_t { off, fast, full, unasked };   // unasked: fast, where the backend wants that

// Seconds of a variant, once. Tests have their own: no test measures time.
class Timer {
  public:
    virtual ~Timer() = default;
    virtual double seconds(const std::string& site, int rows, const std::string& variant, Probe& probe, const Case& c) = 0;
};
// What the backend says a step's launches took.
Timer& device_timer();

// --tune KERNEL=VARIANT: every launch of the kernel that has such a variant takes it.
struct Forced { std::string kernel, variant; };

struct TuneOptions {
    Mode mode = Mode::fast;
    std::vector<Forced> forced = {};
    bool anew = false;                   // even where there is a record
    bool only_record = false;            // nothing is measured where there is none
    std::filesystem::path folder = {};   // of records; empty: none are read or written
    std::string version = engine_version();
    Timer* timer = nullptr;              // null: device_timer()

    static std::string engine_version();
};
// "off", "fast", "full", "auto" (unasked), or "KERNEL=VARIANT", several with ';' between (and a mode among them). Error otherwise.
TuneOptions parse_tune(const std::string& text);

struct TimedVariant {
    std::string name;
    double seconds = 0;                  // the median of the rounds; 0: it does not run
    bool wrong = false;
    bool unsure = false;                 // slower than the default in more than a fifth of the rounds
    std::string error;                   // of a wrong one: "512 rows: max err 7.790e-2 of 9.082e-2"
    Difference worst;
};
struct SiteReport {
    std::string site;
    int rows = 0;
    std::vector<TimedVariant> variants;
    std::string picked;
};
struct TuneReport {
    bool cached = false;                 // the choices are those of an earlier start
    std::string why;                     // not
    double seconds = 0;
    std::filesystem::path file;          // of the record
    std::vector<Choice> choices;
    std::vector<SiteReport> sites;       // what was measured now
};

// The fastest that is right; the first, which is the default, unless another is faster by more than timings vary and in
// nearly every round. Empty when all are wrong.
std::string pick(std::span<const TimedVariant> variants);

// Chooses for both programs of a subject. Error(unsupported) when every variant of a launch is wrong.
TuneReport tune(const Subject& subject, const TuneOptions& options);

// What runs when nothing is chosen, and what can be: of a whole program's launches.
struct Site {
    std::string name, kernel;
    bool many = false;                                   // of the program for prompts
    std::vector<LaunchVariants> buckets;
    std::vector<std::vector<std::size_t>> units;         // ops around each launch of this name
};
std::vector<Site> sites(const Subject& subject, bool many);

// Writes the choices into a program's launches.
void apply(std::span<const Choice> choices, Program& program, std::span<const Weight> weights);

// Rows of the steps on which a bucket's kernels are checked: the fullest, and ragged ones.
std::vector<int> checked_rows(int smallest, int largest);

// One line of `forge doctor`: a kernel that the model needs, against the plain one.
struct Check {
    std::string kernel, shape, variant;
    int rows = 0;                        // of the step in which it was farthest off
    Difference worst;
    std::string error;                   // where it did not run
    bool ok() const { return error.empty() && worst.ok(); }
};
// advance(done, of) is called as it goes.
std::vector<Check> check_kernels(const Subject& subject, std::span<const Choice> choices, bool full, const std::function<void(std::size_t, std::size_t)>& advance = {});

}  // namespace forge::tune
