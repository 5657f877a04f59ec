// Ends a stream of text before any of given texts, also when one comes in pieces.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace forge {

class StopTexts {
  public:
    explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {
        std::erase(stops_, std::string());
    }

    // Text that can be shown now. What might be the beginning of a stop text waits.
    std::string push(std::string_view text) {
        if (found_) return {};
        waiting_ += text;
        // The one that ends first; of several that end there, the longest. So the result does not depend
        // on how the text was cut.
        std::size_t first = std::string::npos, end = std::string::npos;
        for (const std::string& stop : stops_) {
            const std::size_t at = waiting_.find(stop);
            if (at == std::string::npos) continue;
            if (at + stop.size() < end || (at + stop.size() == end && at < first)) {
                first = at;
                end = at + stop.size();
            }
        }
        if (first != std::string::npos) {
            found_ = true;
            std::string before = waiting_.substr(0, first);
            waiting_.clear();
            return before;
        }
        std::size_t held = 0;
        for (const std::string& stop : stops_) {
            for (std::size_t n = std::min(stop.size() - 1, waiting_.size()); n > held; --n)
                if (waiting_.compare(waiting_.size() - n, n, stop, 0, n) == 0) held = n;
        }
        std::string ready = waiting_.substr(0, waiting_.size() - held);
        waiting_.erase(0, waiting_.size() - held);
        return ready;
    }

    // What still waits, at the end of the stream.
    std::string finish() { return std::exchange(waiting_, {}); }
    bool found() const { return found_; }

  private:
    std::vector<std::string> stops_;
    std::string waiting_;
    bool found_ = false;
};

}  // namespace forge
