// Models of the store in registries. In a registry a model is an OCI manifest of type
// application/vnd.forge.model.v1: its config is the store's manifest, its layers are the blobs. Registries
// name bytes by SHA-256, the store by BLAKE3: a layer carries the latter in the annotation dev.forge.blake3,
// and both are checked.
#pragma once

#include <cstdint>
#include <string>

#include "store/store.h"
#include "transport/download.h"
#include "transport/oci_reference.h"

namespace forge {

struct OciTransferOptions {
    bool plain_http = false;
    std::uint64_t piece = 64u << 20;  // bytes an upload sends in one request
    DownloadOptions download;         // for its HTTP options, when pushing
};

struct OciTransferred {
    std::string digest;           // of the registry's manifest
    int blobs = 0, moved = 0;     // of the model, and those that travelled
    std::uint64_t bytes = 0, moved_bytes = 0;
};

OciTransferred push_to_registry(const Store& store, const ModelName& name, const OciReference& reference, const OciTransferOptions& options);
// The model is then `name` in the store.
OciTransferred pull_from_registry(const Store& store, const OciReference& reference, const ModelName& name, const OciTransferOptions& options);

}  // namespace forge
