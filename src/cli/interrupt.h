// Ctrl-C: asks the running answer to end. A second one while it has not ended leaves at once.
#pragma once

namespace forge::cli {

// Handles SIGINT from construction to destruction; one object at a time.
class InterruptGuard {
  public:
    InterruptGuard();
    ~InterruptGuard();
    InterruptGuard(const InterruptGuard&) = delete;
    InterruptGuard& operator=(const InterruptGuard&) = delete;

    bool requested() const;
    void reset();
};

}  // namespace forge::cli
