// A GPU thread that runs out of stack says so, with the name of its kernel, before the process ends.
#include "runtime/overflow.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <mutex>

#include "runtime/fiber.h"
#include "runtime/worker.h"

namespace metal_emu {
namespace {

struct sigaction g_before[2];   // of SIGSEGV and SIGBUS

void on_fault(int signal, siginfo_t* info, void*) {
    const Worker* const w = current_worker();
    if (w && w->current && in_guard(w->current->stack, info->si_addr)) {
        char text[256];
        const int n = std::snprintf(text, sizeof text, "metal-emu: thread %u of kernel %s overflowed its stack of %zu bytes\n", w->current->index, w->launch->name, kStackBytes);
        if (n > 0 && write(STDERR_FILENO, text, static_cast<std::size_t>(n)) < 0) _exit(1);
    }
    sigaction(signal, &g_before[signal == SIGBUS], nullptr);   // and again, without us
}

}  // namespace

OverflowReport::OverflowReport() : memory_(64 * 1024) {
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &action, &g_before[0]);
        sigaction(SIGBUS, &action, &g_before[1]);
    });
    stack_t stack = {};
    stack.ss_sp = memory_.data();
    stack.ss_size = memory_.size();
    sigaltstack(&stack, &before_);
}

OverflowReport::~OverflowReport() { sigaltstack(&before_, nullptr); }

}  // namespace metal_emu
