// The engine with its tokenizer and chat template: text and messages in, text out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "api/constraint.h"
#include "api/model_text.h"
#include "runtime/engine.h"
#include "runtime/session.h"
#include "tokenizer/tokenizer.h"

namespace forge {

class TextModel {
  public:
    static std::shared_ptr<const TextModel> load(const std::string& path, const LoadOptions& options);

    const std::shared_ptr<Engine>& engine() const { return engine_; }
    const ModelText& text() const { return *text_; }
    const std::shared_ptr<const Tokenizer>& tokenizer() const { return text_->tokenizer(); }
    // Ids that end an answer: the model's own and the tokenizer's.
    const std::vector<std::int32_t>& stop_ids() const { return stop_ids_; }
    // The vocabulary for grammars; prepared when it is first asked for (a fraction of a second).
    const std::shared_ptr<const Vocabulary>& vocabulary() const;
    // Ids from here on are padding rows of the head.
    std::int32_t id_limit() const { return id_limit_; }

  private:
    TextModel() = default;
    std::shared_ptr<Engine> engine_;
    std::shared_ptr<const ModelText> text_;
    std::vector<std::int32_t> stop_ids_;
    std::int32_t id_limit_ = 0;
    mutable std::once_flag vocabulary_once_;
    mutable std::shared_ptr<const Vocabulary> vocabulary_;
};

enum class PieceKind { answer, reasoning };

struct ReplyOptions {
    SamplingOptions sampling;
    int max_tokens = -1;               // -1: until the model stops or the context is full
    std::vector<std::string> stop;     // texts that end the answer (not the reasoning); they are not part of it
    bool ignore_stop = false;
    std::shared_ptr<TokenConstraint> constraint;   // what the answer, after its reasoning, is held to
};

struct Reply {
    FinishReason reason = FinishReason::stop;
    std::string text, reasoning;       // what on_piece was given, by kind
    int prompt_tokens = 0;             // all of the prompt's
    int cached_tokens = 0;             // of these, known from before
    int new_tokens = 0;                // generated
    double prompt_seconds = 0, decode_seconds = 0;
};

// Feeds the prompt to the session and streams what the model answers. Either callback may be empty;
// on_piece returns false to stop, on_progress (prompt tokens done, in all) too: the reason is then `cancelled`.
Reply reply(const TextModel& model, Session& session, const Prompt& prompt, const ReplyOptions& options,
            const std::function<bool(PieceKind, std::string_view)>& on_piece = {},
            const std::function<bool(int, int)>& on_progress = {});

}  // namespace forge
