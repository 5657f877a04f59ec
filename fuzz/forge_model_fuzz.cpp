// Any bytes are a part of a .forge model or an Error. The first byte says which part. Hashes are put
// right before the parser sees them, since no fuzzer guesses one.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/forge_container.h"
#include "formats/forge_manifest.h"
#include "formats/forge_metadata.h"
#include "formats/forge_shard.h"
#include "formats/xxh3.h"

namespace {

using namespace forge;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

template <typename T>
void put(std::string& out, std::size_t at, T value) {
    std::memcpy(out.data() + at, &value, sizeof value);
}

// Every plane is inside the shard, and every row of it can be decoded.
void use_shard(std::span<const std::byte> shard, const ShardIndex& index) {
    for (const PackedWeight& packed : index.weights) {
        Weight w;
        w.format = packed.format;
        w.rows = packed.rows;
        w.cols = packed.cols;
        w.tiled = packed.tiled;
        Plane* const planes[] = {&w.codes, &w.codes_high, &w.scales, &w.offsets, &w.super_scales, &w.super_mins};
        for (const PackedPlane& plane : packed.planes) {
            if (plane.offset + plane.bytes > shard.size() || plane.offset % kPlaneAlignment != 0) std::abort();
            xxh3(shard.subspan(plane.offset, plane.bytes));
            *planes[static_cast<std::size_t>(plane.kind)] = {shard.data() + plane.offset, static_cast<std::size_t>(plane.stride)};
        }
        if (w.cols > 1 << 16) continue;
        std::vector<float> row(static_cast<std::size_t>(w.cols));
        decode_row(w, 0, row.data());
        decode_row(w, w.rows - 1, row.data());
    }
}

// The input as an index (first two bytes: the number of records) behind 48 KiB for planes.
void index_alone(std::string_view data) {
    if (data.size() < 2) return;
    const std::uint64_t count = static_cast<unsigned char>(data[0]) % 8u, index_at = 4 * kPlaneAlignment;
    data.remove_prefix(2);
    std::string shard(index_at, 'p');
    shard += data;
    // As many planes as make the footer the right size are tried: the parser says how many it wants.
    for (std::size_t planes = 0; planes <= 6 * count; ++planes) {
        std::string whole = shard + std::string(8 * planes + 24, '\0');
        std::memcpy(whole.data(), "FORGESHD", 8);
        put(whole, 8, std::uint32_t{1});
        put(whole, 12, std::uint32_t{64});
        put(whole, 16, std::uint64_t{whole.size()});
        put(whole, 24, index_at);
        put(whole, 32, std::uint64_t{data.size()});
        put(whole, 40, index_at + data.size());
        put(whole, 48, std::uint64_t{8 * planes + 24});
        put(whole, 56, count);
        put(whole, whole.size() - 24, xxh3(bytes_of(data)));
        put(whole, whole.size() - 16, xxh3(bytes_of(whole).first(64)));
        std::memcpy(whole.data() + whole.size() - 8, "FORGEEND", 8);
        try {
            use_shard(bytes_of(whole), read_shard(bytes_of(whole), "fuzz"));
        } catch (const Error&) {
        }
    }
}

void container(std::string_view data) {
    std::string file = container_header() + std::string(kPlaneAlignment, 'b');
    const std::size_t at = file.size();
    file += data;
    if (data.size() >= 64) {  // manifest and directory as the trailer has them, their hashes put right
        std::uint64_t manifest = 0, bytes = 0, directory = 0;
        const std::size_t trailer = file.size() - 64;
        std::memcpy(&manifest, file.data() + trailer, 8);
        std::memcpy(&bytes, file.data() + trailer + 8, 8);
        std::memcpy(&directory, file.data() + trailer + 16, 8);
        if (manifest <= trailer && bytes <= trailer - manifest) put(file, trailer + 32, xxh3(bytes_of(file).subspan(manifest, bytes)));
        if (directory <= trailer) put(file, trailer + 40, xxh3(bytes_of(file).subspan(directory, trailer - directory)));
        put(file, trailer + 48, std::uint64_t{file.size()});
        std::memcpy(file.data() + trailer + 56, "FORGETRL", 8);
    }
    const Container read = read_container(bytes_of(file), "fuzz");
    for (const ContainedBlob& blob : read.blobs)
        if (blob.offset + blob.bytes > file.size() || blob.offset > at + data.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
    try {
        switch (data[0] % 6) {
            case 0: {
                const Manifest manifest = Manifest::parse(text, "fuzz");
                const std::string again = manifest.dump();
                if (Manifest::parse(again, "fuzz").dump() != again) std::abort();
                break;
            }
            case 1: index_alone(text); break;
            case 2: use_shard(bytes, read_shard(bytes, "fuzz")); break;
            case 3: {
                Metadata pairs;
                decode_pairs(bytes, "fuzz", pairs);
                Metadata again;
                decode_pairs(bytes_of(encode_pairs(pairs, [](std::string_view) { return true; })), "fuzz", again);
                break;
            }
            case 4: decode_tensor_list(bytes, "fuzz"); break;
            case 5: container(text); break;
        }
    } catch (const Error&) {
    }
    return 0;
}
