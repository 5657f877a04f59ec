#pragma once

#include "runtime/worker.h"

namespace metal_emu {

struct Touch {
    unsigned bytes;
    bool write, atomic;
    void* code;  // where the kernel does it
};

void touch(void* address, const Touch& touch);
// An atomic operation on device memory that reads and writes passes on what fences before it have released. Held from
// before the operation: of two, the later one sees the earlier one's.
struct ReleaseExchange {
    explicit ReleaseExchange(void* address);
    ~ReleaseExchange();

  private:
    void* address_;   // null: nothing is kept
};
void fence(int flags, int scope);
// touched.cpp
bool counting_touched();
void mark_touched(Worker& worker, std::uintptr_t address, const Touch& touch);
void misaligned(void* address, const Touch& touch);

}  // namespace metal_emu
