// forge pull hf:ORG/NAME: files of the Hugging Face hub into the cache that other tools share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "transport/download.h"
#include "transport/hub_cache.h"

namespace forge {

struct HubPullOptions {
    std::string endpoint;              // "" for HF_ENDPOINT or the hub itself
    std::vector<std::string> include;  // patterns of files; empty: those that make up the model
    DownloadOptions download;
};

struct HubPulled {
    std::filesystem::path path;  // what can be opened
    std::string commit;
    int files = 0;               // that the snapshot needs
    int fetched = 0;             // of them, those that were not in the cache
    std::uint64_t bytes = 0, fetched_bytes = 0;
};

HubPulled pull_from_hub(const HubCache& cache, const HubReference& reference, HubPullOptions options);

}  // namespace forge
