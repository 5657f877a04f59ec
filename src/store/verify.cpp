#include "store/verify.h"

#include <algorithm>

#include "base/error.h"
#include "base/progress.h"
#include "formats/forge_model.h"
#include "store/blake3.h"

namespace forge {
namespace {

// Empty: the blob is what the manifest says.
std::string what_is_wrong(const ForgeBlobs& blobs, const ManifestBlob& entry, const std::string& path, Progress& progress) {
    BlobBytes blob;
    try {
        blob = blobs.lookup(entry);
    } catch (const Error& error) {
        return error.what();
    }
    const std::string what = entry.name.empty() ? entry.role : entry.role + " " + entry.name;
    if (blob.bytes.size() != entry.bytes)
        return fmt::format("{}: the {} ({}) has {} bytes, not {}: it was cut off or replaced", path, what, entry.digest.hex(), blob.bytes.size(), entry.bytes);
    Blake3 hasher;
    constexpr std::size_t piece = std::size_t{8} << 20;
    for (std::size_t at = 0; at < blob.bytes.size(); at += piece) {
        const auto part = blob.bytes.subspan(at, std::min(piece, blob.bytes.size() - at));
        blob.file->read_ahead(blob.offset + at, 4 * piece);
        hasher.update(part);
        progress.advance(part.size());
    }
    const Digest found = hasher.finish();
    if (found == entry.digest) return "";
    return fmt::format("{}: the {} ({} bytes) has the BLAKE3 {}, not {}: its bytes are wrong", path, what, entry.bytes, found.hex(), entry.digest.hex());
}

}  // namespace

std::vector<std::string> wrong_blobs(const std::string& path, ThreadPool& pool) {
    const ForgeBlobs blobs = find_forge_blobs(path);
    const Manifest manifest = Manifest::parse(blobs.manifest, path);
    std::vector<std::string> wrong(manifest.blobs.size());
    Progress progress("hashing blobs", manifest.bytes());
    pool.parallel_for(wrong.size(), 1, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) wrong[i] = what_is_wrong(blobs, manifest.blobs[i], path, progress);
    });
    std::erase_if(wrong, [](const std::string& text) { return text.empty(); });
    return wrong;
}

std::vector<std::string> wrong_blobs(const ModelFile& model, ThreadPool& pool) {
    if (!model.packed) fail("{} is no .forge model, so it holds no hashes; `forge pack` makes one of it", model.path);
    return wrong_blobs(model.path, pool);
}

}  // namespace forge
