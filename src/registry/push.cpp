#include <algorithm>
#include <atomic>

#include "base/log.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "formats/forge_manifest.h"
#include "known.h"
#include "names.h"
#include "parallel.h"
#include "registry/registry.h"
#include "transport/oci_registry.h"

namespace forge {
namespace {

// The registry's names of blobs of the store; those that are not known yet are read, several at once.
void name_by_sha256(const Store& store, const std::vector<Digest>& digests, const std::vector<OciDescriptor*>& blobs, const std::function<bool()>& cancelled) {
    ThreadPool pool;
    pool.parallel_for(blobs.size(), 1, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i)
            blobs[i]->digest.hex = known_sha256(digests[i], store.blob_path(digests[i]), [&](std::uint64_t) {
                if (cancelled()) throw Interrupted();
            });
    });
}

}  // namespace

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
    const auto describe = [&](const Digest& digest, std::uint64_t size, const char* media_type) {
        OciDescriptor blob;
        blob.media_type = media_type;
        blob.size = size;
        blob.annotations = {{kOciBlake3, digest.hex()}};
        result.bytes += size;
        ++result.blobs;
        return blob;
    };
    std::vector<Digest> digests;  // of all; the config's is the first
    digests.push_back(config);
    remote.config = describe(config, text->size(), kOciConfig);
    for (const ManifestBlob& blob : manifest.blobs) {
        if (std::find(digests.begin(), digests.end(), blob.digest) != digests.end()) continue;
        digests.push_back(blob.digest);
        remote.layers.push_back(describe(blob.digest, blob.bytes, kOciBlob));
        remote.layers.back().annotations.emplace_back(kOciTitle, blob.name.empty() ? blob.role : blob.role + "/" + blob.name);
    }
    std::vector<OciDescriptor*> all{&remote.config};
    for (OciDescriptor& layer : remote.layers) all.push_back(&layer);
    name_by_sha256(store, digests, all, options.download.http.cancelled);

    OciRegistry registry(reference, options.download.http, options.plain_http);
    std::vector<char> there(all.size(), 0);
    in_parallel(all.size(), options.download.connections, options.download.http, [&](HttpConnection& connection, std::size_t i) {
        there[i] = registry.has_blob(connection, all[i]->digest, all[i]->size) ? 1 : 0;
    });
    std::vector<std::size_t> absent;
    std::uint64_t absent_bytes = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (there[i]) continue;
        absent.push_back(i);
        absent_bytes += all[i]->size;
    }
    const std::vector<std::string> others = other_repositories(reference.host, reference.name);
    std::atomic<int> moved{0};
    std::atomic<std::uint64_t> moved_bytes{0};
    {
        Progress progress(reference.text(), absent_bytes);
        in_parallel(absent.size(), options.download.connections, options.download.http, [&](HttpConnection& connection, std::size_t k) {
            const OciDescriptor& blob = *all[absent[k]];
            const std::filesystem::path file = store.blob_path(digests[absent[k]]);
            bool sent;
            try {
                sent = registry.upload(connection, blob.digest, file, blob.size, others, [&](std::uint64_t bytes) { progress.advance(bytes); }, options.piece);
            } catch (const NetworkError&) {
                throw;
            } catch (const Interrupted&) {
                throw;
            } catch (const Error&) {  // a registry refuses bytes that are not those of their name
                if (!store.is_intact(digests[absent[k]], blob.size)) refuse_damaged(digests[absent[k]]);
                throw;
            }
            if (!sent) {
                progress.skip(blob.size);
                log_debug("{} is shared with another repository", blob.digest.text());
                return;
            }
            ++moved;
            moved_bytes += blob.size;
        });
    }
    result.moved = moved;
    result.moved_bytes = moved_bytes;
    const std::string described = remote.dump();
    registry.put_manifest(described);  // last: a tag never names what is not there
    remember_repository(reference.host, reference.name);
    result.digest = "sha256:" + sha256_hex(described);
    return result;
}

}  // namespace forge
