#include "transport/hub_cache.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/paths.h"
#include "base/text.h"
#include "transport/remote_digest.h"
#include "transport/hub_choose.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

// As other tools read their variables: ~ and $HOME at the front.
fs::path expanded(std::string text) {
    const std::string home = environment("HOME");
    if (text == "~" || text.starts_with("~/")) text = home + text.substr(1);
    if (text.starts_with("$HOME")) text = home + text.substr(5);
    return text;
}

std::string folder_name(const std::string& repo) {
    std::string name = "models--" + repo;
    if (const std::size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
    return name;
}

void make_folders(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) fail(ErrorKind::io, "cannot create {}: {}", folder.string(), error.message());
}

}  // namespace

fs::path hub_home() {
    if (const std::string home = environment("HF_HOME"); !home.empty()) return expanded(home);
    if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) return expanded(cache) / "huggingface";
    return expanded("~/.cache") / "huggingface";
}

HubCache HubCache::from_environment() {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
        if (const std::string root = environment(name); !root.empty()) return HubCache(expanded(root));
    return HubCache(hub_home() / "hub");
}

fs::path HubCache::repo_folder(const std::string& repo) const { return root_ / folder_name(repo); }
fs::path HubCache::blob(const std::string& repo, const std::string& name) const { return repo_folder(repo) / "blobs" / name; }
fs::path HubCache::lock_file(const std::string& repo, const std::string& name) const { return root_ / ".locks" / folder_name(repo) / (name + ".lock"); }
fs::path HubCache::snapshot(const std::string& repo, const std::string& commit) const { return repo_folder(repo) / "snapshots" / commit; }

std::optional<std::string> HubCache::commit_of(const std::string& repo, const std::string& revision) const {
    std::error_code error;
    const fs::path ref = repo_folder(repo) / "refs" / revision;
    if (fs::is_regular_file(ref, error)) {
        std::string commit = read_file(ref);
        while (!commit.empty() && (commit.back() == '\n' || commit.back() == ' ')) commit.pop_back();
        if (is_lower_hex(commit, 40)) return commit;
    }
    if (is_lower_hex(revision, 40) && fs::is_directory(snapshot(repo, revision), error)) return revision;
    return std::nullopt;
}

std::vector<std::string> HubCache::files(const std::string& repo, const std::string& commit) const {
    std::vector<std::string> found;
    std::error_code error;
    const fs::path folder = snapshot(repo, commit);
    for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        std::error_code dangling;
        if (fs::is_regular_file(entry->path(), dangling)) found.push_back(entry->path().lexically_relative(folder).generic_string());
    }
    std::sort(found.begin(), found.end());
    return found;
}

void HubCache::link(const std::string& repo, const std::string& commit, const std::string& path, const std::string& blob_name) const {
    const fs::path place = snapshot(repo, commit) / path;
    make_folders(place.parent_path());
    const fs::path to = blob(repo, blob_name).lexically_relative(place.parent_path());
    const fs::path temporary = fmt::format("{}.{}.tmp", place.string(), ::getpid());
    std::error_code error;
    if (fs::read_symlink(place, error) == to && !error) return;
    fs::remove(temporary, error);
    fs::create_symlink(to, temporary, error);
    if (!error) fs::rename(temporary, place, error);
    if (error) fail(ErrorKind::io, "cannot put {} in place: {}", place.string(), error.message());
}

void HubCache::write_ref(const std::string& repo, const std::string& revision, const std::string& commit) const {
    if (revision == commit) return;
    const fs::path ref = repo_folder(repo) / "refs" / revision;
    make_folders(ref.parent_path());
    write_file_atomically(ref, commit);
}

fs::path find_in_hub_cache(const HubCache& cache, const HubReference& reference) {
    const auto commit = cache.commit_of(reference.repo, reference.revision);
    if (!commit)
        fail(ErrorKind::not_found, "{} is not in the cache {}; forge pull {} fetches it", reference.text(), cache.root().string(), reference.text());
    const fs::path folder = cache.snapshot(reference.repo, *commit);
    const std::vector<std::string> names = cache.files(reference.repo, *commit);
    const auto missing = [&](const std::string& what) {
        fail(ErrorKind::not_found, "{} is in the cache {} without {}; forge pull {} fetches the rest", reference.text(), cache.root().string(), what,
             reference.text());
    };
    if (!reference.select.empty() || !has_folder_model(names)) {
        if (std::none_of(names.begin(), names.end(), is_gguf_model)) missing("a model that can be opened");
        const std::vector<std::string> chosen = choose_gguf(names, reference);
        if (const std::string part = missing_gguf_part(chosen); !part.empty()) missing(part);
        return folder / chosen.front();
    }
    const auto there = [&](const std::string& name) { return std::binary_search(names.begin(), names.end(), name); };
    if (there(kSafetensorsIndex)) {
        for (const std::string& file : files_of_index(read_file(folder / kSafetensorsIndex), (folder / kSafetensorsIndex).string()))
            if (!there(file)) missing(file);
    }
    if (!there("config.json")) missing("config.json");
    return folder;
}

}  // namespace forge
