// What turns text into a model's tokens: its tokenizer, its chat template, its default sampling.
// Nothing here needs the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/conversation.h"
#include "formats/model_file.h"
#include "runtime/sampler.h"
#include "tokenizer/tokenizer.h"

namespace forge {

// The path of a model as a user names it: a path, or a name in the store (store/reference.h).
std::string model_path(const std::string& reference);

// `path` as a user gives it: a name in the store, a .forge file, a GGUF file, a model's folder, a .safetensors file in one,
// tokenizer.json, tekken.json or tokenizer.model. Errors name the path.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);

// The chat templates of a model, or the one in a .jinja file. `path`: as above. Empty when there are none.
TemplateSet chat_templates(const std::string& path);

// bos_token, eos_token, ... as templates see them: an object of texts.
nlohmann::ordered_json special_tokens(const Tokenizer& tokenizer);

// Whether there is a tokenizer at all (a model of random weights may have none).
bool has_tokenizer(const std::string& path);

// A prompt ready for a session.
struct Prompt {
    std::vector<std::int32_t> ids;
    std::string text;   // what was tokenized: the raw text or the rendered template
    bool chat = false;  // rendered from messages
    std::optional<ReasoningMarkers> reasoning = {};  // how this model marks reasoning, if it does
    bool in_reasoning = false;                       // the answer begins inside it
};

// Tokenizer and templates together: prompts from text or messages.
class ModelText {
  public:
    static std::shared_ptr<const ModelText> load(const std::string& path);
    // Of a model that is open already: a GGUF file or a .forge model.
    static std::shared_ptr<const ModelText> load(const ModelFile& file);

    const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
    bool has_chat_template() const { return !templates_.empty(); }
    const TemplateSet& templates() const { return templates_; }

    // Plain text: BOS as the model's tokenizer adds it; special tokens in the text are matched.
    Prompt raw_prompt(std::string_view text) const;
    // messages: a list of {role, content, ...}. variables: more of the template's, such as
    // {"enable_thinking": false} or {"tools": [...]}; may be null. Error when the model has no template.
    // Only the template's own text becomes special tokens: a message cannot spell one.
    Prompt chat_prompt(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& variables = nullptr) const;
    Prompt chat_prompt(const Conversation& conversation, const ChatOptions& options) const;
    // Rendered and not tokenized.
    ChatPrompt render(const Conversation& conversation, ChatOptions options) const;

  private:
    static std::shared_ptr<const ModelText> make(const std::string& path, std::shared_ptr<const Tokenizer> tokenizer, TemplateSet templates);

    std::string path_;
    std::shared_ptr<const Tokenizer> tokenizer_;
    TemplateSet templates_;
    SpecialTexts special_;
    nlohmann::ordered_json special_tokens_;
};

// What the model's makers recommend (generation_config.json, GGUF general.sampling.*), else the defaults.
SamplingOptions default_sampling(const ModelFile& file);

}  // namespace forge
