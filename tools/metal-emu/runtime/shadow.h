#pragma once

#include "runtime/worker.h"

namespace metal_emu {

struct Touch {
    unsigned bytes;
    bool write, atomic;
    void* code;  // where the kernel does it
};

void touch(void* address, const Touch& touch);
// touched.cpp
bool counting_touched();
void mark_touched(Worker& worker, std::uintptr_t address, const Touch& touch);
void misaligned(void* address, const Touch& touch);

}  // namespace metal_emu
