#include <algorithm>
#include <map>

#include "base/log.h"
#include "base/paths.h"
#include "base/progress.h"
#include "formats/forge_manifest.h"
#include "known.h"
#include "names.h"
#include "registry/registry.h"
#include "transport/oci_registry.h"

namespace forge {
namespace {

// One blob into the store: resumed, SHA-256 checked while it arrives, BLAKE3 when it is adopted.
void fetch(const Store& store, OciRegistry& registry, const OciDescriptor& blob, const Digest& digest, const DownloadOptions& options, Progress& progress) {
    const std::string key = "pull-" + digest.hex();
    const StoreLock lock = store.lock_partial(key, true);
    if (store.has(digest)) {  // another process brought it
        progress.skip(blob.size);
        return;
    }
    const std::filesystem::path path = store.partial(key);
    {
        PartialDownload partial(path, blob.size, blob.digest, [&](std::uint64_t bytes) {
            progress.skip(bytes);
            if (options.http.cancelled()) throw Interrupted();
        });
        DownloadOptions how = options;
        how.received = [&](std::uint64_t bytes) { progress.advance(bytes); };
        download(partial, blob.annotation(kOciTitle).empty() ? blob.digest.text() : blob.annotation(kOciTitle),
                 [&](HttpConnection& connection) { return registry.locate(connection, blob.digest); }, how);
    }
    try {
        store.adopt(path, digest);
    } catch (const Error&) {
        std::error_code ignored;  // the right SHA-256 and another BLAKE3: fetching it again gives the same bytes
        std::filesystem::remove(path, ignored);
        throw;
    }
    remember_sha256(digest, blob.digest.hex);
}

}  // namespace

OciTransferred pull_from_registry(const Store& store, const OciReference& reference, const ModelName& name, const OciTransferOptions& options) {
    require_transport();
    OciRegistry registry(reference, options.download.http, options.plain_http);
    const std::string text = registry.get_manifest();
    const OciManifest remote = OciManifest::parse(text, reference.text());
    if (remote.config.media_type != kOciConfig)
        fail(ErrorKind::unsupported, "{} is no model that forge push wrote: its config is \"{}\" and {} is wanted", reference.text(),
             remote.config.media_type.substr(0, 100), kOciConfig);

    OciTransferred result;
    result.digest = "sha256:" + sha256_hex(text);
    const StoreLock in_use = store.use();
    const auto name_of = [&](const OciDescriptor& blob) {
        const auto digest = Digest::parse(blob.annotation(kOciBlake3));
        if (!digest) fail("{}: the blob {} does not say its BLAKE3 in {}", reference.text(), blob.digest.text(), kOciBlake3);
        return *digest;
    };
    const auto fetch_all = [&](const std::vector<std::pair<const OciDescriptor*, Digest>>& blobs) {
        std::vector<std::pair<const OciDescriptor*, Digest>> absent;
        std::uint64_t bytes = 0;
        for (const auto& [blob, digest] : blobs) {
            ++result.blobs;
            result.bytes += blob->size;
            if (const auto size = store.size_of(digest)) {
                if (*size != blob->size) fail("{}: {} has {} bytes there and {} in the store", reference.text(), digest.text(), blob->size, *size);
                continue;
            }
            absent.emplace_back(blob, digest);
            bytes += blob->size;
        }
        Progress progress(reference.text(), bytes);
        for (const auto& [blob, digest] : absent) fetch(store, registry, *blob, digest, options.download, progress);
        result.moved += static_cast<int>(absent.size());
        result.moved_bytes += bytes;
    };
    if (remote.config.size > 256u << 20) fail("{}: a manifest of {} bytes is none", reference.text(), remote.config.size);
    const Digest config = name_of(remote.config);
    fetch_all({{&remote.config, config}});
    const std::string manifest_text = read_file(store.blob_path(config));
    const Manifest manifest = Manifest::parse(manifest_text, reference.text());

    std::map<Digest, const OciDescriptor*> layers;
    for (const OciDescriptor& layer : remote.layers) layers.emplace(name_of(layer), &layer);
    std::vector<std::pair<const OciDescriptor*, Digest>> wanted;
    for (const ManifestBlob& blob : manifest.blobs) {
        const auto found = layers.find(blob.digest);
        if (found == layers.end()) fail("{}: the model needs {} ({}), and the registry's manifest does not list it", reference.text(), blob.digest.text(), blob.role);
        if (found->second->size != blob.bytes)
            fail("{}: {} has {} bytes in the registry's manifest and {} in the model's", reference.text(), blob.digest.text(), found->second->size, blob.bytes);
        if (std::none_of(wanted.begin(), wanted.end(), [&](const auto& entry) { return entry.second == blob.digest; })) wanted.emplace_back(found->second, blob.digest);
    }
    fetch_all(wanted);
    store.write_manifest(name, manifest_text);  // last: a name never leads to what is not there
    remember_repository(reference.host, reference.name);
    return result;
}

}  // namespace forge
