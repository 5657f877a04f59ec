#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace forge {

// Byte strings with numbers, in preorder: a node's subtree is the range up to its `end`.
struct ByteTrie {
    struct Node {
        std::uint32_t end;          // the node after the subtree
        std::uint32_t first, count; // numbers of the strings that end here, in `items`
        std::uint16_t depth;        // 1: the first byte
        std::uint8_t byte;
    };
    std::vector<Node> nodes;
    std::vector<std::uint32_t> items;
    std::vector<std::uint16_t> deepest;   // of each node's subtree

    // Strings may repeat; empty ones and those of more than 65,000 bytes are left out.
    static ByteTrie build(std::vector<std::pair<std::string, std::uint32_t>> strings);
};

}  // namespace forge
