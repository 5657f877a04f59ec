// A slot's timeline in a file: tokens and cache. Another model, activation type or format version is refused.
#pragma once

#include <string>

#include "runtime/engine.h"
#include "runtime/timeline.h"

namespace forge {

void save_timeline(const Engine& engine, int slot, const Timeline& timeline, const std::string& path);
// The timeline is empty when this fails after the file was found to be right, else unchanged.
void restore_timeline(Engine& engine, int slot, Timeline& timeline, const std::string& path);

}  // namespace forge
