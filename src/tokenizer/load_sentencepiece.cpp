// SentencePiece's own file (tokenizer.model), model type BPE.
#include <cmath>

#include "base/error.h"
#include "load_config.h"
#include "pipeline.h"
#include "protobuf.h"
#include "spm_model.h"
#include "unicode.h"

namespace forge {
namespace {

struct Piece {
    std::string text;
    float score = 0;
    std::uint64_t type = 1;
};
enum PieceType : std::uint64_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
};

struct ModelFile {
    std::vector<Piece> pieces;
    std::uint64_t model_type = 1;  // 1 unigram, 2 BPE, 3 word, 4 char
    bool suffix_space = false, byte_fallback = false;
    std::int64_t bos = 1, eos = 2, pad = -1;
    std::string normalizer_name;
    bool charsmap = false, dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;
};

Piece read_piece(std::string_view bytes, std::string_view where) {
    Piece p;
    for (ProtobufReader r(bytes, where); r.next();) {
        if (r.field() == 1) p.text = r.bytes();
        if (r.field() == 2) p.score = r.float32();
        if (r.field() == 3) p.type = r.number();
    }
    return p;
}

void read_trainer(std::string_view bytes, std::string_view where, ModelFile& m) {
    auto id = [](std::uint64_t v) { return static_cast<std::int64_t>(static_cast<std::int32_t>(v)); };
    for (ProtobufReader r(bytes, where); r.next();) {
        switch (r.field()) {
            case 3:
                m.model_type = r.number();
                break;
            case 24:
                m.suffix_space = r.number() != 0;
                break;
            case 35:
                m.byte_fallback = r.number() != 0;
                break;
            case 41:
                m.bos = id(r.number());
                break;
            case 42:
                m.eos = id(r.number());
                break;
            case 43:
                m.pad = id(r.number());
                break;
            default:
                break;
        }
    }
}

void read_normalizer(std::string_view bytes, std::string_view where, ModelFile& m) {
    for (ProtobufReader r(bytes, where); r.next();) {
        switch (r.field()) {
            case 1:
                m.normalizer_name = r.bytes();
                break;
            case 2:
                m.charsmap = !r.bytes().empty();
                break;
            case 3:
                m.dummy_prefix = r.number() != 0;
                break;
            case 4:
                m.remove_extra_spaces = r.number() != 0;
                break;
            case 5:
                m.escape_spaces = r.number() != 0;
                break;
            default:
                break;
        }
    }
}

ModelFile read_model(std::string_view bytes, const std::string& where) {
    ModelFile m;
    for (ProtobufReader r(bytes, where); r.next();) {
        if (r.field() == 1) {
            m.pieces.push_back(read_piece(r.bytes(), where));
            if (m.pieces.size() > static_cast<std::size_t>(TokenTable::kMaxId))
                fail("{}: the model has more than {} pieces.", where, TokenTable::kMaxId);
        }
        if (r.field() == 2) read_trainer(r.bytes(), where, m);
        if (r.field() == 3) read_normalizer(r.bytes(), where, m);
    }
    auto refuse = [&](std::string_view what) {
        fail(ErrorKind::unsupported, "{}: the SentencePiece model uses {}, which Forge does not implement.",
             where, what);
    };
    if (m.pieces.empty()) fail("{} holds no SentencePiece pieces.", where);
    if (m.model_type != 2)
        refuse(m.model_type == 1   ? "the model type UNIGRAM"
               : m.model_type == 3 ? "the model type WORD"
                                   : "the model type CHAR");
    if (m.charsmap) refuse(fmt::format("the normaliser \"{}\" (a character map)", m.normalizer_name));
    if (m.remove_extra_spaces) refuse("remove_extra_whitespaces");
    if (!m.escape_spaces) refuse("escape_whitespaces = false");
    if (m.suffix_space) refuse("treat_whitespace_as_suffix");
    return m;
}

TokenKind kind_of(const Piece& p, std::int32_t id, const std::string& where) {
    switch (p.type) {
        case kNormal:
            return TokenKind::normal;
        case kUnknown:
            return TokenKind::unknown;
        case kControl:
            return TokenKind::control;
        case kUserDefined:
            return TokenKind::user_defined;
        case kUnused:
            return TokenKind::unused;
        case kByte:
            return TokenKind::byte;
        default:
            fail("{}: the type of piece {} is {}; known are 1 to 6.", where, id, p.type);
    }
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_sentencepiece(std::span<const std::byte> model,
                                                               std::string_view tokenizer_config_json,
                                                               std::string source) {
    ModelFile file = read_model({reinterpret_cast<const char*>(model.data()), model.size()}, source);
    auto impl = std::make_unique<Tokenizer::Impl>();
    impl->source = source;

    StringIds ids;
    std::vector<float> scores;
    std::vector<std::int32_t> bytes(file.byte_fallback ? 256 : 0, -1);
    std::vector<bool> unused(file.pieces.size());
    for (std::size_t i = 0; i < file.pieces.size(); ++i) {
        const Piece& p = file.pieces[i];
        auto id = static_cast<std::int32_t>(i);
        TokenKind kind = kind_of(p, id, source);
        if (!unicode::is_valid(p.text)) fail("{}: piece {} is not valid UTF-8.", source, id);
        if (std::isnan(p.score)) fail("{}: the score of piece {} is not a number.", source, id);
        impl->vocabulary.set(id, p.text, kind);
        scores.push_back(p.score);
        unused[i] = kind == TokenKind::unused;
        if (kind == TokenKind::byte) {
            auto value = byte_token_value(p.text);
            if (value && file.byte_fallback) bytes[*value] = id;
        } else if (kind == TokenKind::normal || kind == TokenKind::user_defined ||
                   kind == TokenKind::unused) {
            ids.add(p.text, id);
        }
        if (kind == TokenKind::unknown && !impl->unk) impl->unk = id;
        if (kind == TokenKind::control || kind == TokenKind::unknown || kind == TokenKind::user_defined) {
            if (impl->added.find(p.text)) fail("{}: the piece \"{}\" is there twice.", source, p.text);
            AddedToken t;
            t.id = id;
            t.content = p.text;
            t.special = kind != TokenKind::user_defined;
            // User-defined pieces are looked for in the text as SentencePiece sees it, spaces as U+2581.
            t.normalized = t.verbatim = !t.special;
            impl->added.add(std::move(t));
        }
    }
    auto known = [&](std::int64_t id) -> std::optional<std::int32_t> {
        if (id < 0 || id >= impl->vocabulary.size()) return std::nullopt;
        return static_cast<std::int32_t>(id);
    };
    impl->bos = known(file.bos), impl->eos = known(file.eos), impl->pad = known(file.pad);
    if (impl->bos) impl->prefix = {*impl->bos};

    std::string space(kEscapedSpace);
    if (file.dummy_prefix) impl->normalizer.add(PrependStep{space});
    impl->normalizer.add(ReplaceStep{" ", nullptr, space});
    auto spm = std::make_unique<SpmModel>(std::move(ids), std::move(scores), std::move(bytes),
                                          std::move(unused), impl->unk);
    for (const Piece& p : file.pieces) spm->note_token(p.text);
    impl->model = std::move(spm);

    impl->decoder.byte_fallback = impl->decoder.literal_added = true;
    impl->decoder.replacements.push_back({space, " "});
    if (file.dummy_prefix) impl->decoder.strip.assign(1, ' '), impl->decoder.strip_count = 1;
    if (!tokenizer_config_json.empty()) apply_tokenizer_config(*impl, tokenizer_config_json, source);
    impl->finish();
    return make_tokenizer(std::move(impl));
}

}  // namespace forge
