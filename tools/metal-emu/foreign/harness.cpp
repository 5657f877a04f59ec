#include "foreign/harness.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace metal_emu::foreign {
namespace {

constexpr int kModes = 5;   // plain, checked, checked in three other orders

bool contains(const std::vector<std::string>& findings, const std::string& one) {
    // The rest names lanes and threads.
    return std::any_of(findings.begin(), findings.end(),
                       [&](const std::string& f) { return f.substr(0, 60) == one.substr(0, 60); });
}

}  // namespace

Constants constants(std::initializer_list<std::pair<long, long>> values) {
    Constants all;
    for (const auto& [index, v] : values) all.push_back({static_cast<int>(index), "", "", std::to_string(v)});
    return all;
}

double largest_error(const float* found, const std::vector<double>& wanted, double floor) {
    double most = 0;
    for (std::size_t i = 0; i < wanted.size(); i++) {
        const double e = std::fabs(static_cast<double>(found[i]) - wanted[i]) / (std::fabs(wanted[i]) + floor);
        if (std::isnan(e)) return 1e9;
        most = std::max(most, e);
    }
    return most;
}

const Library& Harness::library(const std::string& file) {
    if (const auto it = libraries_.find(file); it != libraries_.end()) return it->second;
    std::string path = root + "/" + file, error;
    if (const auto it = texts_.find(file); it != texts_.end()) {
        path = std::filesystem::temp_directory_path() / ("metal-emu-" + std::to_string(getpid()) + "-" + file);
        std::ofstream(path) << it->second;
    }
    const std::string text = preprocess(path, folders, defines, &error);
    if (texts_.count(file)) unlink(path.c_str());
    if (!error.empty()) throw std::runtime_error(error);
    Library library = parse(text, &error);
    if (!error.empty()) throw std::runtime_error(file + ": " + error);
    library.preprocessed = true;
    return libraries_[file] = std::move(library);
}

bool Harness::launch(const KernelRun& run, const Case& c, int mode, bool loose, Outcome& outcome) {
    CompileOptions options;
    options.check = mode > 0;
    options.address_spaces = false;
    options.cxx17 = cxx17;
    options.loose_alignment = mode == 0 || loose;   // GPUs do not fault at such vectors, this CPU does
    options.profile = c.profile;
    options.zero_tensors = c.zero_tensors;
    const Compiled compiled = compile(library(run.file), {run.kernel}, run.constants, options);
    if (!compiled.ok) {
        outcome.failure = run.kernel + " does not compile:\n" + compiled.log.substr(0, 3000);
        return false;
    }
    Launch l;
    l.entry = compiled.entries.begin()->second;
    l.name = run.kernel.c_str();
    l.image_low = compiled.image_low;
    l.image_high = compiled.image_high;
    l.check = mode > 0;
    l.seed = mode > 1 ? static_cast<std::uint64_t>(mode) : 0;
    for (std::size_t i = 0; i < run.buffers.size(); i++) {
        l.buffers[i] = run.buffers[i].data;
        l.bytes[i] = run.buffers[i].bytes;
        l.read_only[i] = run.buffers[i].read_only;
    }
    std::copy_n(run.grid, 3, l.grid);
    std::copy_n(run.threads, 3, l.threads);
    l.threadgroup_bytes[0] = run.threadgroup_bytes;
    memory_barrier();
    for (const std::string& finding : metal_emu::run(l)) {
        if (mode == 1) outcome.in_order++;
        if (outcome.findings.size() < 12 && !contains(outcome.findings, finding)) outcome.findings.push_back(finding);
    }
    return true;
}

Harness::Outcome Harness::outcome_of(const Case& c) {
    Outcome outcome;
    bool loose = false;
    for (int mode = 0; mode < kModes; mode++) {
        for (const KernelRun& r : c.runs)
            for (const Bound& b : r.buffers)
                if (!b.read_only) std::memset(b.data, 0xff, b.bytes);
        for (const KernelRun& r : c.runs)
            if (!launch(r, c, mode, loose, outcome)) return outcome;
        // A misaligned vector ends a run: reported, then once more where it is allowed.
        if (mode == 1 && !loose && !outcome.findings.empty() && outcome.findings.back().rfind("misaligned", 0) == 0) {
            loose = true;
            mode = 0;
            continue;
        }
        const double e = c.error();
        if (mode == 0) outcome.error = e;
        else outcome.same = outcome.same && e == outcome.error;
    }
    return outcome;
}

void Harness::run(const Case& c) {
    if (c.name.find(filter_) == std::string::npos) return;
    cases_++;
    const Outcome o = outcome_of(c);
    if (!o.failure.empty()) {
        std::printf("%-36s FAILED: %s\n", c.name.c_str(), o.failure.c_str());
        unexpected_++;
        return;
    }
    const bool right = o.error <= c.tolerance, clean = o.findings.empty();
    const bool expected = right == !c.known_wrong && clean == !c.known_findings;
    std::printf("%-36s %-5s error %.1e of %.0e allowed, checked: %s%s%s\n", c.name.c_str(), right ? "right" : "WRONG", o.error, c.tolerance,
                clean ? "clean" : (std::to_string(o.findings.size()) + " findings").c_str(),
                o.same ? "" : ", results of checked runs differ", expected ? "" : "  <- not what is known of it");
    for (const std::string& f : o.findings) std::printf("      ! %s\n", f.c_str());
    for (const char* known : {c.known_wrong, c.known_findings})
        if (known) std::printf("      known: %s\n", known);
    std::fflush(stdout);
    (expected ? (right && clean ? clean_ : known_) : unexpected_)++;
}

bool Harness::summary() const {
    std::printf("%d cases: %d right and clean, %d with what is known of them, %d unexpected\n", cases_, clean_, known_, unexpected_);
    return unexpected_ == 0;
}

}  // namespace metal_emu::foreign
