#include "replay.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace forge::cli {
namespace {

// One unit in the last place of a 16-bit type at this size.
float unit_in_last_place(DType type, float value) {
    const int digits = type == DType::bf16 ? 7 : 10;
    const int exponent = value == 0 ? -14 : std::ilogb(value);
    return std::ldexp(1.0f, exponent - digits);
}

float tie_threshold(double tie, DType reference, DType ours, float logit) {
    if (tie >= 0) return static_cast<float>(tie);
    if (reference == DType::f32 && ours == DType::f32) return 1e-3f;
    float threshold = 0;
    for (DType type : {reference, ours})
        if (type != DType::f32) threshold = std::max(threshold, unit_in_last_place(type, logit));
    return threshold;
}

std::int32_t first_of_largest(std::span<const float> logits) {
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double nll_of(std::span<const float> logits, std::int32_t id) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (float x : logits) total += std::exp(x - largest);
    return std::log(total) + largest - logits[static_cast<std::size_t>(id)];
}

// Compares the first tokens of one position and counts it.
void compare_first(std::span<const float> logits, std::int32_t theirs, const std::vector<ReferenceRecord::Candidate>& top,
                   int position, float tie, ReplayResult& result) {
    const std::int32_t ours = first_of_largest(logits);
    ++result.positions;
    if (ours == theirs) {
        ++result.equal;
        return;
    }
    Divergence d;
    d.position = position;
    d.theirs = theirs;
    d.ours = ours;
    d.their_logit = top[0].second;
    for (const auto& [id, logit] : top)
        if (id == ours) d.their_logit_of_ours = logit;
    d.our_logit_of_theirs = logits[static_cast<std::size_t>(theirs)];
    d.our_logit = logits[static_cast<std::size_t>(ours)];
    d.tie = tie;
    // Our token must itself be one of the tied ones: that the reference's second was close says nothing
    // for a third.
    d.near_tie = d.their_logit_of_ours && d.their_logit - *d.their_logit_of_ours <= tie;
    result.near_ties += d.near_tie;
    result.divergences.push_back(d);
}

void compare_prompt(const ModelText& text, const ReferenceRecord& record, ReplayResult& result) {
    const std::vector<std::int32_t> ours = record.prompt.is_string()
        ? text.raw_prompt(record.prompt.get<std::string>()).ids
        : text.chat_prompt({{{"role", "user"}, {"content", record.prompt["user"]}}}).ids;
    const auto& theirs = record.ids;
    const auto split = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    result.prompt_equal = split.first == ours.end() && split.second == theirs.end();
    if (*result.prompt_equal) return;
    const auto shown = [&](const std::vector<std::int32_t>& ids, auto at) {
        if (at == ids.end()) return std::string("the end");
        return fmt::format("{} {}", *at, nlohmann::json(text.tokenizer()->token_text(*at)).dump());
    };
    result.prompt_difference = fmt::format("the prompt's ids differ at {}: the reference has {}, Forge makes {} ({} and {} ids)",
        split.first - ours.begin(), shown(theirs, split.second), shown(ours, split.first), theirs.size(), ours.size());
}

void check_ids(const ReferenceFile& file, const ReferenceRecord& record, int vocab) {
    const auto check = [&](std::int32_t id) {
        if (id >= vocab)
            fail("{} line {}: token id {} is outside this model's vocabulary of {}; was the reference made with it?", file.path,
                 record.line, id, vocab);
    };
    for (std::int32_t id : record.ids) check(id);
    for (std::int32_t id : record.tokens) check(id);
    for (const auto& top : record.top)
        for (const auto& candidate : top) check(candidate.first);
}

void replay_greedy(Session& session, const ReferenceRecord& record, const auto& tie_at, ReplayResult& result) {
    session.feed(record.ids);
    for (std::size_t i = 0; i < record.tokens.size(); ++i) {
        compare_first(session.logits(), record.tokens[i], record.top[i], static_cast<int>(i), tie_at(i), result);
        if (i + 1 < record.tokens.size()) session.append(record.tokens[i]);
    }
}

void replay_forced(Session& session, const ReferenceRecord& record, const auto& tie_at, ReplayResult& result) {
    double largest = 0;
    for (const auto& top : record.top)
        for (const auto& candidate : top) largest = std::max(largest, std::fabs(static_cast<double>(candidate.second)));
    session.score(record.ids, [&](int position, std::span<const float> logits) {
        const auto i = static_cast<std::size_t>(position);
        if (i + 1 >= record.ids.size()) return;  // predicts nothing that is known
        compare_first(logits, record.top[i][0].first, record.top[i], position, tie_at(i), result);
        result.nll += nll_of(logits, record.ids[i + 1]);
        result.reference_nll += record.nll[i];
        for (const auto& [id, logit] : record.top[i])
            result.largest_difference = std::max(result.largest_difference,
                std::fabs(static_cast<double>(logits[static_cast<std::size_t>(id)]) - static_cast<double>(logit)));
    });
    result.nll /= result.positions;
    result.reference_nll /= result.positions;
    result.largest_relative = largest > 0 ? result.largest_difference / largest : 0;
}

}  // namespace

int positions_needed(const ReferenceRecord& record) {
    return static_cast<int>(record.ids.size() + record.tokens.size());
}

ReplayResult replay(Session& session, const ModelText* text, const ReferenceFile& file, const ReferenceRecord& record, double tie) {
    ReplayResult result;
    result.line = record.line;
    result.kind = record.kind;
    check_ids(file, record, session.engine()->spec().vocab);
    if (text && !record.prompt.is_null()) compare_prompt(*text, record, result);
    const DType ours = session.engine()->options().dtype;
    const auto tie_at = [&](std::size_t i) { return tie_threshold(tie, file.dtype, ours, record.top[i][0].second); };
    if (record.kind == ReferenceRecord::Kind::greedy) {
        replay_greedy(session, record, tie_at, result);
    } else {
        replay_forced(session, record, tie_at, result);
    }
    return result;
}

}  // namespace forge::cli
