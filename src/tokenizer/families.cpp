#include "families.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/error.h"
#include "base/log.h"

namespace forge {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeekWords =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

std::shared_ptr<const Regex> regex(std::string_view pattern) {
    return std::make_shared<Regex>(pattern, "Forge's own tokenizer patterns");
}

// Isolated splits in this order, then the byte alphabet.
void add_splits(PreTokenizer& out, std::initializer_list<std::string_view> patterns) {
    for (std::string_view p : patterns) out.add(SplitStep{"", regex(p), SplitBehavior::isolated, false});
    out.add(ByteLevelStep{false, nullptr});
}

template <std::size_t N>
bool one_of(std::string_view name, const std::array<std::string_view, N>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 3> kNamesQwen2 = {"qwen2", "deepseek-r1-qwen", "megrez"};
constexpr std::array<std::string_view, 8> kNamesLlama3 = {"llama-bpe", "llama3",  "llama-v3", "falcon3",
                                                          "falcon-h1", "pixtral", "midm-2.0", "lfm2"};
constexpr std::array<std::string_view, 3> kNamesDigits = {"smollm", "starcoder", "refact"};
constexpr std::array<std::string_view, 4> kNamesGpt2 = {"gpt-2", "phi-2", "mpt", "olmo"};
constexpr std::array<std::string_view, 2> kNamesO200k = {"gpt-4o", "llama4"};

}  // namespace

TokenizerFamily family_by_name(std::string_view pre, std::string_view source) {
    TokenizerFamily f;
    if (one_of(pre, kNamesQwen2)) {
        f.nfc = true;
        add_splits(f.pre_tokenizer, {kQwen2});
    } else if (pre == "qwen35") {
        f.nfc = true;
        add_splits(f.pre_tokenizer, {kQwen35});
    } else if (one_of(pre, kNamesLlama3)) {
        f.ignore_merges = f.adds_bos = true;
        add_splits(f.pre_tokenizer, {kLlama3});
    } else if (one_of(pre, kNamesDigits)) {
        f.pre_tokenizer.add(DigitsStep{true});
        add_splits(f.pre_tokenizer, {kGpt2Pattern});
    } else if (one_of(pre, kNamesGpt2)) {
        add_splits(f.pre_tokenizer, {kGpt2Pattern});
    } else if (one_of(pre, kNamesO200k)) {
        add_splits(f.pre_tokenizer, {kO200k});
    } else if (pre == "tekken") {
        f.ignore_merges = f.adds_bos = true;
        add_splits(f.pre_tokenizer, {kTekken});
    } else if (pre == "deepseek-v3") {
        add_splits(
            f.pre_tokenizer,
            {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)", kDeepSeekWords});
    } else if (pre == "deepseek-coder") {
        add_splits(f.pre_tokenizer,
                   {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                    R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", R"(\p{N})"});
    } else if (pre.empty() || pre == "default") {
        log_warn(
            "{} does not name its pre-tokenizer: the text may be split differently than the model was "
            "trained on.",
            source);
        add_splits(f.pre_tokenizer,
                   {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"});
    } else {
        fail(ErrorKind::unsupported,
             "{}: the pre-tokenizer \"{}\" (tokenizer.ggml.pre) is not implemented. Implemented are qwen2, "
             "qwen35, "
             "llama-bpe, smollm, starcoder, gpt-2, tekken, gpt-4o, deepseek-v3, deepseek-coder and their "
             "aliases.",
             source, pre);
    }
    return f;
}

}  // namespace forge
