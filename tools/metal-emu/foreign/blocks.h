// Quantised rows as the file formats publish them, random, with what they stand for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foreign/harness.h"

namespace metal_emu::foreign {

using half = _Float16;

struct BlockType {
    const char* name;
    int values;          // of a block
    std::size_t bytes;   // of a block
    void (*expand)(const std::uint8_t* block, float* values);
};
const BlockType& block_type(const std::string& name);

struct Matrix {
    std::vector<std::uint8_t> blocks;
    std::vector<float> values;   // [rows][columns]
    std::size_t row_bytes;
};
// small_scales: Q4_K scales as small as real files have them.
Matrix random_matrix(Harness& h, const BlockType& type, int rows, int columns, bool small_scales = false);
// What q4_K stands for when d/16 is rounded to half first, as one text does.
void round_sixteenths(Matrix& m);

}  // namespace metal_emu::foreign
