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

#include "chat/template.h"
#include "formats/model_file.h"
#include "runtime/sampler.h"
#include "tokenizer/tokenizer.h"

namespace forge {

// `path` as a user gives it: a GGUF file, a model's folder, a .safetensors file in one,
// tokenizer.json, tekken.json or tokenizer.model. Errors name the path.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);

// The text of a chat template. `with_tools`: the one named tool_use is preferred when there are several.
struct TemplateSource {
    std::string text;
    std::string where;  // "model.gguf: tokenizer.chat_template", for messages
};
// `path`: as above, or a .jinja file. nullopt when the model has none.
std::optional<TemplateSource> find_chat_template(const std::string& path, bool with_tools = false);

// bos_token, eos_token, ... as templates see them: an object of texts.
nlohmann::ordered_json special_tokens(const Tokenizer& tokenizer);

// Whether there is a tokenizer at all (a model of random weights may have none).
bool has_tokenizer(const std::string& path);

// A prompt ready for a session.
struct Prompt {
    std::vector<std::int32_t> ids;
    std::string text;   // what was tokenized: the raw text or the rendered template
    bool chat = false;  // rendered from messages
};

// Tokenizer and templates together: prompts from text or messages.
class ModelText {
  public:
    static std::shared_ptr<const ModelText> load(const std::string& path);

    const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
    bool has_chat_template() const { return template_ != nullptr; }
    // The template that chat_prompt uses; empty when there is none.
    const std::string& chat_template() const;

    // Plain text: BOS as the model's tokenizer adds it; special tokens in the text are matched.
    Prompt raw_prompt(std::string_view text) const;
    // messages: a list of {role, content, ...}. variables: more of the template's, such as
    // {"enable_thinking": false} or {"tools": [...]}; may be null. Error when the model has no template.
    Prompt chat_prompt(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& variables = nullptr) const;

  private:
    std::string path_;
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::unique_ptr<const ChatTemplate> template_, tool_template_;  // the latter, if any, for conversations with tools
};

// What the model's makers recommend (generation_config.json, GGUF general.sampling.*), else the defaults.
SamplingOptions default_sampling(const ModelFile& file);

// Refuses the names of models that are not files yet (name:tag, hf:org/name, oci:...) with a sentence,
// and paths that do not exist.
void check_model_path(const std::string& path);

}  // namespace forge
