#include "replay_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "table.h"

namespace forge::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string_view kind_name(ReferenceRecord::Kind kind) { return kind == ReferenceRecord::Kind::greedy ? "greedy" : "forced"; }

void check(const ReplayDemands& demands, ReplaySummary& s) {
    const auto unmet = [&](std::string sentence) { s.unmet.push_back(s.file + ": " + std::move(sentence)); };
    const bool forced_wanted = demands.min_top1 || demands.max_ppl_diff || demands.max_logit_diff;
    if (forced_wanted && s.forced_positions == 0) unmet("there is no forced record to hold the demands against");
    if (demands.tokens_equal && s.greedy_positions == 0) unmet("there is no greedy record to compare tokens of");
    if (s.forced_positions > 0) {
        if (demands.min_top1 && !(s.top1() >= *demands.min_top1))
            unmet(fmt::format("{:.4f} of the positions have the reference's first token, and {} is demanded", s.top1(), *demands.min_top1));
        if (demands.max_ppl_diff && !(std::fabs(s.ppl_difference()) <= *demands.max_ppl_diff))
            unmet(fmt::format("the perplexity differs by {:.3g} of the reference's, and at most {} is allowed", s.ppl_difference(), *demands.max_ppl_diff));
        if (demands.max_logit_diff && !(s.largest_relative <= *demands.max_logit_diff))
            unmet(fmt::format("a logit differs by {:.3g} of the largest, and at most {} is allowed", s.largest_relative, *demands.max_logit_diff));
    }
    const int wrong = s.greedy_positions - s.greedy_equal - s.greedy_near_ties;
    if (demands.tokens_equal && wrong > 0)
        unmet(fmt::format("{} of {} greedy tokens differ without being near-ties", wrong, s.greedy_positions));
}

std::string shown(const Tokenizer* tokenizer, std::int32_t id) {
    if (!tokenizer) return fmt::format("{}", id);
    return fmt::format("{} {}", id, nlohmann::json(tokenizer->token_text(id)).dump());
}

}  // namespace

ReplaySummary summarise(const std::string& file, std::vector<ReplayResult> records, const ReplayDemands& demands) {
    ReplaySummary s;
    s.file = file;
    double nll = 0, reference_nll = 0;
    for (const ReplayResult& r : records) {
        if (r.kind == ReferenceRecord::Kind::greedy) {
            s.greedy_positions += r.positions;
            s.greedy_equal += r.equal;
            s.greedy_near_ties += r.near_ties;
        } else {
            s.forced_positions += r.positions;
            s.forced_equal += r.equal;
            s.forced_near_ties += r.near_ties;
            nll += r.nll * r.positions;
            reference_nll += r.reference_nll * r.positions;
            s.largest_difference = std::max(s.largest_difference, r.largest_difference);
            s.largest_relative = std::max(s.largest_relative, r.largest_relative);
        }
    }
    if (s.forced_positions) {
        s.ppl = std::exp(nll / s.forced_positions);
        s.reference_ppl = std::exp(reference_nll / s.forced_positions);
    }
    s.records = std::move(records);
    check(demands, s);
    return s;
}

Json to_json(const ReplaySummary& s) {
    Json records = Json::array();
    for (const ReplayResult& r : s.records) {
        Json record = {{"line", r.line}, {"kind", kind_name(r.kind)},
                       {"prompt_equal", r.prompt_equal ? Json(*r.prompt_equal) : Json(nullptr)},
                       {"positions", r.positions}, {"equal", r.equal}, {"near_ties", r.near_ties}};
        if (!r.prompt_difference.empty()) record["prompt_difference"] = r.prompt_difference;
        if (r.kind == ReferenceRecord::Kind::forced) {
            record["top1"] = static_cast<double>(r.equal) / r.positions;
            record["reference_ppl"] = std::exp(r.reference_nll);
            record["ppl"] = std::exp(r.nll);
            record["ppl_diff"] = std::exp(r.nll - r.reference_nll) - 1;
            record["max_logit_diff_abs"] = r.largest_difference;
            record["max_logit_diff"] = r.largest_relative;
        }
        Json divergences = Json::array();
        for (const Divergence& d : r.divergences)
            divergences.push_back({{"position", d.position}, {"near_tie", d.near_tie}, {"reference_token", d.theirs}, {"token", d.ours},
                                   {"reference_logits", {d.their_logit, d.their_logit_of_ours ? Json(*d.their_logit_of_ours) : Json(nullptr)}},
                                   {"logits", {d.our_logit_of_theirs, d.our_logit}}, {"tie", d.tie}});
        record["divergences"] = std::move(divergences);
        records.push_back(std::move(record));
    }
    Json summary = {{"greedy_tokens", s.greedy_positions}, {"greedy_equal", s.greedy_equal}, {"greedy_near_ties", s.greedy_near_ties},
                    {"forced_positions", s.forced_positions}};
    if (s.forced_positions) {
        summary["top1"] = s.top1();
        summary["top1_near_ties"] = s.forced_near_ties;
        summary["reference_ppl"] = s.reference_ppl;
        summary["ppl"] = s.ppl;
        summary["ppl_diff"] = s.ppl_difference();
        summary["max_logit_diff_abs"] = s.largest_difference;
        summary["max_logit_diff"] = s.largest_relative;
    }
    return {{"file", s.file}, {"summary", summary}, {"unmet", s.unmet}, {"records", records}};
}

std::string to_text(const ReplaySummary& s, const Tokenizer* tokenizer) {
    const auto right = Table::Align::right;
    Table table({{"line", right}, {"kind"}, {"prompt"}, {"positions", right}, {"equal", right}, {"near-ties", right}, {"ppl", right},
                 {"reference", right}, {"ppl diff", right}, {"logit diff", right}, {"relative", right}});
    const auto row = [&](std::string line, std::string kind, std::string prompt, int positions, int equal, int ties, bool forced,
                         double ppl, double reference, double absolute, double relative) {
        table.add({std::move(line), std::move(kind), std::move(prompt), std::to_string(positions), std::to_string(equal), std::to_string(ties),
                   forced ? fmt::format("{:.4f}", ppl) : "", forced ? fmt::format("{:.4f}", reference) : "",
                   forced ? fmt::format("{:+.2e}", ppl / reference - 1) : "", forced ? fmt::format("{:.2e}", absolute) : "",
                   forced ? fmt::format("{:.2e}", relative) : ""});
    };
    for (const ReplayResult& r : s.records)
        row(std::to_string(r.line), std::string(kind_name(r.kind)), !r.prompt_equal ? "-" : *r.prompt_equal ? "equal" : "differs", r.positions,
            r.equal, r.near_ties, r.kind == ReferenceRecord::Kind::forced, std::exp(r.nll), std::exp(r.reference_nll), r.largest_difference,
            r.largest_relative);
    if (s.greedy_positions) row("all", "greedy", "", s.greedy_positions, s.greedy_equal, s.greedy_near_ties, false, 0, 0, 0, 0);
    if (s.forced_positions)
        row("all", "forced", "", s.forced_positions, s.forced_equal, s.forced_near_ties, true, s.ppl, s.reference_ppl, s.largest_difference,
            s.largest_relative);
    std::string out = s.file + "\n" + table.text();
    for (const ReplayResult& r : s.records) {
        if (!r.prompt_difference.empty()) out += fmt::format("line {}: {}\n", r.line, r.prompt_difference);
        for (const Divergence& d : r.divergences) {
            // All near-ties are listed; of plain differences the first of a record says enough.
            if (!d.near_tie && &d != &*std::find_if(r.divergences.begin(), r.divergences.end(), [](const Divergence& x) { return !x.near_tie; })) continue;
            out += fmt::format("line {} position {}: {}: reference {} ({:.6g}, ours {}), Forge {} ({:.6g}, reference's {:.6g})\n", r.line, d.position,
                d.near_tie ? "near-tie" : "differs", shown(tokenizer, d.theirs), d.their_logit,
                d.their_logit_of_ours ? fmt::format("{:.6g}", *d.their_logit_of_ours) : "not listed", shown(tokenizer, d.ours), d.our_logit,
                d.our_logit_of_theirs);
        }
    }
    return out;
}

}  // namespace forge::cli
