// What an answer is held to while it is generated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grammar/matcher.h"

namespace forge {

// Says before each token which may come. Used from the stepping thread only.
class TokenConstraint {
  public:
    virtual ~TokenConstraint() = default;
    // One bit an id, the ids that end an answer included where it may end; null: anything.
    virtual const std::uint32_t* mask() = 0;
    virtual void accept(std::int32_t token) = 0;   // Error when the mask does not have it
    virtual bool finished() const { return false; }   // nothing can follow: the answer is complete
    virtual std::vector<std::int32_t> forced() { return {}; }   // what must follow, not yet accepted
};

// The whole answer is a text of the grammar.
std::shared_ptr<TokenConstraint> hold_to(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);

// A text that begins the grammar's language, where it comes in the answer, holds what follows to it; after the
// end of that text the answer is free again.
struct Trigger {
    std::string text;              // as the answer says it
    bool only_first = false;       // at the beginning of the answer alone, after white space
};
std::shared_ptr<TokenConstraint> hold_after(std::vector<Trigger> triggers, std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);

}  // namespace forge
