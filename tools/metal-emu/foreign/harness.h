// Runs kernels that others wrote, from files on this machine, and holds them against plain loops.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "metal_emu/compile.h"

namespace metal_emu::foreign {

struct Bound {
    void* data;
    std::size_t bytes;
    bool read_only;
};
template <typename T>
Bound in(const std::vector<T>& v) {
    return {const_cast<T*>(v.data()), v.size() * sizeof(T), true};
}
template <typename T>
Bound out(std::vector<T>& v) {
    return {v.data(), v.size() * sizeof(T), false};
}
template <typename T>
Bound value(const T& v) {
    return {const_cast<T*>(&v), sizeof v, true};
}

using Constants = std::vector<FunctionConstant>;
// {index, value} pairs.
Constants constants(std::initializer_list<std::pair<long, long>> values);

struct KernelRun {
    std::string file, kernel;
    Constants constants;
    std::vector<Bound> buffers;  // by index
    std::uint32_t grid[3] = {1, 1, 1}, threads[3] = {32, 1, 1};
    std::size_t threadgroup_bytes = 0;  // of threadgroup(0)
};

struct Case {
    std::string name;
    std::vector<KernelRun> runs;     // one after the other, with memory barriers between
    double tolerance = 0;
    std::function<double()> error;   // of the outputs, after a run
    Profile profile = Profile::m1;
    bool zero_tensors = false;
    // What earlier runs gave and what it means; a case without may have no finding and must be right.
    const char* known_findings = nullptr;
    const char* known_wrong = nullptr;
};

// The largest |found - wanted| / (|wanted| + floor); huge where `found` is no number.
double largest_error(const float* found, const std::vector<double>& wanted, double floor = 1);

class Harness {
  public:
    explicit Harness(std::string filter) : filter_(std::move(filter)) {}

    // How files are read: folders for #include, macros, the language's version.
    std::vector<std::string> folders, defines;
    bool cxx17 = false;
    std::string root;   // of file names without a text

    // Files are read again, after a change of the above.
    void forget() { libraries_.clear(); }
    // A file of ours that instantiates foreign templates.
    void add_text(const std::string& file, const std::string& text) { texts_[file] = text; }
    // Plain, checked, and checked with three orders of lanes. Prints a line and the findings.
    void run(const Case& c);
    // Prints the counts; true when every case did what is known of it.
    bool summary() const;

    // Seeded, so that cases are the same in every run and whatever the filter.
    template <typename T = float>
    std::vector<T> random(std::size_t n, float scale = 1) {
        std::vector<T> v(n);
        for (T& x : v) x = static_cast<T>(scale * number());
        return v;
    }
    float number() { return std::uniform_real_distribution<float>(-1, 1)(generator_); }
    std::uint32_t bits() { return static_cast<std::uint32_t>(generator_()); }

  private:
    struct Outcome {
        std::vector<std::string> findings;
        std::size_t in_order = 0;   // findings of the checked run in the lanes' order
        double error = 0;
        bool same = true;           // every order of lanes gave the plain run's error
        std::string failure;
    };
    const Library& library(const std::string& file);
    bool launch(const KernelRun& run, const Case& c, int mode, bool loose, Outcome& outcome);
    Outcome outcome_of(const Case& c);

    std::string filter_;
    std::map<std::string, std::string> texts_;
    std::map<std::string, Library> libraries_;
    std::mt19937 generator_{7};
    int cases_ = 0, clean_ = 0, known_ = 0, unexpected_ = 0;
};

}  // namespace metal_emu::foreign
