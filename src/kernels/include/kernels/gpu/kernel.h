// GPU kernels as data. A body (text/*.h) is written once and is valid in the Metal Shading Language and in CUDA
// C++; an entry point names the body with every dimension as a literal, and is emitted as text when a model loads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/step_rows.h"

namespace forge::gpu {

enum class Target : std::uint8_t { metal, cuda };

// A buffer. The name says what the host binds: "step" (the step record), an operand of the launch ("x"), a plane of
// one ("weight.codes"), "rope_angles" (the precomputed table of the rope operand), "scratch".
struct Param {
    std::string name;
    std::string type;          // element, as the bodies spell it: "ushort", "float", "uchar", "int"
    bool written = false;
};

// An array in threadgroup memory.
struct Array {
    std::string name, type;
    int count;
};

// Grid in threadgroups: x fixed; y one for `rows_per_group` rows of the step (0: always 1); z one for each part of
// the cache that the step's longest row reads (part_size positions, but at most most_parts; 0: always 1). Where a row counts more than once
// (choices of experts), y counts those; with groups that each begin a new y, as many more as there can be groups.
struct Grid {
    int x = 1, rows_per_group = 1, part_size = 0, window = 0;
    bool output_rows = false;
    int per_row = 1, groups = 0;
    int most_parts = 0;        // 0: no limit
    bool operator==(const Grid&) const = default;
};

struct Kernel {
    std::string name;          // of the entry point; the same for the same text
    std::string family;        // of the launch, for people
    std::string body;          // statements of the entry point
    std::vector<Param> params;
    std::vector<Array> arrays;
    int threads = 32;          // of a threadgroup, a multiple of 32
    bool matmul2d = false;     // its source is for devices that have Metal 4's tensor operations
    int residents = 0;         // CUDA: threadgroups that must fit a multiprocessor; 0: as the compiler likes
    Grid grid;

    std::size_t threadgroup_bytes() const;
    // CUDA: what the launch has to give, because it is more than a kernel may declare; else 0.
    std::size_t dynamic_bytes() const;
};

// Kernels that do not depend on each other as one launch, each in its share of the grid's x. names: for every part the
// names of its buffers, one name for one buffer; they are the result's parameters in the order of their first use.
// Arrays of one name must be of one type.
bool can_run_side_by_side(const Kernel& a, const Kernel& b);
Kernel side_by_side(std::span<const Kernel> parts, std::span<const std::vector<std::string>> names);

// The step record in device memory (text/types.h): words, and how a step is written into them.
std::size_t step_words(int max_rows);
inline constexpr std::size_t outputs_word = 1;   // where the record says how many outputs there are
// pick_limit: ids below it can be picked on the device.
void write_step(const StepRows& step, int max_rows, std::int32_t* words, std::int32_t pick_limit = 0);

// Threadgroups of a launch in a step.
struct GridSize { unsigned x, y, z; };
GridSize grid_size(const Grid& grid, const StepRows& step);

// The texts of all entry points in one compilation unit. Kernels of one name are emitted once.
std::string source(Target target, std::span<const Kernel> kernels);

}  // namespace forge::gpu
