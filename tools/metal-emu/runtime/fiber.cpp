#include "runtime/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#if defined(__x86_64__)
asm(R"(
.text
.globl emu_switch_fiber
.type emu_switch_fiber,@function
emu_switch_fiber:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size emu_switch_fiber,.-emu_switch_fiber
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl emu_switch_fiber
.type emu_switch_fiber,%function
emu_switch_fiber:
  sub sp,sp,#160
  stp x19,x20,[sp,#0]
  stp x21,x22,[sp,#16]
  stp x23,x24,[sp,#32]
  stp x25,x26,[sp,#48]
  stp x27,x28,[sp,#64]
  stp x29,x30,[sp,#80]
  stp d8,d9,[sp,#96]
  stp d10,d11,[sp,#112]
  stp d12,d13,[sp,#128]
  stp d14,d15,[sp,#144]
  mov x2,sp
  str x2,[x0]
  mov sp,x1
  ldp x19,x20,[sp,#0]
  ldp x21,x22,[sp,#16]
  ldp x23,x24,[sp,#32]
  ldp x25,x26,[sp,#48]
  ldp x27,x28,[sp,#64]
  ldp x29,x30,[sp,#80]
  ldp d8,d9,[sp,#96]
  ldp d10,d11,[sp,#112]
  ldp d12,d13,[sp,#128]
  ldp d14,d15,[sp,#144]
  add sp,sp,#160
  ret
.size emu_switch_fiber,.-emu_switch_fiber
)");
#else
#error "fibers are written for x86-64 and aarch64"
#endif

namespace metal_emu {

char* new_stack() {
    void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
        std::perror("metal-emu: no memory for the stack of a GPU thread");
        std::abort();
    }
    return static_cast<char*>(memory) + kGuardBytes;
}

void free_stack(char* stack) { munmap(stack - kGuardBytes, kGuardBytes + kStackBytes); }

bool in_guard(const char* stack, const void* address) {
    const char* const a = static_cast<const char*>(address);
    return a < stack && a >= stack - kGuardBytes;
}

void* prepare_stack(char* stack, std::uint32_t index, void (*entry)()) {
    void** sp = reinterpret_cast<void**>(stack + kStackBytes - 64 - index % 61 * 832);
#if defined(__x86_64__)
    *--sp = nullptr;  // where entry would return to; also its alignment
    *--sp = reinterpret_cast<void*>(entry);
    for (int k = 0; k < 6; k++) *--sp = nullptr;
#else
    sp -= 20;
    for (int k = 0; k < 20; k++) sp[k] = nullptr;
    sp[11] = reinterpret_cast<void*>(entry);  // x30
#endif
    return sp;
}

}  // namespace metal_emu
