// The budget of one rendering: a template is untrusted and may neither hang the process nor
// take its memory or stack.
#pragma once

#include <cstddef>
#include <cstdint>

#include "chat/template.h"

namespace forge::jinja {

class Heap {
  public:
    explicit Heap(const TemplateLimits& limits) : limits_(limits) {}

    const TemplateLimits& limits() const { return limits_; }

    void step(std::uint64_t n = 1) {
        steps_ += n;
        if (steps_ > limits_.steps) too_many_steps();
    }
    // Work proportional to a text or list: 64 bytes count as one step.
    void work(std::size_t bytes) { step(bytes / 64 + 1); }

    void charge(std::size_t bytes) {
        live_ += bytes;
        if (live_ > limits_.memory) {
            live_ -= bytes;  // the object that asked is not built
            too_much_memory();
        }
    }
    void release(std::size_t bytes) { live_ -= bytes; }

    // Before building something large from parts: would it fit?
    void reserve(std::size_t bytes) const {
        if (bytes > limits_.memory || live_ + bytes > limits_.memory) too_much_memory();
    }
    void check_depth(int depth) const {
        if (depth > limits_.value_depth) too_deep_value();
    }

  private:
    [[noreturn]] void too_many_steps() const;
    [[noreturn]] void too_much_memory() const;
    [[noreturn]] void too_deep_value() const;

    TemplateLimits limits_;
    std::uint64_t steps_ = 0;
    std::size_t live_ = 0;
};

}  // namespace forge::jinja
