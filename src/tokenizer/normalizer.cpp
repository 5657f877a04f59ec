#include "normalizer.h"

#include "nfc.h"

namespace forge {
namespace {

struct Apply {
    std::string text;
    RegexScratch& scratch;

    void operator()(const NfcStep&) { text = nfc(text); }
    void operator()(const PrependStep& s) {
        if (!text.empty()) text.insert(0, s.text);
    }
    void operator()(const ReplaceStep& s) {
        if (!s.regex) {
            text = replace_all(text, s.literal, s.content);
            return;
        }
        std::vector<TextSpan> found;
        s.regex->find_all(text, scratch, found);
        if (found.empty()) return;
        std::string out;
        std::size_t from = 0;
        for (TextSpan m : found) {
            out.append(text, from, m.begin - from);
            out += s.content;
            from = m.end;
        }
        out.append(text, from);
        text = std::move(out);
    }
};

}  // namespace

std::string replace_all(std::string_view text, std::string_view literal, std::string_view content) {
    std::string out;
    out.reserve(text.size());
    std::size_t from = 0;
    if (!literal.empty()) {
        for (std::size_t at; (at = text.find(literal, from)) != std::string_view::npos;
             from = at + literal.size()) {
            out.append(text.substr(from, at - from));
            out.append(content);
        }
    }
    out.append(text.substr(from));
    return out;
}

std::string Normalizer::apply(std::string text, RegexScratch& scratch) const {
    Apply apply{std::move(text), scratch};
    for (const Step& step : steps_) std::visit(apply, step);
    return std::move(apply.text);
}

}  // namespace forge
