#pragma once

#include <csignal>
#include <vector>

namespace metal_emu {

// While it lives, the host thread that made it can report an overflow of a GPU thread's stack.
class OverflowReport {
  public:
    OverflowReport();
    ~OverflowReport();
    OverflowReport(const OverflowReport&) = delete;
    OverflowReport& operator=(const OverflowReport&) = delete;

  private:
    std::vector<char> memory_;
    stack_t before_ = {};
};

}  // namespace metal_emu
