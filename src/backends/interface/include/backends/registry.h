// Devices by name. Backends that a build has are registered when an engine loads; tests may add their own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/thread_pool.h"

namespace forge {

struct DeviceKind {
    std::string name;                                    // "cuda"
    int preference = 0;                                  // the highest available one is "auto"
    bool (*available)(std::string* reason) = nullptr;    // false with a sentence
    std::unique_ptr<Backend> (*make)(ThreadPool& pool, int ordinal) = nullptr;
};

// A later one of the same name replaces the earlier.
void register_device(const DeviceKind& kind);

// The names that --device takes, "auto" first.
std::vector<std::string> device_names();

// "cpu", "cuda", "cuda:1": Error when there is no such device here. "auto": the best that is available.
std::unique_ptr<Backend> make_backend(const std::string& device, ThreadPool& pool);

}  // namespace forge
