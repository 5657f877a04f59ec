#include "transport/hub_choose.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/json.h"

namespace forge {
namespace {

std::string_view base_name(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string_view parent_name(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? std::string_view() : base_name(path.substr(0, slash));
}

struct Part {
    std::string model;  // path without ".gguf" and without "-00001-of-00003"
    int number = 1, count = 1;
};

Part part_of(std::string_view path) {
    Part part{std::string(path.substr(0, path.size() - 5)), 1, 1};
    const std::string& m = part.model;
    const auto digits = [&](std::size_t at) { return std::all_of(m.begin() + static_cast<std::ptrdiff_t>(at), m.begin() + static_cast<std::ptrdiff_t>(at) + 5, [](char c) { return c >= '0' && c <= '9'; }); };
    if (m.size() > 15 && m[m.size() - 15] == '-' && m.compare(m.size() - 9, 4, "-of-") == 0 && digits(m.size() - 14) && digits(m.size() - 5)) {
        part.number = std::stoi(m.substr(m.size() - 14, 5));
        part.count = std::stoi(m.substr(m.size() - 5, 5));
        part.model.resize(m.size() - 15);
    }
    return part;
}

bool answers_to(const std::string& model, std::string_view select) {
    const std::string wanted = ascii_lower(select), stem = ascii_lower(base_name(model));
    if (stem == wanted || ascii_lower(parent_name(model)) == wanted) return true;
    if (stem.size() <= wanted.size() || !stem.ends_with(wanted)) return false;
    const char before = stem[stem.size() - wanted.size() - 1];
    return before == '-' || before == '.' || before == '_';
}

std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size() && i < 40; ++i) text += (i ? ", " : "") + names[i];
    if (names.size() > 40) text += fmt::format(" and {} more", names.size() - 40);
    return text;
}

}  // namespace

bool is_safe_repo_path(std::string_view path) {
    if (path.empty() || path.size() > 1000 || path.front() == '/' || path.back() == '/') return false;
    for (const char c : path)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        const std::string_view part = path.substr(begin, end - begin);
        if (part.empty() || part == "." || part == ".." || part.size() > 250) return false;
        begin = end + 1;
    }
    return true;
}

bool matches_glob(std::string_view pattern, std::string_view text) {
    // The last '*' seen takes one more character whenever the rest does not fit.
    std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
    while (t < text.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = t;
        } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
            ++p;
            ++t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

bool is_companion(std::string_view name) {
    static constexpr std::string_view patterns[] = {
        "config.json",        "generation_config.json", "tokenizer*.json",      "*tokenizer*.model", "special_tokens_map.json",
        "added_tokens.json",  "vocab.json",             "vocab.txt",            "merges.txt",        "*.tiktoken",
        "tekken.json",        "chat_template.json",     "chat_template.jinja",  "LICENSE*",          "LICENCE*",
        "NOTICE*",            "preprocessor_config.json", "model.safetensors.index.json", "spiece.model"};
    if (name.find('/') != std::string_view::npos) return false;
    return std::any_of(std::begin(patterns), std::end(patterns), [&](std::string_view pattern) { return matches_glob(pattern, name); });
}

std::vector<std::string> choose_safetensors(const std::vector<std::string>& names) {
    std::vector<std::string> chosen;
    for (const std::string& name : names) {
        if (!name.ends_with(".safetensors") || name.find('/') != std::string::npos) continue;
        if (name.starts_with("consolidated") || name.starts_with("adapter_")) continue;
        chosen.push_back(name);
    }
    // "model.safetensors" beside other names is the whole model; so are its numbered parts.
    const auto numbered = [](const std::string& name) { return matches_glob("model-*-of-*.safetensors", name); };
    if (std::find(chosen.begin(), chosen.end(), "model.safetensors") != chosen.end()) return {"model.safetensors"};
    if (std::any_of(chosen.begin(), chosen.end(), numbered)) std::erase_if(chosen, [&](const std::string& name) { return !numbered(name); });
    std::sort(chosen.begin(), chosen.end());
    return chosen;
}

bool has_folder_model(const std::vector<std::string>& names) {
    const bool config = std::find(names.begin(), names.end(), "config.json") != names.end();
    const bool index = std::find(names.begin(), names.end(), kSafetensorsIndex) != names.end();
    return (config && index) || !choose_safetensors(names).empty();
}

std::vector<std::string> files_of_index(std::string_view text, const std::string& where) {
    using Json = nlohmann::json;
    const Json json = parse_json<Json>(text, where, false);
    if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
        fail("{}: \"weight_map\" should say which tensor is in which file", where);
    std::set<std::string> files;
    for (const auto& [tensor, file] : json["weight_map"].items()) {
        if (!file.is_string() || !is_safe_repo_path(file.get_ref<const std::string&>()))
            fail("{}: the file of tensor {} is no name of a file", where, tensor.substr(0, 100));
        files.insert(file.get<std::string>());
    }
    return {files.begin(), files.end()};
}

bool is_gguf_model(std::string_view name) {
    const std::string file = ascii_lower(base_name(name));
    if (!file.ends_with(".gguf") || !name.ends_with(".gguf") || file.size() == 5) return false;
    return file.find("mmproj") == std::string::npos && file.find("imatrix") == std::string::npos && !file.starts_with("adapter") && !file.starts_with("lora");
}

std::vector<std::string> choose_gguf(const std::vector<std::string>& names, const HubReference& reference) {
    std::map<std::string, std::vector<std::string>> models;
    for (const std::string& name : names) {
        if (!name.ends_with(".gguf") || name.size() == 5) continue;
        if (is_gguf_model(name) || name == reference.select) models[part_of(name).model].push_back(name);
    }
    std::vector<std::string> all, matching;
    for (const auto& [model, files] : models) {
        all.emplace_back(base_name(model));
        const bool whole = std::find(files.begin(), files.end(), reference.select) != files.end() || model == reference.select;
        if (whole) {
            matching = {model};
            break;
        }
        if (reference.select.empty() || answers_to(model, reference.select)) matching.push_back(model);
    }
    if (models.empty()) fail(ErrorKind::not_found, "{} holds neither a model of config.json and safetensors nor a GGUF file", reference.text());
    if (matching.empty())
        fail(ErrorKind::not_found, "no GGUF file of hf:{} ends with {}; there are {}", reference.repo, reference.select, listed(all));
    if (matching.size() > 1) {
        std::vector<std::string> several;
        for (const std::string& model : matching) several.emplace_back(base_name(model));
        fail("hf:{} has several GGUF models{}: {}; name one, as in hf:{}:{}", reference.repo,
             reference.select.empty() ? std::string() : " that end with " + reference.select, listed(several), reference.repo, several.front());
    }
    std::vector<std::string> chosen = models[matching.front()];
    std::sort(chosen.begin(), chosen.end());
    return chosen;
}

std::string missing_gguf_part(const std::vector<std::string>& parts) {
    if (parts.empty()) return "a GGUF file";
    const Part first = part_of(parts.front());
    for (int number = 1; number <= first.count; ++number) {
        const std::string name = first.count == 1 && parts.front() == first.model + ".gguf"
                                     ? parts.front()
                                     : fmt::format("{}-{:05}-of-{:05}.gguf", first.model, number, first.count);
        if (std::find(parts.begin(), parts.end(), name) == parts.end()) return name;
    }
    return "";
}

}  // namespace forge
