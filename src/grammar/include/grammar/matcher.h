// Follows a text through a Grammar and says which tokens may come next. One for each answer; not shared
// between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

namespace forge {

class Matcher {
  public:
    Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);
    ~Matcher();
    Matcher(Matcher&&) noexcept;
    Matcher& operator=(Matcher&&) noexcept;

    // One bit an id (bit id % 32 of word id / 32), valid until the next call.
    const std::uint32_t* mask();
    // False, and no change, when the token or the text does not fit.
    bool accept(std::int32_t token);
    bool accept(std::string_view text);

    bool can_end() const;    // what was read is a whole text of the language
    bool finished() const;   // it is, and nothing can follow
    // The tokens of what must come next whatever is chosen; the last token before a choice is left to the
    // choice, because it may reach into it. Empty when nothing is certain. Nothing is accepted yet.
    std::vector<std::int32_t> forced();
    std::string forced_text();   // all of it, at most 1 KiB
    void reset();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace forge
