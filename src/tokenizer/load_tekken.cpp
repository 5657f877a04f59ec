// Mistral's tekken.json: a rank file with a pattern.
#include <array>

#include "base/error.h"
#include "bpe_model.h"
#include "byte_alphabet.h"
#include "json_reader.h"
#include "pipeline.h"
#include "unicode.h"

namespace forge {
namespace {

// Files before version 7 do not list their special tokens.
constexpr std::array<std::string_view, 20> kSpecials = {"<unk>",
                                                        "<s>",
                                                        "</s>",
                                                        "[INST]",
                                                        "[/INST]",
                                                        "[AVAILABLE_TOOLS]",
                                                        "[/AVAILABLE_TOOLS]",
                                                        "[TOOL_RESULTS]",
                                                        "[/TOOL_RESULTS]",
                                                        "[TOOL_CALLS]",
                                                        "[IMG]",
                                                        "<pad>",
                                                        "[IMG_BREAK]",
                                                        "[IMG_END]",
                                                        "[PREFIX]",
                                                        "[MIDDLE]",
                                                        "[SUFFIX]",
                                                        "[SYSTEM_PROMPT]",
                                                        "[/SYSTEM_PROMPT]",
                                                        "[TOOL_CONTENT]"};

std::string decode_base64(const std::string& text, const std::string& where) {
    std::string out;
    std::uint32_t bits = 0;
    int have = 0;
    std::size_t end = text.size();
    while (end > 0 && text[end - 1] == '=') --end;
    for (std::size_t i = 0; i < end; ++i) {
        char c = text[i];
        int v = c >= 'A' && c <= 'Z'   ? c - 'A'
                : c >= 'a' && c <= 'z' ? c - 'a' + 26
                : c >= '0' && c <= '9' ? c - '0' + 52
                : c == '+'             ? 62
                : c == '/'             ? 63
                                       : -1;
        if (v < 0) fail("{}: token_bytes \"{}\" is not base64.", where, text);
        bits = (bits << 6 | static_cast<std::uint32_t>(v)) & 0xFFFFFF;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out.push_back(static_cast<char>(bits >> have & 0xFF));
        }
    }
    return out;
}

std::int64_t count_of(const Json& object, const char* key, const std::string& where) {
    const Json& v = json_member(object, key);
    if (!v.is_number_unsigned() || v.get<std::uint64_t>() > static_cast<std::uint64_t>(TokenTable::kMaxId))
        fail("{}: \"{}\" must be a count up to {}.", where, key, TokenTable::kMaxId);
    return v.get<std::int64_t>();
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_tekken(std::string_view tekken_json, std::string source) {
    auto impl = std::make_unique<Tokenizer::Impl>();
    impl->source = source;

    // Ranks come before the number of special tokens is known.
    std::vector<std::string> by_rank;
    JsonStreams streams;
    streams.at["vocab"] = [&](const std::string&, const Json& entry) {
        std::int64_t rank = count_of(entry, "rank", source + ": vocab");
        if (rank != static_cast<std::int64_t>(by_rank.size()))
            fail("{}: vocab: rank {} was expected, found {}.", source, by_rank.size(), rank);
        by_rank.push_back(decode_base64(json_string(entry, "token_bytes", "", source), source + ": vocab"));
    };
    Json root = read_json(tekken_json, source, streams);
    const Json& config = json_member(root, "config");
    if (!config.is_object() || by_rank.empty())
        fail("{}: a tekken.json needs \"config\" and \"vocab\".", source);
    std::int64_t size = count_of(config, "default_vocab_size", source + ": config");
    std::int64_t specials = count_of(config, "default_num_special_tokens", source + ": config");
    if (size <= specials || size - specials > static_cast<std::int64_t>(by_rank.size()))
        fail("{}: {} tokens of which {} are special were announced, the vocabulary has {}.", source, size,
             specials, by_rank.size());

    auto add_special = [&](std::int64_t id, std::string text, bool control) {
        AddedToken t;
        t.id = static_cast<std::int32_t>(id);
        t.content = std::move(text);
        t.special = control;
        if (impl->added.find(t.content))
            fail("{}: the special token \"{}\" is there twice.", source, t.content);
        impl->vocabulary.set(t.id, t.content, control ? TokenKind::control : TokenKind::user_defined);
        impl->added.add(std::move(t));
    };
    const Json& listed = json_member(root, "special_tokens");
    std::vector<bool> given(static_cast<std::size_t>(specials));
    auto claim = [&](std::int64_t id) {
        if (id >= specials || given[static_cast<std::size_t>(id)])
            fail("{}: the special token id {} is used twice or is not below {}.", source, id, specials);
        given[static_cast<std::size_t>(id)] = true;
    };
    if (listed.is_array()) {
        for (const Json& entry : listed) {
            std::int64_t id = count_of(entry, "rank", source + ": special_tokens");
            claim(id);
            add_special(id, json_string(entry, "token_str", "", source),
                        json_bool(entry, "is_control", true, source));
        }
    } else {
        for (std::size_t i = 0; i < kSpecials.size() && i < given.size(); ++i) {
            claim(static_cast<std::int64_t>(i));
            add_special(static_cast<std::int64_t>(i), std::string(kSpecials[i]), true);
        }
    }
    for (std::int64_t id = 0; id < specials; ++id)
        if (!given[static_cast<std::size_t>(id)]) add_special(id, fmt::format("<SPECIAL_{}>", id), true);

    StringIds ids;
    for (std::int64_t rank = 0; rank < size - specials; ++rank) {
        std::string mapped;
        byte_alphabet::append_mapped(mapped, by_rank[static_cast<std::size_t>(rank)]);
        auto id = static_cast<std::int32_t>(rank + specials);
        if (!ids.add(mapped, id)) fail("{}: the bytes of rank {} are there twice.", source, rank);
        impl->vocabulary.set(id, mapped, TokenKind::normal);
    }
    for (char32_t c : byte_alphabet::code_points()) {
        std::string text;
        unicode::append(text, c);
        if (ids.find(text) < 0)
            fail("{}: the vocabulary lacks the byte {:02x}.", source, byte_alphabet::byte_of(c));
    }

    std::string pattern = json_string(config, "pattern", "", source);
    if (pattern.empty()) fail("{}: config: \"pattern\" is missing.", source);
    impl->pre_tokenizer.add(SplitStep{"", std::make_shared<Regex>(pattern, source + ": config: pattern"),
                                      SplitBehavior::isolated, false});
    impl->pre_tokenizer.add(ByteLevelStep{false, nullptr});
    impl->model = std::make_unique<RankModel>(std::move(ids), true);
    impl->decoder.byte_level = impl->decoder.literal_added = true;

    auto named = [&](std::string_view text) -> std::optional<std::int32_t> {
        const AddedToken* t = impl->added.find(text);
        return t ? std::optional(t->id) : std::nullopt;
    };
    impl->bos = named("<s>"), impl->eos = named("</s>"), impl->unk = named("<unk>"),
    impl->pad = named("<pad>");
    if (impl->unk) impl->vocabulary.set(*impl->unk, "<unk>", TokenKind::unknown);
    if (impl->bos) impl->prefix = {*impl->bos};
    impl->finish();
    return make_tokenizer(std::move(impl));
}

}  // namespace forge
