// tokenizer.json with tokenizer_config.json.
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "bpe_model.h"
#include "json_components.h"
#include "json_reader.h"
#include "load_config.h"
#include "pipeline.h"
#include "unicode.h"

namespace forge {
namespace {

std::int32_t checked_id(const Json& value, std::string_view what, std::string_view where) {
    if (!value.is_number_integer() || (value.is_number_integer() && !value.is_number_unsigned()))
        fail("{}: the id of {} is not a whole number from 0 on.", where, what);
    auto id = value.get<std::uint64_t>();
    if (id > static_cast<std::uint64_t>(TokenTable::kMaxId))
        fail("{}: the id {} of {} is above the largest that is accepted, {}.", where, id, what,
             TokenTable::kMaxId);
    return static_cast<std::int32_t>(id);
}

// The merges of a file, kept apart because they may come before the vocabulary.
class MergeList {
  public:
    void add(const Json& entry, std::string_view where) {
        std::string_view left, right;
        if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
            left = entry[0].get_ref<const std::string&>();
            right = entry[1].get_ref<const std::string&>();
        } else if (entry.is_string()) {
            std::string_view line = entry.get_ref<const std::string&>();
            if (line.starts_with("#version")) return;
            std::size_t space = line.find(' ');
            if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
                fail("{}: merge {} (\"{}\") is not two tokens with one space between.", where,
                     entries_.size(), line);
            left = line.substr(0, space), right = line.substr(space + 1);
        } else {
            fail("{}: merge {} is neither a string nor a pair of strings.", where, entries_.size());
        }
        entries_.push_back({text_.size(), static_cast<std::uint32_t>(left.size()),
                            static_cast<std::uint32_t>(right.size())});
        text_ += left;
        text_ += right;
    }
    void apply(BpeModel& model) const {
        model.reserve_merges(entries_.size());
        std::string_view all = text_;
        for (const Entry& e : entries_)
            model.add_merge(all.substr(e.begin, e.left), all.substr(e.begin + e.left, e.right));
    }

  private:
    struct Entry {
        std::size_t begin;
        std::uint32_t left, right;
    };
    std::string text_;
    std::vector<Entry> entries_;
};

AddedToken parse_added_token(const Json& json, std::int32_t id, const std::string& where) {
    AddedToken t;
    t.id = id;
    t.content = json_string(json, "content", "", where);
    t.special = json_bool(json, "special", false, where);
    t.single_word = json_bool(json, "single_word", false, where);
    t.lstrip = json_bool(json, "lstrip", false, where);
    t.rstrip = json_bool(json, "rstrip", false, where);
    t.normalized = json_bool(json, "normalized", !t.special, where);
    return t;
}

class Loader {
  public:
    Loader(std::string source) : impl_(std::make_unique<Tokenizer::Impl>()), where_(std::move(source)) {
        impl_->source = where_;
    }

    std::shared_ptr<const Tokenizer> load(std::string_view json, std::string_view config_json) {
        JsonStreams streams;
        streams.at["model/vocab"] = [&](const std::string& token, const Json& value) {
            if (token.empty() && !value.is_number()) return;  // a list: another model type, refused below
            std::int32_t id = checked_id(value, "token \"" + token + "\"", where_);
            vocab_ids_.add(token, id);
            impl_->vocabulary.set(id, token, TokenKind::normal);
        };
        streams.at["model/merges"] = [&](const std::string&, const Json& value) {
            merges_.add(value, where_);
        };
        Json root = read_json(json, where_, streams);
        if (!root.is_object())
            fail("{}: a tokenizer.json holds an object, found {}.", where_, root.type_name());

        model_kinds(json_member(root, "model"));
        added_tokens(json_member(root, "added_tokens"));
        impl_->normalizer = parse_normalizer(json_member(root, "normalizer"), where_ + ": normalizer");
        impl_->pre_tokenizer =
            parse_pre_tokenizer(json_member(root, "pre_tokenizer"), where_ + ": pre_tokenizer");
        Surroundings around =
            parse_post_processor(json_member(root, "post_processor"), where_ + ": post_processor");
        impl_->decoder = parse_decoder(json_member(root, "decoder"), where_ + ": decoder");
        impl_->prefix = around.prefix, impl_->suffix = around.suffix;
        if (!config_json.empty()) apply_tokenizer_config(*impl_, config_json, where_);
        if (!impl_->bos && impl_->prefix.size() == 1) impl_->bos = impl_->prefix.front();
        for (std::int32_t id : impl_->prefix) check_present(id);
        for (std::int32_t id : impl_->suffix) check_present(id);
        model(json_member(root, "model"));
        impl_->finish();
        return make_tokenizer(std::move(impl_));
    }

  private:
    void check_present(std::int32_t id) const {
        if (!impl_->vocabulary.has(id))
            fail("{}: the post-processor adds the id {}, which no token has.", where_, id);
    }

    // Refuses other models; finds the unknown token and the byte tokens.
    void model_kinds(const Json& m) {
        if (!m.is_object()) fail("{}: \"model\" is missing.", where_);
        std::string type = json_string(m, "type", m.contains("merges") ? "BPE" : "", where_ + ": model");
        if (type != "BPE")
            fail(ErrorKind::unsupported, "{}: the model type \"{}\" is not implemented; implemented is BPE.",
                 where_, type);
        std::string unknown = json_string(m, "unk_token", "", where_);
        if (!unknown.empty()) {
            std::int32_t id = vocab_ids_.find(unknown);
            if (id < 0) fail("{}: the unk_token \"{}\" is not in the vocabulary.", where_, unknown);
            options_.unknown = impl_->unk = id;
        }
        options_.fuse_unknown = json_bool(m, "fuse_unk", false, where_);
        options_.byte_fallback = json_bool(m, "byte_fallback", false, where_);
        options_.ignore_merges = json_bool(m, "ignore_merges", false, where_);
        if (options_.byte_fallback) {
            for (unsigned b = 0; b < 256; ++b) {
                std::string text = byte_token_text(static_cast<std::uint8_t>(b));
                std::int32_t id = vocab_ids_.find(text);
                if (id >= 0) impl_->vocabulary.set(id, text, TokenKind::byte);
            }
        }
    }

    void added_tokens(const Json& list) {
        if (list.is_null()) return;
        std::string where = where_ + ": added_tokens";
        if (!list.is_array()) fail("{} must be a list.", where);
        for (const Json& entry : list) {
            if (!entry.is_object()) fail("{}: an entry is not an object.", where);
            std::int32_t id = checked_id(json_member(entry, "id"), "an added token", where);
            add_token(*impl_, parse_added_token(entry, id, where), where);
        }
        if (impl_->unk)
            impl_->vocabulary.set(*impl_->unk, std::string(impl_->vocabulary.text(*impl_->unk)),
                                  TokenKind::unknown);
    }

    void model(const Json& m) {
        std::string where = where_ + ": model";
        for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
            if (!json_string(m, key, "", where).empty())
                fail(ErrorKind::unsupported, "{}: the option \"{}\" is not implemented.", where, key);
        const Json& dropout = json_member(m, "dropout");
        if (!dropout.is_null() && !(dropout.is_number() && dropout.get<double>() == 0.0))
            fail(ErrorKind::unsupported, "{}: the option \"dropout\" is not implemented.", where);
        auto bpe = std::make_unique<BpeModel>(std::move(vocab_ids_), options_, where);
        merges_.apply(*bpe);
        bpe->finish();
        impl_->model = std::move(bpe);
    }

    std::unique_ptr<Tokenizer::Impl> impl_;
    std::string where_;
    StringIds vocab_ids_;
    MergeList merges_;
    BpeOptions options_;
};

}  // namespace

void add_token(Tokenizer::Impl& impl, AddedToken token, const std::string& where) {
    if (!unicode::is_valid(token.content)) fail("{}: the token {} is not valid UTF-8.", where, token.id);
    const AddedToken* same_id = impl.added.find(token.id);
    if (same_id && same_id->content != token.content)
        fail("{}: the id {} is given to both \"{}\" and \"{}\".", where, token.id, same_id->content,
             token.content);
    const AddedToken* same_content = impl.added.find(token.content);
    if (same_content && same_content->id != token.id)
        fail("{}: the token \"{}\" has both the id {} and the id {}.", where, token.content, same_content->id,
             token.id);
    impl.vocabulary.set(token.id, token.content,
                        token.special ? TokenKind::control : TokenKind::user_defined);
    impl.added.add(std::move(token));
}

void apply_tokenizer_config(Tokenizer::Impl& impl, std::string_view config_json, const std::string& source) {
    std::string where = source + " (tokenizer_config.json)";
    Json config = read_json(config_json, where);
    if (!config.is_object()) fail("{} must hold an object, found {}.", where, config.type_name());

    const Json& extra = json_member(config, "added_tokens_decoder");
    if (extra.is_object()) {
        for (const auto& [key, entry] : extra.items()) {
            std::int64_t id = 0;
            bool number = !key.empty() && key.size() <= 9;
            for (char c : key) number = number && c >= '0' && c <= '9', id = id * 10 + (c - '0');
            if (!number || id > TokenTable::kMaxId || !entry.is_object())
                fail("{}: added_tokens_decoder: \"{}\" is not a token id with an object.", where, key);
            add_token(impl, parse_added_token(entry, static_cast<std::int32_t>(id), where), where);
        }
        if (impl.unk)
            impl.vocabulary.set(*impl.unk, std::string(impl.vocabulary.text(*impl.unk)), TokenKind::unknown);
    }

    auto named = [&](const char* key) -> std::optional<std::int32_t> {
        const Json& v = json_member(config, key);
        std::string text =
            v.is_object() ? json_string(v, "content", "", where) : json_string(config, key, "", where);
        if (text.empty()) return std::nullopt;
        if (const AddedToken* t = impl.added.find(text)) return t->id;
        for (std::int32_t id = 0; id < impl.vocabulary.size(); ++id)
            if (impl.vocabulary.has(id) && impl.vocabulary.text(id) == text) return id;
        log_warn("{}: {} is \"{}\", which is no token.", where, key, text);
        return std::nullopt;
    };
    if (auto id = named("bos_token")) impl.bos = id;
    if (auto id = named("eos_token")) impl.eos = id;
    if (auto id = named("pad_token")) impl.pad = id;
    if (auto id = named("unk_token"); id && !impl.unk) impl.unk = id;

    // Said outright, these replace the post-processor's template.
    bool says_bos = json_member(config, "add_bos_token").is_boolean();
    bool says_eos = json_member(config, "add_eos_token").is_boolean();
    if (says_bos || says_eos) {
        impl.prefix.clear(), impl.suffix.clear();
        if (json_bool(config, "add_bos_token", false, where) && impl.bos) impl.prefix = {*impl.bos};
        if (json_bool(config, "add_eos_token", false, where) && impl.eos) impl.suffix = {*impl.eos};
    }
}

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json,
                                                      std::string_view tokenizer_config_json,
                                                      std::string source) {
    return Loader(std::move(source)).load(tokenizer_json, tokenizer_config_json);
}

}  // namespace forge
