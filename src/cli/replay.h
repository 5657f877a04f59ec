// Forge held against a reference: the same ids go through the engine, and tokens, losses and logits
// are compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/model_text.h"
#include "reference.h"
#include "runtime/session.h"

namespace forge::cli {

// A position where Forge's first token is not the reference's.
struct Divergence {
    int position = 0;                        // greedy: index in `tokens`; forced: index in `ids`
    std::int32_t theirs = 0, ours = 0;       // first tokens
    float their_logit = 0;                   // reference's logit of its own first token
    std::optional<float> their_logit_of_ours;  // absent when the reference does not list our token
    float our_logit_of_theirs = 0, our_logit = 0;
    float tie = 0;                           // the threshold here
    bool near_tie = false;                   // by the reference's own logits the two are equal, up to `tie`
};

struct ReplayResult {
    int line = 0;
    ReferenceRecord::Kind kind = ReferenceRecord::Kind::greedy;
    // Are the ids that Forge makes of `prompt` the reference's? Absent: no prompt or no tokenizer.
    std::optional<bool> prompt_equal;
    std::string prompt_difference;           // a sentence
    int positions = 0, equal = 0, near_ties = 0;
    std::vector<Divergence> divergences;
    // Forced only:
    double reference_nll = 0, nll = 0;       // means
    // Over the listed candidates; relative to the record's largest absolute reference logit.
    double largest_difference = 0, largest_relative = 0;
};

// tie: the threshold, or negative for the default: 1e-3 between f32 and f32, else one unit in the
// last place of the coarser 16-bit type at the size of the reference's first logit.
ReplayResult replay(Session& session, const ModelText* text, const ReferenceFile& file, const ReferenceRecord& record, double tie);

// Positions that a replay of this record needs.
int positions_needed(const ReferenceRecord& record);

}  // namespace forge::cli
