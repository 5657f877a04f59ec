// The tokenizer inside a GGUF file: tokens, types, merges or scores, and names
// instead of descriptions for the rest.
#include <cmath>

#include "base/error.h"
#include "bpe_model.h"
#include "families.h"
#include "pipeline.h"
#include "spm_model.h"
#include "unicode.h"

namespace forge {
namespace {

class Loader {
  public:
    explicit Loader(const Metadata& m) : m_(m), where_(m.source.empty() ? "GGUF metadata" : m.source) {}

    std::shared_ptr<const Tokenizer> load() {
        impl_->source = where_;
        std::string model = m_.string("tokenizer.ggml.model");
        if (model != "gpt2" && model != "llama" && model != "gemma4")
            fail(ErrorKind::unsupported,
                 "{}: the tokenizer model \"{}\" is not implemented; implemented are gpt2, llama and gemma4.",
                 where_, model);
        tokens();
        bool spm = model == "llama";
        impl_->bos = id_key("bos_token_id", spm ? 1 : model == "gpt2" ? 11 : -1);
        impl_->eos = id_key("eos_token_id", spm ? 2 : model == "gpt2" ? 11 : -1);
        impl_->unk = id_key("unknown_token_id", spm ? 0 : -1);
        impl_->pad = id_key("padding_token_id", -1);
        added();
        bool adds_bos = false;
        if (model == "gpt2") {
            adds_bos = byte_level();
        } else if (spm) {
            sentencepiece();
            adds_bos = true;
        } else {
            gemma4();
        }
        adds_bos = m_.boolean("tokenizer.ggml.add_bos_token", adds_bos) || model == "gemma4";
        if (adds_bos && impl_->bos) impl_->prefix = {*impl_->bos};
        if (m_.boolean("tokenizer.ggml.add_eos_token", false) && impl_->eos) impl_->suffix = {*impl_->eos};
        std::vector<std::int32_t> also;
        for (const char* key : {"eot_token_id", "eom_token_id"})
            if (auto id = id_key(key, -1)) also.push_back(*id);
        impl_->finish(also);
        return make_tokenizer(std::move(impl_));
    }

  private:
    static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }
    std::int32_t count() const { return static_cast<std::int32_t>(tokens_->size()); }

    void tokens() {
        tokens_ = m_.strings("tokenizer.ggml.tokens");
        if (!tokens_ || tokens_->empty()) fail("{}: tokenizer.ggml.tokens is missing or empty.", where_);
        if (tokens_->size() > static_cast<std::size_t>(TokenTable::kMaxId) + 1)
            fail("{}: tokenizer.ggml.tokens has {} entries; at most {} are accepted.", where_,
                 tokens_->size(), TokenTable::kMaxId + 1);
        const std::vector<std::int64_t>* types = m_.integer_array("tokenizer.ggml.token_type");
        if (types && types->size() != tokens_->size())
            fail("{}: tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens has {}.", where_,
                 types->size(), tokens_->size());
        kinds_.assign(tokens_->size(), TokenKind::normal);
        for (std::int32_t id = 0; id < count(); ++id) {
            if (types) kinds_[index(id)] = kind_of((*types)[index(id)], id);
            impl_->vocabulary.set(id, (*tokens_)[index(id)], kinds_[index(id)]);
        }
    }

    TokenKind kind_of(std::int64_t type, std::int32_t id) const {
        switch (type) {
            case 0:
            case 1:
                return TokenKind::normal;
            case 2:
                return TokenKind::unknown;
            case 3:
                return TokenKind::control;
            case 4:
                return TokenKind::user_defined;
            case 5:
                return TokenKind::unused;
            case 6:
                return TokenKind::byte;
            default:
                fail("{}: the type of token {} is {}; known are 0 to 6.", where_, id, type);
        }
    }

    // An id from tokenizer.ggml.<name>, or `absent` (-1: none) where the key is missing.
    std::optional<std::int32_t> id_key(const char* name, std::int64_t absent) const {
        std::string key = std::string("tokenizer.ggml.") + name;
        bool given = m_.has(key);
        std::int64_t id = m_.integer(key, absent);
        if (id >= 0 && id < count()) return static_cast<std::int32_t>(id);
        // 2^32-1 is how writers say "none".
        if (given && id != -1 && id != 0xFFFFFFFFll)
            fail("{}: {} is {}, but there are {} tokens.", where_, key, id, tokens_->size());
        return std::nullopt;
    }

    void added() {
        for (std::int32_t id = 0; id < count(); ++id) {
            TokenKind kind = kinds_[index(id)];
            if (kind != TokenKind::control && kind != TokenKind::user_defined && kind != TokenKind::unknown)
                continue;
            AddedToken t;
            t.id = id;
            t.content = (*tokens_)[index(id)];
            t.special = kind != TokenKind::user_defined;
            if (!unicode::is_valid(t.content)) continue;  // no text can hold it
            if (impl_->added.find(t.content)) continue;   // a second token with the same text never matches
            impl_->added.add(std::move(t));
        }
    }

    // Texts of the tokens that the word model works with: ordinary ones first,
    // so that they win over special ones with the same text.
    StringIds model_ids(bool with_special) const {
        StringIds ids;
        auto add = [&](bool ordinary) {
            for (std::int32_t id = 0; id < count(); ++id) {
                TokenKind k = kinds_[index(id)];
                bool special =
                    k == TokenKind::control || k == TokenKind::unknown || k == TokenKind::user_defined;
                if (special != ordinary) ids.add((*tokens_)[index(id)], id);
            }
        };
        add(true);
        if (with_special) add(false);
        return ids;
    }

    std::unique_ptr<BpeModel> bpe(BpeOptions options) {
        const std::vector<std::string>* merges = m_.strings("tokenizer.ggml.merges");
        if (!merges) fail("{}: tokenizer.ggml.merges is missing.", where_);
        auto model = std::make_unique<BpeModel>(model_ids(true), options, where_ + ": tokenizer.ggml.merges");
        model->set_whole_words(options.ignore_merges ? model_ids(false) : StringIds());
        model->reserve_merges(merges->size());
        for (const std::string& line : *merges) {
            std::size_t space = line.find(' ', 1);
            if (line.empty() || space == std::string::npos)
                fail("{}: the merge \"{}\" is not two tokens with a space between.", where_, line);
            std::string_view text = line;
            model->add_merge(text.substr(0, space), text.substr(space + 1));
        }
        model->finish();
        return model;
    }

    bool byte_level() {
        TokenizerFamily family = family_by_name(m_.string("tokenizer.ggml.pre", ""), where_);
        if (m_.boolean("tokenizer.ggml.add_space_prefix", false))
            fail(ErrorKind::unsupported,
                 "{}: tokenizer.ggml.add_space_prefix with model gpt2 is not implemented.", where_);
        if (family.nfc) impl_->normalizer.add(NfcStep{});
        impl_->pre_tokenizer = std::move(family.pre_tokenizer);
        BpeOptions options;
        options.ignore_merges = family.ignore_merges;
        impl_->model = bpe(options);
        impl_->decoder.byte_level = impl_->decoder.literal_added = true;
        return family.adds_bos;
    }

    void gemma4() {
        impl_->unescape_first = true;
        impl_->normalizer.add(ReplaceStep{" ", nullptr, std::string(kEscapedSpace)});
        BpeOptions options;
        options.byte_fallback = true;
        options.fuse_unknown = true;
        options.unknown = impl_->unk;
        impl_->model = bpe(options);
        escaped_decoder(false);
    }

    void sentencepiece() {
        bool prefix = m_.boolean("tokenizer.ggml.add_space_prefix", true);
        impl_->unescape_first = true;
        if (prefix) impl_->normalizer.add(PrependStep{std::string(kEscapedSpace)});
        impl_->normalizer.add(ReplaceStep{" ", nullptr, std::string(kEscapedSpace)});

        const std::vector<double>* scores = m_.number_array("tokenizer.ggml.scores");
        if (!scores || scores->size() != tokens_->size())
            fail("{}: tokenizer.ggml.scores has {} entries, tokenizer.ggml.tokens has {}.", where_,
                 scores ? scores->size() : 0, tokens_->size());
        std::vector<float> values;
        StringIds ids;
        std::vector<std::int32_t> bytes(256, -1);
        std::vector<bool> unused(tokens_->size());
        for (std::int32_t id = 0; id < count(); ++id) {
            values.push_back(static_cast<float>((*scores)[index(id)]));
            if (std::isnan(values.back())) fail("{}: the score of token {} is not a number.", where_, id);
            TokenKind k = kinds_[index(id)];
            const std::string& text = (*tokens_)[index(id)];
            if (k == TokenKind::byte) {
                if (auto value = byte_token_value(text)) bytes[*value] = id;
            } else if (k == TokenKind::normal || k == TokenKind::user_defined || k == TokenKind::unused) {
                ids.add(text, id);
                unused[index(id)] = k == TokenKind::unused;
            }
        }
        auto model = std::make_unique<SpmModel>(std::move(ids), std::move(values), std::move(bytes),
                                                std::move(unused), impl_->unk);
        for (std::int32_t id = 0; id < count(); ++id) model->note_token((*tokens_)[index(id)]);
        impl_->model = std::move(model);
        escaped_decoder(prefix);
    }

    void escaped_decoder(bool strip) {
        Decoder& d = impl_->decoder;
        d.literal_added = d.byte_fallback = true;
        d.replacements.push_back({std::string(kEscapedSpace), " "});
        if (strip) d.strip.assign(1, ' '), d.strip_count = 1;
    }

    const Metadata& m_;
    std::string where_;
    std::unique_ptr<Tokenizer::Impl> impl_ = std::make_unique<Tokenizer::Impl>();
    const std::vector<std::string>* tokens_ = nullptr;
    std::vector<TokenKind> kinds_;
};

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_gguf(const Metadata& metadata) {
    return Loader(metadata).load();
}

}  // namespace forge
