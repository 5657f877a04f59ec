// Brings a model's mapped weights into memory in the order of their use, on a thread of its own: the disk
// is read front to back, ahead of the computation.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "formats/model_file.h"

namespace forge {

class WarmUp {
  public:
    // Nothing happens for models whose weights are converted while loading, nor for what is larger than
    // the memory that is free.
    explicit WarmUp(std::shared_ptr<const ModelFile> model);
    ~WarmUp();  // stops
    WarmUp(const WarmUp&) = delete;
    WarmUp& operator=(const WarmUp&) = delete;

  private:
    void run();

    std::shared_ptr<const ModelFile> model_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

// Keeps the mapped weights in memory (--mlock). Error when the system's limit is lower.
void lock_weights(const ModelFile& model);

}  // namespace forge
