#include "api/model_text.h"

#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/paths.h"

namespace forge {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json read_json(const fs::path& path) {
    try {
        return Json::parse(read_file(path));
    } catch (const Json::parse_error& error) {
        fail("{} is not valid JSON: {}", path.string(), error.what());
    }
}

// The folder whose files describe the text side, or nullopt for a GGUF file.
std::optional<fs::path> text_folder(const fs::path& path) {
    if (fs::is_directory(path)) return path;
    const std::string extension = path.extension().string();
    if (extension == ".safetensors" || extension == ".json" || extension == ".model") {
        const fs::path parent = path.parent_path();
        return parent.empty() ? fs::path(".") : parent;
    }
    return std::nullopt;
}

// A checkpoint may hold several templates: tool_use when tools are given, else default, else the only one.
std::optional<TemplateSource> choose(const std::map<std::string, TemplateSource>& named, bool with_tools) {
    if (named.empty()) return std::nullopt;
    if (const auto found = named.find("tool_use"); with_tools && found != named.end()) return found->second;
    if (const auto found = named.find("default"); found != named.end()) return found->second;
    if (named.size() == 1) return named.begin()->second;
    std::string names;
    for (const auto& [name, source] : named) names += (names.empty() ? "" : ", ") + name;
    fail("{} holds several chat templates ({}) and none is named default", named.begin()->second.where, names);
}

// The value of `chat_template`: a text, or a list of {name, template}.
void add_templates(const Json& value, const std::string& where, std::map<std::string, TemplateSource>& named) {
    if (value.is_string()) {
        named.try_emplace("default", TemplateSource{value.get<std::string>(), where});
    } else if (value.is_array()) {
        for (const Json& entry : value) {
            if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
                !entry.contains("template") || !entry["template"].is_string())
                fail("{}: an entry of chat_template should be an object with the texts name and template", where);
            named.try_emplace(entry["name"].get<std::string>(), TemplateSource{entry["template"].get<std::string>(), where});
        }
    } else if (!value.is_null()) {
        fail("{}: chat_template should be a text or a list, found {}", where, value.type_name());
    }
}

// In transformers' order of precedence; the first to define a name wins.
std::map<std::string, TemplateSource> folder_templates(const fs::path& folder) {
    std::map<std::string, TemplateSource> named;
    if (const fs::path file = folder / "chat_template.jinja"; fs::exists(file))
        named.try_emplace("default", TemplateSource{read_file(file), file.string()});
    if (const fs::path extra = folder / "additional_chat_templates"; fs::is_directory(extra)) {
        for (const auto& entry : fs::directory_iterator(extra))
            if (entry.path().extension() == ".jinja")
                named.try_emplace(entry.path().stem().string(), TemplateSource{read_file(entry.path()), entry.path().string()});
    }
    for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
        const fs::path file = folder / name;
        if (!fs::exists(file)) continue;
        const Json json = read_json(file);
        if (json.is_object() && json.contains("chat_template"))
            add_templates(json["chat_template"], file.string(), named);
    }
    return named;
}

std::map<std::string, TemplateSource> gguf_templates(const Metadata& metadata, const std::string& path) {
    std::map<std::string, TemplateSource> named;
    const std::string key = "tokenizer.chat_template";
    for (const auto& [name, value] : metadata.all()) {
        const auto* text = std::get_if<std::string>(&value);
        if (!text || name.compare(0, key.size(), key) != 0) continue;
        if (name.size() == key.size()) {
            named.emplace("default", TemplateSource{*text, path + ": " + name});
        } else if (name[key.size()] == '.') {
            named.emplace(name.substr(key.size() + 1), TemplateSource{*text, path + ": " + name});
        }
    }
    return named;
}

}  // namespace

void check_model_path(const std::string& path) {
    std::error_code ignored;
    if (fs::exists(path, ignored)) return;
    for (const char* scheme : {"hf:", "oci:", "http:", "https:"}) {
        if (path.compare(0, std::string(scheme).size(), scheme) == 0)
            fail(ErrorKind::unsupported,
                 "{}: models cannot be fetched by name yet; download the model and give the path of its file or folder", path);
    }
    const std::size_t colon = path.find(':');
    if (colon != std::string::npos && path.find('/') == std::string::npos)
        fail(ErrorKind::unsupported,
             "{}: there is no such file, and models cannot be named NAME:TAG yet; give the path of a file or folder", path);
    fail(ErrorKind::not_found, "there is no file or folder {}", path);
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
    check_model_path(path);
    const fs::path p = path;
    const auto folder = text_folder(p);
    if (!folder) return Tokenizer::from_gguf(open_gguf(path)->metadata);
    const fs::path config = *folder / "tokenizer_config.json";
    const auto config_text = [&] { return fs::exists(config) ? read_file(config) : std::string(); };
    if (p.filename() == "tekken.json") return Tokenizer::from_tekken(read_file(p), path);
    if (p.extension() == ".json") return Tokenizer::from_json(read_file(p), config_text(), path);
    if (p.extension() == ".model") {
        const std::string model = read_file(p);
        return Tokenizer::from_sentencepiece(std::as_bytes(std::span(model)), config_text(), path);
    }
    return Tokenizer::from_folder(*folder);
}

std::optional<TemplateSource> find_chat_template(const std::string& path, bool with_tools) {
    check_model_path(path);
    const fs::path p = path;
    if (p.extension() == ".jinja") return TemplateSource{read_file(p), path};
    const auto folder = text_folder(p);
    return choose(folder ? folder_templates(*folder) : gguf_templates(open_gguf(path)->metadata, path), with_tools);
}

bool has_tokenizer(const std::string& path) {
    check_model_path(path);
    const auto folder = text_folder(path);
    if (!folder) return open_gguf(path)->metadata.has("tokenizer.ggml.model");
    for (const char* name : {"tokenizer.json", "tekken.json", "tokenizer.model"})
        if (fs::exists(*folder / name)) return true;
    return false;
}

std::shared_ptr<const ModelText> ModelText::load(const std::string& path) {
    auto text = std::make_shared<ModelText>();
    text->path_ = path;
    text->tokenizer_ = load_tokenizer(path);
    const auto source = find_chat_template(path);
    if (!source) return text;
    text->template_ = std::make_unique<const ChatTemplate>(ChatTemplate::parse(source->text));
    if (const auto tools = find_chat_template(path, true); tools && tools->text != source->text)
        text->tool_template_ = std::make_unique<const ChatTemplate>(ChatTemplate::parse(tools->text));
    return text;
}

const std::string& ModelText::chat_template() const {
    static const std::string none;
    return template_ ? template_->source() : none;
}

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

Prompt ModelText::chat_prompt(const Json& messages, const Json& variables) const {
    if (!template_) fail("{} has no chat template, so it cannot chat; give it plain text (--raw)", path_);
    if (!messages.is_array() || messages.empty()) fail("a conversation needs at least one message");
    Json inputs = {{"messages", messages}, {"add_generation_prompt", true}};
    inputs.update(special_tokens(*tokenizer_));
    if (!variables.is_null()) inputs.update(variables);
    const bool tools = inputs.contains("tools") && inputs["tools"].is_array() && !inputs["tools"].empty();
    std::string text = (tools && tool_template_ ? *tool_template_ : *template_).render(inputs);
    Prompt prompt{tokenizer_->encode(text, {.parse_special = true}), std::move(text), true};
    if (prompt.ids.empty()) fail("{}: the chat template rendered to nothing", path_);
    return prompt;
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
