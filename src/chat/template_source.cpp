#include "chat/template_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/paths.h"

namespace forge {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

void add_member(TemplateSet& set, const ordered_json& value, const std::string& origin) {
    if (value.is_null()) return;
    if (value.is_string()) {
        set.add("default", value.get<std::string>(), origin);
        return;
    }
    const auto text = [&](const ordered_json& entry, const char* key) {
        if (!entry.is_object() || !entry.contains(key) || !entry[key].is_string())
            fail(
                "{}: chat_template should be a text or a list of objects with the texts 'name' and "
                "'template', but an "
                "entry has no text '{}'.",
                origin, key);
        return entry[key].get<std::string>();
    };
    if (!value.is_array())
        fail(
            "{}: chat_template should be a text or a list of objects with the texts 'name' and 'template', "
            "but it is {}.",
            origin, value.type_name());
    for (const ordered_json& entry : value) {
        const std::string name = text(entry, "name");
        set.add(name, text(entry, "template"), origin + ", " + name);
    }
}

}  // namespace

void TemplateSet::add(std::string name, std::string source, std::string origin) {
    if (has(name)) return;
    Entry entry{std::move(source), std::move(origin), nullptr, {}};
    try {
        entry.parsed = std::make_shared<const ChatTemplate>(ChatTemplate::parse(entry.source));
    } catch (const Error& error) {
        entry.error = error.what();
    }
    entries_.emplace(std::move(name), std::move(entry));
}

std::vector<std::string> TemplateSet::names() const {
    std::vector<std::string> out;
    for (const auto& [name, entry] : entries_) out.push_back(name);
    return out;
}

std::string TemplateSet::choose(bool with_tools) const {
    if (with_tools && has("tool_use")) return "tool_use";
    if (has("default")) return "default";
    if (entries_.size() == 1) return entries_.begin()->first;
    if (entries_.empty())
        fail(ErrorKind::not_found,
             "This model has no chat template, so a conversation cannot be turned into a prompt. Give a "
             "template, or "
             "plain text instead of messages.");
    fail("This model has several chat templates ({}) and none is called 'default'. Name the one to use.",
         fmt::join(names(), ", "));
}

const TemplateSet::Entry& TemplateSet::entry(std::string_view name) const {
    const auto it = entries_.find(name);
    if (it == entries_.end())
        fail(ErrorKind::not_found, "This model has no chat template called '{}'; it has {}.", name,
             entries_.empty() ? "none" : fmt::format("{}", fmt::join(names(), ", ")));
    return it->second;
}

const ChatTemplate& TemplateSet::get(std::string_view name) const {
    const Entry& e = entry(name);
    if (!e.parsed)
        throw TemplateError(TemplateError::Cause::syntax, fmt::format("{}: {}", e.origin, e.error));
    return *e.parsed;
}

const std::string& TemplateSet::source(std::string_view name) const { return entry(name).source; }

TemplateSet templates_from_metadata(const Metadata& metadata) {
    constexpr std::string_view key = "tokenizer.chat_template";
    TemplateSet set;
    for (const auto& [name, value] : metadata.all()) {
        const auto* text = std::get_if<std::string>(&value);
        if (!text || !name.starts_with(key)) continue;
        const std::string origin = metadata.source + ": " + name;
        if (name.size() == key.size())
            set.add("default", *text, origin);
        else if (name[key.size()] == '.')
            set.add(name.substr(key.size() + 1), *text, origin);
    }
    return set;
}

TemplateSet templates_from_files(const std::vector<std::string>& names, const std::function<std::string(const std::string&)>& read,
                                 const std::function<std::string(const std::string&)>& where) {
    TemplateSet set;
    const auto there = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
    if (there("chat_template.jinja")) set.add("default", read("chat_template.jinja"), where("chat_template.jinja"));
    constexpr std::string_view extra = "additional_chat_templates/", jinja = ".jinja";
    for (const std::string& name : names)
        if (name.starts_with(extra) && name.ends_with(jinja) && name.size() > extra.size() + jinja.size())
            set.add(name.substr(extra.size(), name.size() - extra.size() - jinja.size()), read(name), where(name));
    for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
        if (!there(name)) continue;
        ordered_json json;
        try {
            json = parse_json<ordered_json>(read(name), where(name), true);
        } catch (const ordered_json::parse_error& error) {
            fail("{} is not valid JSON: {}", where(name), error.what());
        }
        if (!json.is_object()) fail("{} should hold a JSON object, but it holds {}.", where(name), json.type_name());
        if (json.contains("chat_template")) add_member(set, json["chat_template"], where(name));
    }
    return set;
}

TemplateSet templates_from_folder(const fs::path& folder) {
    std::vector<std::string> names;
    for (const char* name : {"chat_template.jinja", "chat_template.json", "tokenizer_config.json"})
        if (fs::exists(folder / name)) names.emplace_back(name);
    if (const fs::path extra = folder / "additional_chat_templates"; fs::is_directory(extra))
        for (const auto& item : fs::directory_iterator(extra))
            if (item.path().extension() == ".jinja") names.push_back("additional_chat_templates/" + item.path().filename().string());
    return templates_from_files(
        names, [&](const std::string& name) { return read_file(folder / name); }, [&](const std::string& name) { return (folder / name).string(); });
}

}  // namespace forge
