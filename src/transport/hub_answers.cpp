#include "transport/hub_answers.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "transport/hub_choose.h"

namespace forge {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxFile = std::uint64_t{1} << 44;  // 16 TiB
constexpr std::size_t kMaxFiles = 100000;

Json parsed(std::string_view text, const std::string& where) {
    Json json = parse_json<Json>(text, where, false);
    if (json.is_discarded()) fail("{} answers with something that is no JSON; is this a Hugging Face hub?", where);
    return json;
}

std::string text_of(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::uint64_t size_of(const Json& object, const std::string& path, const std::string& where) {
    const auto found = object.find("size");
    if (found == object.end() || !found->is_number_integer() || (!found->is_number_unsigned() && found->get<std::int64_t>() < 0) ||
        found->get<std::uint64_t>() > kMaxFile)
        fail("{}: the size of {} is missing or no size", where, path);
    return found->get<std::uint64_t>();
}

}  // namespace

std::string read_revision_answer(std::string_view text, const std::string& where) {
    const Json json = parsed(text, where);
    const std::string commit = json.is_object() ? text_of(json, "sha") : std::string();
    if (!is_lower_hex(commit, 40)) fail("{}: \"sha\" should be the commit, 40 hexadecimal digits", where);
    return commit;
}

void read_tree_answer(std::string_view text, const std::string& where, std::vector<HubFile>& files) {
    const Json json = parsed(text, where);
    if (!json.is_array()) fail("{}: a list of files should be here", where);
    for (const Json& entry : json) {
        if (!entry.is_object()) fail("{}: an entry of the list is no object", where);
        if (text_of(entry, "type") != "file") continue;
        HubFile file;
        file.path = text_of(entry, "path");
        if (!is_safe_repo_path(file.path)) fail("{}: an entry's path is missing or leaves the repository", where);
        file.size = size_of(entry, file.path, where);
        const auto lfs = entry.find("lfs");
        if (lfs != entry.end() && lfs->is_object()) {
            std::string oid = text_of(*lfs, "oid");
            if (oid.starts_with("sha256:")) oid.erase(0, 7);
            if (!is_lower_hex(oid, 64)) fail("{}: {} has no SHA-256", where, file.path);
            file.digest = {RemoteDigest::Kind::sha256, oid};
            if (size_of(*lfs, file.path, where) != file.size) fail("{}: {} has two sizes", where, file.path);
        } else {
            const std::string oid = text_of(entry, "oid");
            if (!is_lower_hex(oid, 40)) fail("{}: {} has no digest", where, file.path);
            file.digest = {RemoteDigest::Kind::git, oid};
        }
        files.push_back(std::move(file));
        if (files.size() > kMaxFiles) fail("{}: more than {} files, which is no model", where, kMaxFiles);
    }
    std::vector<std::string_view> paths;
    for (const HubFile& file : files) paths.push_back(file.path);
    std::sort(paths.begin(), paths.end());
    if (const auto twice = std::adjacent_find(paths.begin(), paths.end()); twice != paths.end()) fail("{}: {} is listed twice", where, *twice);
}

std::optional<std::string> next_page(std::string_view link) {
    // <URL>; rel="next", <URL>; rel="prev"
    while (!link.empty()) {
        const std::size_t open = link.find('<'), close = link.find('>', open == std::string_view::npos ? 0 : open);
        if (open == std::string_view::npos || close == std::string_view::npos) return std::nullopt;
        const std::size_t end = std::min(link.find(",", close), link.size());
        const std::string_view parameters = link.substr(close + 1, end - close - 1);
        if (parameters.find("rel=\"next\"") != std::string_view::npos || parameters.find("rel=next") != std::string_view::npos)
            return std::string(link.substr(open + 1, close - open - 1));
        link.remove_prefix(end < link.size() ? end + 1 : end);
    }
    return std::nullopt;
}

std::string plain_etag(std::string_view etag) {
    if (etag.starts_with("W/")) etag.remove_prefix(2);
    if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
    return std::string(etag);
}

}  // namespace forge
