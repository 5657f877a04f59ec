#include "transport/hub_reference.h"

#include <algorithm>

#include "base/error.h"

namespace forge {
namespace {

constexpr std::string_view kWanted = "hf:ORG/NAME, hf:ORG/NAME@REVISION or hf:ORG/NAME:Q4_K_M is wanted";

bool is_name_part(std::string_view part) {
    if (part.empty() || part.size() > 96 || part.front() == '.' || part.front() == '-' || part.back() == '.' || part.back() == '-') return false;
    // "--" separates the parts in the cache's folder names.
    if (part.find("--") != std::string_view::npos || part.find("..") != std::string_view::npos) return false;
    return std::all_of(part.begin(), part.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
    });
}

// What git allows in a reference's name, and nothing that leaves the cache's refs folder.
bool is_revision(std::string_view text) {
    if (text.empty() || text.size() > 200 || text.front() == '/' || text.back() == '/' || text.find("//") != std::string_view::npos) return false;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find('/', begin), text.size());
        if (text[begin] == '.' || text[begin] == '-') return false;
        begin = end + 1;
    }
    if (text.find("..") != std::string_view::npos) return false;
    return std::all_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) < 0x7f && std::string_view("~^:?*[\\\"'<>|").find(c) == std::string_view::npos;
    });
}

}  // namespace

bool is_hub_reference(std::string_view text) { return text.starts_with("hf:"); }

std::string HubReference::text() const {
    return "hf:" + repo + (revision == "main" ? "" : "@" + revision) + (select.empty() ? "" : ":" + select);
}

HubReference parse_hub_reference(std::string_view text) {
    const std::string whole(text.substr(0, 300));
    if (!is_hub_reference(text)) fail("{} is no reference to the Hugging Face hub: {}", whole, kWanted);
    text.remove_prefix(3);
    HubReference reference;
    const std::size_t end = std::min(text.find_first_of("@:"), text.size());
    reference.repo = std::string(text.substr(0, end));
    text.remove_prefix(end);
    bool revision = false;
    while (!text.empty()) {  // @REVISION and :SELECT in either order; neither can hold the other's mark
        const char mark = text.front();
        text.remove_prefix(1);
        const std::size_t stop = std::min(text.find_first_of("@:"), text.size());
        std::string& value = mark == '@' ? reference.revision : reference.select;
        if (stop == 0 || (mark == '@' ? revision : !value.empty())) fail("{}: {}", whole, kWanted);
        if (mark == '@') revision = true;
        value = std::string(text.substr(0, stop));
        text.remove_prefix(stop);
    }
    const std::size_t slash = reference.repo.find('/');
    const bool named = slash == std::string::npos ? is_name_part(reference.repo)
                                                  : is_name_part(std::string_view(reference.repo).substr(0, slash)) &&
                                                        is_name_part(std::string_view(reference.repo).substr(slash + 1));
    if (!named) fail("{}: \"{}\" is no name of a repository; {}", whole, reference.repo.substr(0, 200), kWanted);
    if (!is_revision(reference.revision)) fail("{}: \"{}\" is no branch, tag or commit", whole, reference.revision.substr(0, 200));
    return reference;
}

}  // namespace forge
