#include "api/model_text.h"

#include <filesystem>

#include "base/error.h"
#include "base/paths.h"
#include "formats/forge_model.h"
#include "store/reference.h"

namespace forge {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// tokenizer.model, and Mistral's tokenizer.model.v3 and the like.
bool is_sentencepiece_name(const std::string& name) { return name.ends_with(".model") || name.find(".model.v") != std::string::npos; }

// The folder whose files describe the text side, or nullopt for a GGUF file or a .forge model.
std::optional<fs::path> text_folder(const fs::path& path) {
    if (fs::is_directory(path)) return path;
    if (is_forge(path.string())) return std::nullopt;
    const std::string extension = path.extension().string();
    if (extension == ".safetensors" || extension == ".json" || is_sentencepiece_name(path.filename().string())) {
        const fs::path parent = path.parent_path();
        return parent.empty() ? fs::path(".") : parent;
    }
    return std::nullopt;
}

}  // namespace

namespace {

// Of GGUF and .forge, whose text side is in the model's file.
std::shared_ptr<const Tokenizer> tokenizer_of(const ModelFile& file) {
    if (!file.packed || file.format == ModelFormat::gguf) return Tokenizer::from_gguf(file.metadata);
    const ForgeModel& packed = *file.packed;
    const auto source = [&](const char* name) { return file.path + ": " + name; };
    const std::string_view config = packed.file("tokenizer_config.json").value_or("");
    if (const auto text = packed.file("tokenizer.json")) return Tokenizer::from_json(*text, config, source("tokenizer.json"));
    if (const auto text = packed.file("tekken.json")) return Tokenizer::from_tekken(*text, source("tekken.json"));
    if (const auto model = packed.file("tokenizer.model")) return Tokenizer::from_sentencepiece(std::as_bytes(std::span(*model)), config, source("tokenizer.model"));
    fail(ErrorKind::not_found, "{} has no tokenizer: looked for tokenizer.json, tekken.json and tokenizer.model.", file.path);
}

TemplateSet templates_of(const ModelFile& file) {
    if (!file.packed || file.format == ModelFormat::gguf) return templates_from_metadata(file.metadata);
    return templates_from_files(
        file.packed->file_names(), [&](const std::string& name) { return std::string(file.packed->file(name).value_or("")); },
        [&](const std::string& name) { return file.path + ": " + name; });
}

bool has_tokenizer(const ModelFile& file) {
    if (!file.packed || file.format == ModelFormat::gguf) return file.metadata.has("tokenizer.ggml.model");
    for (const char* name : {"tokenizer.json", "tekken.json", "tokenizer.model"})
        if (file.packed->file(name)) return true;
    return false;
}

// The model in whose file the text side is.
std::shared_ptr<ModelFile> open_text_file(const std::string& path) { return is_forge(path) ? open_forge(path) : open_gguf(path); }

}  // namespace

std::string model_path(const std::string& reference) { return resolve_model(reference); }

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& reference) {
    const std::string path = model_path(reference);
    const fs::path p = path;
    const auto folder = text_folder(p);
    if (!folder) return tokenizer_of(*open_text_file(path));
    const fs::path config = *folder / "tokenizer_config.json";
    const auto config_text = [&] { return fs::exists(config) ? read_file(config) : std::string(); };
    const std::string name = p.filename().string();
    if (p.extension() == ".json" && name.starts_with("tekken")) return Tokenizer::from_tekken(read_file(p), path);
    if (p.extension() == ".json") return Tokenizer::from_json(read_file(p), config_text(), path);
    if (is_sentencepiece_name(name)) {
        const std::string model = read_file(p);
        return Tokenizer::from_sentencepiece(std::as_bytes(std::span(model)), config_text(), path);
    }
    return Tokenizer::from_folder(*folder);
}

TemplateSet chat_templates(const std::string& reference) {
    const std::string path = model_path(reference);
    const fs::path p = path;
    if (p.extension() == ".jinja") {
        TemplateSet set;
        set.add("default", read_file(p), path);
        return set;
    }
    const auto folder = text_folder(p);
    return folder ? templates_from_folder(*folder) : templates_of(*open_text_file(path));
}

bool has_tokenizer(const std::string& reference) {
    const std::string path = model_path(reference);
    const auto folder = text_folder(path);
    if (!folder) return has_tokenizer(*open_text_file(path));
    for (const char* name : {"tokenizer.json", "tekken.json", "tokenizer.model"})
        if (fs::exists(*folder / name)) return true;
    return false;
}

std::shared_ptr<const ModelText> ModelText::make(const std::string& path, std::shared_ptr<const Tokenizer> tokenizer, TemplateSet templates) {
    auto text = std::make_shared<ModelText>();
    text->path_ = path;
    text->tokenizer_ = std::move(tokenizer);
    text->templates_ = std::move(templates);
    text->special_ = SpecialTexts(text->tokenizer_->special_texts());
    text->special_tokens_ = special_tokens(*text->tokenizer_);
    return text;
}

std::shared_ptr<const ModelText> ModelText::load(const std::string& reference) {
    const std::string path = model_path(reference);
    if (!text_folder(path)) return load(*open_text_file(path));
    return make(path, load_tokenizer(path), chat_templates(path));
}

std::shared_ptr<const ModelText> ModelText::load(const ModelFile& file) { return make(file.path, tokenizer_of(file), templates_of(file)); }

Prompt ModelText::raw_prompt(std::string_view text) const {
    Prompt prompt{tokenizer_->encode(text, {.add_bos = true, .parse_special = true}), std::string(text), false};
    if (prompt.ids.empty()) fail("the prompt is empty, and this model has no token to begin with; give some text");
    return prompt;
}

nlohmann::ordered_json special_tokens(const Tokenizer& tokenizer) {
    Json tokens = Json::object();
    const auto add = [&](const char* name, std::optional<std::int32_t> id) {
        if (id) tokens[name] = tokenizer.decode(std::span(&*id, 1));
    };
    add("bos_token", tokenizer.bos());
    add("eos_token", tokenizer.eos());
    add("pad_token", tokenizer.pad());
    add("unk_token", tokenizer.unk());
    return tokens;
}

ChatPrompt ModelText::render(const Conversation& conversation, ChatOptions options) const {
    if (!has_chat_template()) fail("{} has no chat template, so it cannot chat; give it plain text instead of messages", path_);
    options.special_tokens = special_tokens_;
    options.special = &special_;
    return apply_template(templates_, conversation, options);
}

Prompt ModelText::chat_prompt(const Conversation& conversation, const ChatOptions& options) const {
    ChatPrompt rendered = render(conversation, options);
    Prompt prompt{tokenizer_->encode(rendered.text, {.parse_special = true, .plain_at = rendered.plain_at}),
                  std::move(rendered.text), true, std::move(rendered.reasoning), rendered.in_reasoning};
    if (prompt.ids.empty()) fail("{}: the chat template rendered to nothing", path_);
    return prompt;
}

Prompt ModelText::chat_prompt(const Json& messages, const Json& variables) const {
    if (!messages.is_array() || messages.empty()) fail("a conversation needs at least one message");
    Conversation conversation;
    for (std::size_t i = 0; i < messages.size(); ++i) conversation.messages.push_back(message_from_json(messages[i], i));
    ChatOptions options;
    options.variables = variables;
    for (const auto& [name, member] : {std::pair{"tools", &conversation.tools}, {"documents", &conversation.documents}}) {
        if (!variables.is_object() || !variables.contains(name)) continue;
        *member = variables[name];
        options.variables.erase(name);
    }
    return chat_prompt(conversation, options);
}

SamplingOptions default_sampling(const ModelFile& file) {
    SamplingOptions options;
    const Json& config = file.generation_config;
    const auto number = [&](const char* key, const char* gguf_key, auto& value) {
        if (config.is_object() && config.contains(key) && config[key].is_number())
            value = config[key].get<std::remove_reference_t<decltype(value)>>();
        if (gguf_key && file.metadata.has(gguf_key))
            value = static_cast<std::remove_reference_t<decltype(value)>>(file.metadata.number(gguf_key, 0));
    };
    number("temperature", "general.sampling.temp", options.temperature);
    number("top_k", "general.sampling.top_k", options.top_k);
    number("top_p", "general.sampling.top_p", options.top_p);
    number("min_p", "general.sampling.min_p", options.min_p);
    number("typical_p", nullptr, options.typical_p);
    number("repetition_penalty", "general.sampling.penalty_repeat", options.repetition_penalty);
    if (config.is_object() && config.contains("do_sample") && config["do_sample"] == false) options.temperature = 0;
    check_options(options);
    return options;
}

}  // namespace forge
