#include <set>

#include "base/log.h"
#include "base/progress.h"
#include "formats/forge_manifest.h"
#include "known.h"
#include "names.h"
#include "store/blake3.h"
#include "registry/registry.h"
#include "transport/oci_registry.h"

namespace forge {

OciTransferred push_to_registry(const Store& store, const ModelName& name, const OciReference& reference, const OciTransferOptions& options) {
    require_transport();
    const StoreLock in_use = store.use();  // gc must not take a blob away meanwhile
    const auto text = store.read_manifest(name);
    if (!text) fail(ErrorKind::not_found, "there is no model {} in the store {}; forge list shows those that are", name.text(), store.root().string());
    const Manifest manifest = Manifest::parse(*text, name.text());

    // The manifest itself travels as a blob of the registry, so it is made one of the store.
    const Digest config = store.put(*text);
    OciTransferred result;
    OciManifest remote;
    remote.artifact_type = kOciArtifact;
    std::vector<std::pair<RemoteDigest, Digest>> blobs;
    const auto describe = [&](const Digest& digest, std::uint64_t size, const char* media_type) {
        OciDescriptor blob;
        blob.media_type = media_type;
        blob.size = size;
        blob.digest.hex = known_sha256(digest, store.blob_path(digest), [&](std::uint64_t) {
            if (options.download.http.cancelled()) throw Interrupted();
        });
        blob.annotations = {{kOciBlake3, digest.hex()}};
        result.bytes += size;
        ++result.blobs;
        return blob;
    };
    std::set<Digest> seen;
    for (const ManifestBlob& blob : manifest.blobs) {
        if (!seen.insert(blob.digest).second) continue;
        remote.layers.push_back(describe(blob.digest, blob.bytes, kOciBlob));
        remote.layers.back().annotations.emplace_back(kOciTitle, blob.name.empty() ? blob.role : blob.role + "/" + blob.name);
    }
    remote.config = describe(config, text->size(), kOciConfig);

    OciRegistry registry(reference, options.download.http, options.plain_http);
    const std::vector<std::string> others = other_repositories(reference.host, reference.name);
    std::vector<const OciDescriptor*> absent;
    std::uint64_t absent_bytes = 0;
    std::vector<const OciDescriptor*> all{&remote.config};
    for (const OciDescriptor& layer : remote.layers) all.push_back(&layer);
    for (const OciDescriptor* blob : all) {
        if (registry.has_blob(blob->digest, blob->size)) continue;
        absent.push_back(blob);
        absent_bytes += blob->size;
    }
    {
        Progress progress(reference.text(), absent_bytes);
        for (const OciDescriptor* blob : absent) {
            const auto digest = Digest::parse(blob->annotation(kOciBlake3));
            const bool moved = registry.upload(blob->digest, store.blob_path(*digest), blob->size, others, [&](std::uint64_t bytes) { progress.advance(bytes); }, options.piece);
            if (!moved) {
                progress.skip(blob->size);
                log_debug("{} is shared with another repository", blob->digest.text());
                continue;
            }
            ++result.moved;
            result.moved_bytes += blob->size;
        }
    }
    const std::string sent = remote.dump();
    registry.put_manifest(sent);  // last: a tag never names what is not there
    remember_repository(reference.host, reference.name);
    result.digest = "sha256:" + sha256_hex(sent);
    return result;
}

}  // namespace forge
