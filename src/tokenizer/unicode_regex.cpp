#include "unicode_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "unicode.h"

namespace forge {
namespace {

constexpr std::size_t kJitStackStart = 64 << 10, kJitStackMax = 64 << 20;
constexpr std::uint32_t kHeapLimitKiB = 256 << 10;  // of the interpreter's backtracking frames

std::string message_of(int error) {
    PCRE2_UCHAR buffer[160];
    pcre2_get_error_message(error, buffer, sizeof buffer);
    return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct RegexScratch::Impl {
    pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
    pcre2_match_context* context = pcre2_match_context_create(nullptr);
    pcre2_jit_stack* stack = nullptr;
    std::vector<std::uint8_t> atoms;

    Impl() {
        if (!match || !context) throw std::bad_alloc();
        pcre2_set_heap_limit(context, kHeapLimitKiB);
    }
    ~Impl() {
        pcre2_match_data_free(match);
        pcre2_match_context_free(context);
        if (stack) pcre2_jit_stack_free(stack);
    }
    // The 32 KiB that JIT code takes from the machine stack are enough for all
    // known patterns; a larger one is made when a pattern asks for it.
    bool grow_stack() {
        if (stack) return false;
        stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr);
        if (!stack) return false;
        pcre2_jit_stack_assign(context, nullptr, stack);
        return true;
    }
};

RegexScratch::RegexScratch() = default;
RegexScratch::~RegexScratch() = default;

struct Regex::Code {
    pcre2_code* code = nullptr;
    bool jit = false;
    ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string_view where)
    : where_(where), pattern_(translate_pattern(pattern, where)), code_(std::make_unique<Code>()) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern_.pcre.data()), pattern_.pcre.size(),
                                PCRE2_NEVER_UTF | PCRE2_NO_AUTO_CAPTURE | PCRE2_DOLLAR_ENDONLY, &error,
                                &offset, nullptr);
    if (!code_->code)
        fail(ErrorKind::unsupported, "{}: the pattern does not compile: {}.", where_, message_of(error));
    code_->jit = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;

void Regex::find_all(std::string_view text, RegexScratch& scratch, std::vector<TextSpan>& matches) const {
    if (!scratch.impl_) scratch.impl_ = std::make_unique<RegexScratch::Impl>();
    RegexScratch::Impl& s = *scratch.impl_;

    s.atoms.resize(text.size());
    std::size_t count = 0;
    for (std::size_t i = 0; i < text.size(); ++count) {
        std::uint32_t length;
        s.atoms[count] = pattern_.atoms[unicode::decode_valid(text, i, length)];
        i += length;
    }
    // Known patterns backtrack at most once over the run they then consume.
    std::uint64_t limit = 1'000'000 + 64 * static_cast<std::uint64_t>(count);
    pcre2_set_match_limit(s.context, static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, 0x7FFFFFFF)));

    auto search = [&](std::size_t from) {
        auto run = [&](bool jit, std::uint32_t options) {
            return jit ? pcre2_jit_match(code_->code, s.atoms.data(), count, from, options, s.match,
                                         s.context)
                       : pcre2_match(code_->code, s.atoms.data(), count, from, options, s.match, s.context);
        };
        int rc = run(code_->jit, 0);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT && s.grow_stack()) rc = run(true, 0);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = run(false, PCRE2_NO_JIT);
        return rc;
    };

    // Cursor that turns atom positions, which only grow, into byte positions.
    std::size_t atom = 0, byte = 0;
    bool ascii = count == text.size();
    auto byte_of = [&](std::size_t position) {
        if (ascii) return static_cast<std::uint32_t>(position);
        for (; atom < position; ++atom) byte += unicode::sequence_length(text[byte]);
        return static_cast<std::uint32_t>(byte);
    };

    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(s.match);
    std::size_t from = 0, last_end = static_cast<std::size_t>(-1);
    while (from <= count) {
        int rc = search(from);
        if (rc == PCRE2_ERROR_NOMATCH) return;
        if (rc < 0)
            fail("{}: the pattern could not be matched against {} characters of text: {}.", where_, count,
                 message_of(rc));
        std::size_t begin = found[0], end = found[1];
        if (end < begin || (begin == end && begin == last_end)) {
            ++from;
            continue;
        }
        std::uint32_t first = byte_of(begin);
        matches.push_back({first, byte_of(end)});
        from = last_end = end;
    }
}

}  // namespace forge
