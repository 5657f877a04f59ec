#include "interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace forge::cli {
namespace {

std::atomic<int> requests{0};
struct sigaction previous;

void on_interrupt(int) {
    // A second one while the answer has not ended yet (it looks once a token or prompt chunk).
    if (requests.fetch_add(1) >= 1) {
        static constexpr char newline = '\n';
        (void)!write(2, &newline, 1);
        _exit(130);
    }
}

}  // namespace

InterruptGuard::InterruptGuard() {
    requests = 0;
    struct sigaction action{};
    action.sa_handler = on_interrupt;  // no SA_RESTART: a waiting read returns
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &previous);
}

InterruptGuard::~InterruptGuard() { sigaction(SIGINT, &previous, nullptr); }

bool InterruptGuard::requested() const { return requests.load() > 0; }
void InterruptGuard::reset() { requests = 0; }

}  // namespace forge::cli
