#include "store/verify.h"

#include <mutex>

#include "base/error.h"
#include "base/progress.h"
#include "formats/forge_model.h"
#include "store/blake3.h"

namespace forge {

std::vector<std::string> wrong_blobs(const ModelFile& model, ThreadPool& pool) {
    if (!model.packed) fail("{} is no .forge model, so it holds no hashes; `forge pack` makes one of it", model.path);
    const ForgeModel& packed = *model.packed;
    const std::vector<ManifestBlob>& blobs = packed.manifest().blobs;
    std::vector<std::string> wrong(blobs.size());
    Progress progress("hashing blobs", packed.manifest().bytes());
    pool.parallel_for(blobs.size(), 1, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) {
            const BlobBytes& blob = packed.blob(i);
            Blake3 hasher;
            constexpr std::size_t piece = std::size_t{8} << 20;
            for (std::size_t at = 0; at < blob.bytes.size(); at += piece) {
                const auto part = blob.bytes.subspan(at, std::min(piece, blob.bytes.size() - at));
                blob.file->read_ahead(blob.offset + at, 4 * piece);
                hasher.update(part);
                progress.advance(part.size());
            }
            if (const Digest found = hasher.finish(); found != blobs[i].digest)
                wrong[i] = fmt::format("{}: the {} {} ({} bytes) has the BLAKE3 {}, not {}: its bytes are wrong", model.path, blobs[i].role, blobs[i].name,
                                       blobs[i].bytes, found.hex(), blobs[i].digest.hex());
        }
    });
    std::erase_if(wrong, [](const std::string& text) { return text.empty(); });
    return wrong;
}

}  // namespace forge
