#include <algorithm>
#include <map>

#include "base/log.h"
#include "base/paths.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "formats/forge_manifest.h"
#include "known.h"
#include "names.h"
#include "registry/registry.h"
#include "transport/oci_registry.h"

namespace forge {
namespace {

// A blob of the model, as the registry and as the store know it.
struct Wanted {
    const OciDescriptor* blob;
    Digest digest;
    bool damaged = false;  // it is in the store with other bytes
};

// One blob into the store: resumed, SHA-256 checked while it arrives, BLAKE3 when it is adopted.
void fetch(const Store& store, OciRegistry& registry, const Wanted& wanted, const DownloadOptions& options, Progress& progress) {
    const OciDescriptor& blob = *wanted.blob;
    const Digest& digest = wanted.digest;
    const std::string key = "pull-" + digest.hex();
    const StoreLock lock = store.lock_partial(key, true);
    if (wanted.damaged ? store.is_intact(digest, blob.size) : store.size_of(digest) == blob.size) {  // another process brought it
        progress.skip(blob.size);
        return;
    }
    const std::filesystem::path path = store.partial(key);
    {
        PartialDownload partial(path, blob.size, blob.digest);
        DownloadOptions how = options;
        how.found = [&](std::uint64_t bytes) { progress.skip(bytes); };
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

// Those of the blobs that are to be fetched. What the store has is read and hashed: pulling a model mends it.
std::vector<Wanted> not_there(const Store& store, std::vector<Wanted> blobs, const std::function<bool()>& cancelled) {
    std::vector<std::size_t> there;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < blobs.size(); ++i)
        if (store.has(blobs[i].digest)) {
            there.push_back(i);
            bytes += blobs[i].blob->size;
        }
    {
        Progress progress("checking what is there", bytes);
        ThreadPool pool;
        pool.parallel_for(there.size(), 1, [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) {
                Wanted& wanted = blobs[there[i]];
                wanted.damaged = !store.is_intact(wanted.digest, wanted.blob->size, [&](std::uint64_t n) {
                    progress.advance(n);
                    if (cancelled()) throw Interrupted();
                });
                if (wanted.damaged) log_warn("the blob {} in the store is damaged; it is fetched again", wanted.digest.hex());
            }
        });
    }
    std::erase_if(blobs, [&](const Wanted& wanted) { return store.has(wanted.digest) && !wanted.damaged; });
    return blobs;
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
    const auto fetch_all = [&](std::vector<Wanted> blobs) {
        const std::vector<Wanted> absent = not_there(store, blobs, options.download.http.cancelled);
        for (const Wanted& wanted : blobs) result.bytes += wanted.blob->size;
        result.blobs += static_cast<int>(blobs.size());
        std::uint64_t bytes = 0;
        for (const Wanted& wanted : absent) bytes += wanted.blob->size;
        Progress progress(reference.text(), bytes);
        for (const Wanted& wanted : absent) fetch(store, registry, wanted, options.download, progress);
        result.moved += static_cast<int>(absent.size());
        result.moved_bytes += bytes;
    };
    if (remote.config.size > 256u << 20) fail("{}: a manifest of {} bytes is none", reference.text(), remote.config.size);
    const Digest config = name_of(remote.config);
    fetch_all({{&remote.config, config, false}});
    const std::string manifest_text = read_file(store.blob_path(config));
    const Manifest manifest = Manifest::parse(manifest_text, reference.text());

    std::map<Digest, const OciDescriptor*> layers;
    for (const OciDescriptor& layer : remote.layers) layers.emplace(name_of(layer), &layer);
    std::vector<Wanted> wanted;
    for (const ManifestBlob& blob : manifest.blobs) {
        const auto found = layers.find(blob.digest);
        if (found == layers.end()) fail("{}: the model needs {} ({}), and the registry's manifest does not list it", reference.text(), blob.digest.text(), blob.role);
        if (found->second->size != blob.bytes)
            fail("{}: {} has {} bytes in the registry's manifest and {} in the model's", reference.text(), blob.digest.text(), found->second->size, blob.bytes);
        if (std::none_of(wanted.begin(), wanted.end(), [&](const Wanted& entry) { return entry.digest == blob.digest; }))
            wanted.push_back({found->second, blob.digest, false});
    }
    fetch_all(wanted);
    store.write_manifest(name, manifest_text);  // last: a name never leads to what is not there
    remember_repository(reference.host, reference.name);
    return result;
}

}  // namespace forge
