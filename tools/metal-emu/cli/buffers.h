// Buffers described on the command line.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace metal_emu {

struct DescribedBuffer {
    int index = 0;
    std::string type;
    std::size_t bytes = 0;                 // as bound; the memory may be a little larger
    std::vector<long> extents;   // as written: of a tensor, innermost first
    std::vector<std::max_align_t> memory;
};

// "3=f16*64:random", "0=u32:1,2,3". Throws std::runtime_error with a sentence.
DescribedBuffer describe_buffer(const std::string& text);
// The first `count` values, separated by spaces.
std::string values_of(const DescribedBuffer& buffer, std::size_t count);
// "3=64"
std::pair<int, std::size_t> index_and_number(const std::string& text);

}  // namespace metal_emu
