// What turns one pre-token into ids.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "merge_loop.h"

namespace forge {

class WordModel {
  public:
    virtual ~WordModel() = default;
    // Appends the ids of a non-empty word (valid UTF-8) to `out`.
    virtual void encode(std::string_view word, MergeScratch& scratch,
                        std::vector<std::int32_t>& out) const = 0;
    // A word may be a whole document. Where no merge can reach across a border,
    // its parts are encoded (and cached) apart with the same result: the end of
    // the part that begins at `from`.
    virtual std::size_t part_end(std::string_view word, std::size_t from) const = 0;
};

}  // namespace forge
