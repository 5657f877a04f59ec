#include "chat/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace forge {

std::size_t partial_suffix(std::string_view text, std::string_view marker) {
    if (marker.empty()) return 0;
    for (std::size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n)
        if (text.ends_with(marker.substr(0, n))) return n;
    return 0;
}

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
    for (const std::string& stop : stops_)
        if (stop.empty()) fail("A stop string is empty; it would end every answer at once. Remove it.");
}

std::string StopMatcher::push(std::string_view piece) {
    if (stopped()) return {};
    held_ += piece;
    std::size_t end = std::string::npos;
    const std::string* found = nullptr;
    for (const std::string& stop : stops_) {
        const std::size_t at = held_.find(stop);
        if (at == std::string::npos) continue;
        const std::size_t stop_end = at + stop.size();
        if (!found || stop_end < end || (stop_end == end && stop.size() > found->size())) {
            end = stop_end;
            found = &stop;
        }
    }
    if (found) {
        matched_ = *found;
        std::string out = held_.substr(0, end - matched_.size());
        held_.clear();
        return out;
    }
    std::size_t keep = 0;
    for (const std::string& stop : stops_) keep = std::max(keep, partial_suffix(held_, stop));
    std::string out = held_.substr(0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace forge
