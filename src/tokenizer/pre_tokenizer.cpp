#include "pre_tokenizer.h"

#include <string_view>

#include "byte_alphabet.h"
#include "unicode.h"

namespace forge {
namespace {

// A stretch of a piece: a match of the pattern, or the text between two.
struct Stretch {
    std::uint32_t begin, end;
    bool match;
};

void find_literal(std::string_view text, std::string_view literal, std::vector<TextSpan>& out) {
    if (literal.empty()) return;
    for (std::size_t at = text.find(literal); at != std::string_view::npos;
         at = text.find(literal, at + literal.size()))
        out.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + literal.size())});
}

void find_numeric(std::string_view text, std::vector<TextSpan>& out) {
    for (std::uint32_t i = 0; i < text.size();) {
        std::uint32_t length;
        char32_t c = unicode::decode_valid(text, i, length);
        bool numeric = c < 0x80 ? c >= '0' && c <= '9' : unicode::is_numeric(c);
        if (numeric) out.push_back({i, i + length});
        i += length;
    }
}

// Turns matches into the pieces that `behavior` asks for; `match` of a result
// says that it is to be removed.
void fold(const std::vector<Stretch>& stretches, SplitBehavior behavior, std::vector<Stretch>& out) {
    out.clear();
    bool before = false;
    switch (behavior) {
        case SplitBehavior::removed:
            out = stretches;
            return;
        case SplitBehavior::isolated:
            for (Stretch s : stretches) out.push_back({s.begin, s.end, false});
            return;
        case SplitBehavior::contiguous:
            for (Stretch s : stretches) {
                if (s.match == before && !out.empty()) {
                    out.back().end = s.end;
                } else {
                    out.push_back({s.begin, s.end, false});
                }
                before = s.match;
            }
            return;
        case SplitBehavior::merged_with_previous:
            for (Stretch s : stretches) {
                if (s.match && !before && !out.empty()) {
                    out.back().end = s.end;
                } else {
                    out.push_back({s.begin, s.end, false});
                }
                before = s.match;
            }
            return;
        case SplitBehavior::merged_with_next:
            for (auto s = stretches.rbegin(); s != stretches.rend(); ++s) {
                if (s->match && !before && !out.empty()) {
                    out.back().begin = s->begin;
                } else {
                    out.push_back({s->begin, s->end, false});
                }
                before = s->match;
            }
            std::vector<Stretch>(out.rbegin(), out.rend()).swap(out);
            return;
    }
}

class Stepper {
  public:
    Stepper(Pieces& pieces, RegexScratch& scratch) : pieces_(pieces), scratch_(scratch) {}

    void operator()(const SplitStep& s) {
        split(s.behavior, s.invert, [&](std::string_view piece) {
            if (s.regex) {
                s.regex->find_all(piece, scratch_, found_);
            } else {
                find_literal(piece, s.literal, found_);
            }
        });
    }

    void operator()(const DigitsStep& s) {
        split(s.individual ? SplitBehavior::isolated : SplitBehavior::contiguous, false,
              [&](std::string_view piece) { find_numeric(piece, found_); });
    }

    void operator()(const ByteLevelStep& s) {
        if (s.add_prefix_space)
            rewrite([](std::string_view piece, std::size_t, std::string& out) {
                if (!piece.starts_with(' ')) out += ' ';
                out += piece;
            });
        if (s.regex)
            split(SplitBehavior::isolated, false,
                  [&](std::string_view piece) { s.regex->find_all(piece, scratch_, found_); });
        rewrite([](std::string_view piece, std::size_t, std::string& out) {
            byte_alphabet::append_mapped(out, piece);
        });
    }

    void operator()(const MetaspaceStep& s) {
        rewrite([&](std::string_view piece, std::size_t index, std::string& out) {
            bool wanted = s.prepend == MetaspaceStep::Prepend::always ||
                          (s.prepend == MetaspaceStep::Prepend::first && index == 0 && pieces_.at_text_start);
            if (wanted && !piece.starts_with(' ') && !piece.starts_with(s.replacement)) out += s.replacement;
            for (char c : piece) {
                if (c == ' ') {
                    out += s.replacement;
                } else {
                    out += c;
                }
            }
        });
        if (s.split)
            split(SplitBehavior::merged_with_next, false,
                  [&](std::string_view piece) { find_literal(piece, s.replacement, found_); });
    }

  private:
    // `edit(piece, index, out)` appends the new text of each piece.
    template <typename Edit>
    void rewrite(const Edit& edit) {
        std::string text;
        text.reserve(pieces_.text.size() + pieces_.text.size() / 4);
        std::uint32_t begin = 0;
        for (std::size_t i = 0; i < pieces_.ends.size(); ++i) {
            std::uint32_t end = pieces_.ends[i];
            edit(std::string_view(pieces_.text).substr(begin, end - begin), i, text);
            pieces_.ends[i] = static_cast<std::uint32_t>(text.size());
            begin = end;
        }
        pieces_.text = std::move(text);
    }

    // `find(piece)` appends the matches in the piece to found_.
    template <typename Find>
    void split(SplitBehavior behavior, bool invert, const Find& find) {
        bool simple = behavior == SplitBehavior::isolated;
        bool removes = behavior == SplitBehavior::removed;
        std::vector<std::uint32_t> ends;
        ends.reserve(pieces_.ends.size());
        std::string kept;  // the text, where stretches are removed
        std::uint32_t begin = 0;
        for (std::uint32_t end : pieces_.ends) {
            std::string_view piece = std::string_view(pieces_.text).substr(begin, end - begin);
            found_.clear();
            find(piece);
            if (simple) {
                auto cut = [&](std::uint32_t at) {
                    if (begin + at > (ends.empty() ? 0 : ends.back())) ends.push_back(begin + at);
                };
                for (TextSpan m : found_) cut(m.begin), cut(m.end);
                cut(end - begin);
            } else {
                stretches_.clear();
                std::uint32_t from = 0;
                for (TextSpan m : found_) {
                    if (m.begin > from) stretches_.push_back({from, m.begin, invert});
                    stretches_.push_back({m.begin, m.end, !invert});
                    from = m.end;
                }
                if (from < piece.size())
                    stretches_.push_back({from, static_cast<std::uint32_t>(piece.size()), invert});
                fold(stretches_, behavior, folded_);
                for (Stretch s : folded_) {
                    if (s.begin == s.end || (removes && s.match)) continue;
                    if (removes) kept += piece.substr(s.begin, s.end - s.begin);
                    ends.push_back(removes ? static_cast<std::uint32_t>(kept.size()) : begin + s.end);
                }
            }
            begin = end;
        }
        pieces_.ends = std::move(ends);
        if (removes) pieces_.text = std::move(kept);
    }

    Pieces& pieces_;
    RegexScratch& scratch_;
    std::vector<TextSpan> found_;
    std::vector<Stretch> stretches_, folded_;
};

}  // namespace

void PreTokenizer::apply(Pieces& pieces, RegexScratch& scratch) const {
    Stepper stepper(pieces, scratch);
    for (const Step& step : steps_) std::visit(stepper, step);
}

}  // namespace forge
