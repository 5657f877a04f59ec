// Merge sort that stays within its range whatever the comparison says (NaN orders with
// nothing) and lets it throw.
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

namespace forge::jinja {

// The order of 0..n-1: less(a, b) compares two of these indices; equal ones keep their order.
template <typename Less>
std::vector<std::size_t> sorted_order(std::size_t n, Less less) {
    std::vector<std::size_t> order(n), merged(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t width = 1; width < n; width *= 2) {
        for (std::size_t start = 0; start < n; start += 2 * width) {
            const std::size_t middle = std::min(start + width, n), end = std::min(start + 2 * width, n);
            std::size_t a = start, b = middle;
            for (std::size_t k = start; k < end; ++k)
                merged[k] = b >= end || (a < middle && !less(order[b], order[a])) ? order[a++] : order[b++];
        }
        order.swap(merged);
    }
    return order;
}

}  // namespace forge::jinja
