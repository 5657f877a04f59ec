// What replays of reference files showed, and whether that meets the demands of the command line.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "replay.h"

namespace forge::cli {

// All are fractions, not percents.
struct ReplayDemands {
    std::optional<double> min_top1;        // share of forced positions with the reference's first token
    std::optional<double> max_ppl_diff;    // relative difference of the perplexities
    std::optional<double> max_logit_diff;  // relative to the largest absolute reference logit
    bool tokens_equal = false;             // greedy tokens, near-ties excepted
};

// One file's records taken together.
struct ReplaySummary {
    std::string file;
    std::vector<ReplayResult> records;
    int greedy_positions = 0, greedy_equal = 0, greedy_near_ties = 0;
    int forced_positions = 0, forced_equal = 0, forced_near_ties = 0;
    double reference_ppl = 0, ppl = 0;     // over all forced positions
    double largest_difference = 0, largest_relative = 0;
    std::vector<std::string> unmet;        // a sentence each

    double top1() const { return forced_positions ? static_cast<double>(forced_equal) / forced_positions : 0; }
    double ppl_difference() const { return reference_ppl > 0 ? ppl / reference_ppl - 1 : 0; }
};

ReplaySummary summarise(const std::string& file, std::vector<ReplayResult> records, const ReplayDemands& demands);

nlohmann::ordered_json to_json(const ReplaySummary& summary);
// Tables and the divergences; `text` shows tokens as text where it can (may be null).
std::string to_text(const ReplaySummary& summary, const Tokenizer* tokenizer);

}  // namespace forge::cli
