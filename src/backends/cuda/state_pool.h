// Memory for recurrent states that costs much to make, such as pinned memory: made once and used again.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace forge::cuda {

// In a shared_ptr: what is handed out keeps the pool, and comes back to it from any thread.
class StatePool : public std::enable_shared_from_this<StatePool> {
  public:
    // make: memory for one state, which lives as long as the function does, or null; asked `first` times now and `most`
    // times at most.
    StatePool(std::function<std::byte*()> make, std::size_t first, std::size_t most) : make_(std::move(make)), most_(most) {
        free_.reserve(most);
        while (made_ < first && grow()) {}
    }
    // Null when there is no more to be had.
    std::shared_ptr<std::byte[]> take() {
        std::byte* state = nullptr;
        {
            std::lock_guard lock(mutex_);
            if (free_.empty() && !grow()) return nullptr;
            state = free_.back();
            free_.pop_back();
        }
        return {state, [pool = shared_from_this()](std::byte* p) {
                    std::lock_guard lock(pool->mutex_);
                    pool->free_.push_back(p);   // has room for all
                }};
    }

  private:
    bool grow() {
        std::byte* const state = made_ < most_ ? make_() : nullptr;
        if (!state) return false;
        ++made_;
        free_.push_back(state);
        return true;
    }

    std::function<std::byte*()> make_;
    std::size_t most_, made_ = 0;
    std::mutex mutex_;
    std::vector<std::byte*> free_;
};

}  // namespace forge::cuda
