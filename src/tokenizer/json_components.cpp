#include "json_components.h"

#include "base/error.h"
#include "families.h"
#include "unicode.h"

namespace forge {
namespace {

constexpr std::size_t kMaxSteps = 64;

std::string type_of(const Json& json, const std::string& where) {
    if (!json.is_object()) fail("{} must be an object with a \"type\", found {}.", where, json.type_name());
    std::string type = json_string(json, "type", "", where);
    if (type.empty()) fail("{} has no \"type\".", where);
    return type;
}

[[noreturn]] void refuse(const std::string& where, const std::string& type, std::string_view implemented) {
    fail(ErrorKind::unsupported, "{}: the component \"{}\" is not implemented; implemented are {}.", where,
         type, implemented);
}

// Calls visit(component, where) for the component, or for each one of a Sequence.
template <typename Visit>
void for_each_component(const Json& json, const char* members, const std::string& where, std::size_t& steps,
                        const Visit& visit) {
    if (++steps > kMaxSteps) fail("{} has more than {} components.", where, kMaxSteps);
    std::string type = type_of(json, where);
    if (type != "Sequence") return visit(json, type, where + "/" + type);
    const Json& list = json_member(json, members);
    if (!list.is_array()) fail("{}: a Sequence needs the list \"{}\".", where, members);
    std::size_t i = 0;
    for (const Json& member : list)
        for_each_component(member, members, fmt::format("{}[{}]", where, i++), steps, visit);
}

struct Pattern {
    std::string literal;
    std::shared_ptr<const Regex> regex;
};
Pattern parse_pattern(const Json& component, const std::string& where) {
    const Json& pattern = json_member(component, "pattern");
    Pattern out;
    if (pattern.is_object() && pattern.contains("String")) {
        out.literal = json_string(pattern, "String", "", where);
    } else if (pattern.is_object() && pattern.contains("Regex")) {
        out.regex = std::make_shared<Regex>(json_string(pattern, "Regex", "", where), where);
        return out;
    } else {
        fail("{}: \"pattern\" must be {{\"String\": ...}} or {{\"Regex\": ...}}.", where);
    }
    if (out.literal.empty()) fail("{}: the pattern is empty.", where);
    return out;
}

SplitBehavior parse_behavior(const std::string& name, const std::string& where) {
    if (name == "Removed") return SplitBehavior::removed;
    if (name == "Isolated") return SplitBehavior::isolated;
    if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
    if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
    if (name == "Contiguous") return SplitBehavior::contiguous;
    fail(ErrorKind::unsupported, "{}: the behavior \"{}\" is not implemented.", where, name);
}

std::string one_character(const Json& component, const char* key, const std::string& where) {
    std::string text = json_string(component, key, "", where);
    unicode::Decoded d;
    if (!text.empty()) d = unicode::decode(text, 0);
    if (!d.valid || d.length != text.size())
        fail("{}: \"{}\" must be one character, found \"{}\".", where, key, text);
    return text;
}

MetaspaceStep::Prepend parse_prepend_scheme(const Json& component, const std::string& where) {
    std::string scheme = json_string(component, "prepend_scheme", "", where);
    if (scheme.empty()) scheme = json_bool(component, "add_prefix_space", true, where) ? "always" : "never";
    if (scheme == "always") return MetaspaceStep::Prepend::always;
    if (scheme == "first") return MetaspaceStep::Prepend::first;
    if (scheme == "never") return MetaspaceStep::Prepend::never;
    fail(ErrorKind::unsupported, "{}: the prepend_scheme \"{}\" is not implemented.", where, scheme);
}

std::size_t parse_count(const Json& component, const char* key, const std::string& where) {
    const Json& v = json_member(component, key);
    if (!v.is_number_unsigned() || v.get<std::uint64_t>() > 1000000)
        fail("{}: \"{}\" must be a count up to 1000000.", where, key);
    return v.get<std::size_t>();
}

}  // namespace

Normalizer parse_normalizer(const Json& json, const std::string& where) {
    Normalizer out;
    if (json.is_null()) return out;
    std::size_t steps = 0;
    for_each_component(json, "normalizers", where, steps,
                       [&](const Json& c, const std::string& type, const std::string& place) {
                           if (type == "NFC") {
                               out.add(NfcStep{});
                           } else if (type == "Prepend") {
                               out.add(PrependStep{json_string(c, "prepend", "", place)});
                           } else if (type == "Replace") {
                               Pattern p = parse_pattern(c, place);
                               out.add(ReplaceStep{p.literal, p.regex, json_string(c, "content", "", place)});
                           } else {
                               refuse(place, type, "NFC, Prepend, Replace and Sequence");
                           }
                       });
    return out;
}

PreTokenizer parse_pre_tokenizer(const Json& json, const std::string& where) {
    PreTokenizer out;
    if (json.is_null()) return out;
    std::size_t steps = 0;
    for_each_component(
        json, "pretokenizers", where, steps,
        [&](const Json& c, const std::string& type, const std::string& place) {
            if (type == "Split") {
                Pattern p = parse_pattern(c, place);
                out.add(SplitStep{p.literal, p.regex,
                                  parse_behavior(json_string(c, "behavior", "", place), place),
                                  json_bool(c, "invert", false, place)});
            } else if (type == "ByteLevel") {
                std::shared_ptr<const Regex> regex;
                if (json_bool(c, "use_regex", true, place))
                    regex = std::make_shared<Regex>(kGpt2Pattern, place);
                out.add(ByteLevelStep{json_bool(c, "add_prefix_space", true, place), regex});
            } else if (type == "Digits") {
                out.add(DigitsStep{json_bool(c, "individual_digits", false, place)});
            } else if (type == "Metaspace") {
                out.add(MetaspaceStep{one_character(c, "replacement", place), parse_prepend_scheme(c, place),
                                      json_bool(c, "split", true, place)});
            } else {
                refuse(place, type, "Split, ByteLevel, Digits, Metaspace and Sequence");
            }
        });
    return out;
}

Surroundings parse_post_processor(const Json& json, const std::string& where) {
    Surroundings out;
    if (json.is_null()) return out;
    std::size_t steps = 0;
    for_each_component(
        json, "processors", where, steps,
        [&](const Json& c, const std::string& type, const std::string& place) {
            if (type == "ByteLevel") return;  // moves offsets only
            if (type != "TemplateProcessing")
                refuse(place, type, "ByteLevel, TemplateProcessing and Sequence");
            const Json& single = json_member(c, "single");
            if (!single.is_array()) fail("{}: \"single\" must be a list of parts.", place);
            const Json& specials = json_member(c, "special_tokens");
            Surroundings added;
            bool after = false;
            for (const Json& part : single) {
                if (part.is_object() && part.contains("Sequence")) {
                    std::string id = json_string(part["Sequence"], "id", "", place);
                    if (after || id != "A") fail("{}: \"single\" must hold the sequence A once.", place);
                    after = true;
                } else if (part.is_object() && part.contains("SpecialToken")) {
                    std::string name = json_string(part["SpecialToken"], "id", "", place);
                    const Json& ids = json_member(json_member(specials, name.c_str()), "ids");
                    if (!ids.is_array())
                        fail("{}: the ids of the special token \"{}\" are missing.", place, name);
                    for (const Json& id : ids) {
                        if (!id.is_number_unsigned() ||
                            id.get<std::uint64_t>() > static_cast<std::uint64_t>(TokenTable::kMaxId))
                            fail("{}: an id of the special token \"{}\" is not a token id.", place, name);
                        (after ? added.suffix : added.prefix).push_back(id.get<std::int32_t>());
                    }
                } else {
                    fail("{}: a part of \"single\" is neither a Sequence nor a SpecialToken.", place);
                }
            }
            if (!after) fail("{}: \"single\" does not hold the sequence A.", place);
            out.prefix.insert(out.prefix.begin(), added.prefix.begin(), added.prefix.end());
            out.suffix.insert(out.suffix.end(), added.suffix.begin(), added.suffix.end());
        });
    return out;
}

Decoder parse_decoder(const Json& json, const std::string& where) {
    if (json.is_null())
        fail(ErrorKind::unsupported, "{}: a tokenizer without a decoder is not implemented.", where);
    Decoder out;
    std::vector<std::string> seen;
    bool fused = false;
    std::size_t steps = 0;
    for_each_component(
        json, "decoders", where, steps,
        [&](const Json& c, const std::string& type, const std::string& place) {
            auto out_of_order = [&](bool wrong) {
                if (wrong)
                    fail(ErrorKind::unsupported, "{}: \"{}\" is not implemented at this place of the chain.",
                         place, type);
            };
            if (type == "ByteLevel") {
                out_of_order(!seen.empty());
                out.byte_level = true;
            } else if (type == "Replace") {
                out_of_order(fused || out.byte_level || out.byte_fallback || !out.strip.empty());
                Pattern p = parse_pattern(c, place);
                if (p.regex)
                    fail(ErrorKind::unsupported, "{}: a Regex pattern is not implemented here.", place);
                out.replacements.push_back({p.literal, json_string(c, "content", "", place)});
            } else if (type == "ByteFallback") {
                out_of_order(fused || out.byte_level || !out.strip.empty());
                out.byte_fallback = true;
            } else if (type == "Fuse") {
                out_of_order(out.byte_level);
                fused = true;
            } else if (type == "Strip") {
                std::size_t start = parse_count(c, "start", place), stop = parse_count(c, "stop", place);
                if (stop)
                    fail(ErrorKind::unsupported, "{}: \"stop\" other than 0 is not implemented.", place);
                if (start) {
                    out_of_order(!fused || !out.strip.empty());
                    out.strip = one_character(c, "content", place);
                    out.strip_count = start;
                }
            } else if (type == "Metaspace") {
                out_of_order(fused || out.byte_level || out.byte_fallback || !out.strip.empty());
                std::string replacement = one_character(c, "replacement", place);
                if (parse_prepend_scheme(c, place) != MetaspaceStep::Prepend::never) {
                    out_of_order(!seen.empty());
                    out.strip.assign(1, ' ');
                    out.strip_first_token = true;
                }
                out.replacements.push_back({replacement, " "});
            } else {
                refuse(place, type, "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace and Sequence");
            }
            seen.push_back(type);
        });
    return out;
}

}  // namespace forge
