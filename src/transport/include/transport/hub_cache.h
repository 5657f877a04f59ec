// The cache that tools of the Hugging Face hub share:
//   ROOT/models--ORG--NAME/blobs/DIGEST              the bytes, named by their ETag
//   ROOT/models--ORG--NAME/snapshots/COMMIT/PATH     symbolic links to blobs
//   ROOT/models--ORG--NAME/refs/REVISION             holds the commit
//   ROOT/.locks/models--ORG--NAME/DIGEST.lock        held while a blob is written
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "transport/hub_reference.h"

namespace forge {

std::filesystem::path hub_home();  // HF_HOME, else huggingface in the user's cache folder

class HubCache {
  public:
    // HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, else hub in hub_home().
    static HubCache from_environment();
    explicit HubCache(std::filesystem::path root) : root_(std::move(root)) {}

    const std::filesystem::path& root() const { return root_; }
    std::filesystem::path repo_folder(const std::string& repo) const;
    std::filesystem::path blob(const std::string& repo, const std::string& name) const;
    std::filesystem::path lock_file(const std::string& repo, const std::string& name) const;
    std::filesystem::path snapshot(const std::string& repo, const std::string& commit) const;
    // The commit that a branch, tag or commit stood for when it was last pulled.
    std::optional<std::string> commit_of(const std::string& repo, const std::string& revision) const;
    // Files of a snapshot whose blobs are there, as paths inside the repository, sorted.
    std::vector<std::string> files(const std::string& repo, const std::string& commit) const;

    // Makes PATH of the snapshot a link to the blob, replacing what was there, atomically.
    void link(const std::string& repo, const std::string& commit, const std::string& path, const std::string& blob) const;
    void write_ref(const std::string& repo, const std::string& revision, const std::string& commit) const;

  private:
    std::filesystem::path root_;
};

// What can be opened for a reference, without a network: the snapshot's folder, or the (first)
// GGUF file in it. Error (not_found) naming the pull command when it is absent or incomplete.
std::filesystem::path find_in_hub_cache(const HubCache& cache, const HubReference& reference);

}  // namespace forge
