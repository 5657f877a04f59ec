// The chat templates of a model, found in its files.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/metadata.h"
#include "chat/template.h"

namespace forge {

// A model may hold several templates under names; most hold one, called "default".
class TemplateSet {
  public:
    struct Entry {
        std::string source;
        std::string origin;                          // "model.gguf: tokenizer.chat_template", for messages
        std::shared_ptr<const ChatTemplate> parsed;  // null when it cannot be parsed
        std::string error;                           // why
    };

    // The first to define a name wins. A template that cannot be parsed is kept: only using
    // it fails, so that it does not stand in the way of the others.
    void add(std::string name, std::string source, std::string origin);

    bool empty() const { return entries_.empty(); }
    bool has(std::string_view name) const { return entries_.find(name) != entries_.end(); }
    std::vector<std::string> names() const;

    // The name to use: with tools "tool_use" when there is one, else "default", else the only
    // one. Error naming the templates when that does not decide, or when there are none.
    std::string choose(bool with_tools) const;
    // Error when there is none of that name or it cannot be parsed; says where it comes from.
    const ChatTemplate& get(std::string_view name) const;
    const std::string& source(std::string_view name) const;

  private:
    const Entry& entry(std::string_view name) const;
    std::map<std::string, Entry, std::less<>> entries_;
};

// tokenizer.chat_template, and tokenizer.chat_template.NAME for the named ones.
TemplateSet templates_from_metadata(const Metadata& metadata);

// A Hugging Face folder. For each name the first that defines it: chat_template.jinja
// ("default") and additional_chat_templates/NAME.jinja; chat_template.json;
// tokenizer_config.json. The JSON files hold a text or a list of {name, template}.
TemplateSet templates_from_folder(const std::filesystem::path& folder);

// The same from files of any origin: `names` are those there are (with '/'), read(name) gives one's text;
// where(name) names it in messages.
TemplateSet templates_from_files(const std::vector<std::string>& names, const std::function<std::string(const std::string&)>& read,
                                 const std::function<std::string(const std::string&)>& where);

}  // namespace forge
